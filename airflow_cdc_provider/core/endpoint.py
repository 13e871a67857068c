"""Where a server is and how to get in, read from a DSN in the form of Airflow's connection URIs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.dsn import Dsn, DsnError, parse_dsn
from airflow_cdc_provider.core.kinds import kinds
from airflow_cdc_provider.core.store_access import (
    AS_THE_ENVIRONMENT_SAYS,
    StoreAccess,
)

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NAME = re.compile(r"[a-z]+(_[a-z]+)*")
"""What an option's name looks like; anything else may be part of a password and is not shown."""
STORE_SCHEMES = ("s3", "gs", "az")
"""Of the URIs of stores that are no file systems: Amazon's S3, Google's and Azure's."""
_KNOWN = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_disabled", "ssl_verify_identity", "unix_socket"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one server, with account and TLS options; `repr` hides the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    unix_socket: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_disabled: bool = False
    ssl_verify_identity: bool = True
    system: str = ""
    """The kind of server, by the DSN's scheme."""

    @classmethod
    def parse(cls, dsn: str) -> Endpoint:
        """Read `scheme://user:password@host:port/database?ssl_ca=...`, URL-encoded.

        The error never repeats the DSN, because it holds a password.
        """
        try:
            parts = parse_dsn(dsn)
        except DsnError as error:
            raise ValueError(f"{_looks_like()}; of this one {error}") from None
        kind = kinds().of_scheme(parts.scheme)
        if kind is None or not parts.host:
            raise ValueError(f"{_looks_like()}; this one has another scheme, or no host")
        options = parts.options
        unknown = sorted(name for name in options.keys() - _KNOWN if _NAME.fullmatch(name))
        if options.keys() - _KNOWN:
            raise ValueError(f"unknown DSN options {unknown}; known are {sorted(_KNOWN)}")
        return cls(
            host=parts.host,
            port=parts.port or kind.port,
            user=parts.user,
            password=parts.password,
            database=parts.path,
            unix_socket=options.get("unix_socket", ""),
            ssl_ca=options.get("ssl_ca", ""),
            ssl_cert=options.get("ssl_cert", ""),
            ssl_key=options.get("ssl_key", ""),
            ssl_disabled=_flag(options, "ssl_disabled", default=False),
            ssl_verify_identity=_flag(options, "ssl_verify_identity", default=True),
            system=kind.name,
        )

    @property
    def is_loopback(self) -> bool:
        """Tell whether traffic to this server stays on this machine."""
        return bool(self.unix_socket) or self.host in LOOPBACK

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Store:
    """A place of files by its URI: a folder of a file system, or a bucket with a prefix.

    How to get in is no part of the URI: a URI is shown.
    """

    uri: str
    """Without a slash at its end and without options: `file:///data/changes`."""
    access: StoreAccess = field(default=AS_THE_ENVIRONMENT_SAYS, repr=False)

    @classmethod
    def of_folder(cls, path: str) -> Store:
        """Return the place of a folder, by its absolute path."""
        return cls(f"file:///{quote(path.lstrip('/'), safe='/')}")

    @property
    def scheme(self) -> str:
        """Return what kind of store it is, as the URI begins."""
        return self.uri.partition("://")[0].lower()

    @property
    def bucket(self) -> str:
        """Return the bucket or container; empty for a folder of a file system."""
        return self.uri.partition("://")[2].partition("/")[0]

    @property
    def path(self) -> str:
        """Return the path of the place: of `file:`, the folder's absolute path."""
        return unquote(f"/{self.uri.partition('://')[2].partition('/')[2]}")

    def below(self, name: str) -> Store:
        """Return a place below this one; `name` is a path with `/`."""
        return Store(f"{self.uri}/{quote(name, safe='/')}", self.access)

    def __str__(self) -> str:
        return self.path if self.scheme == "file" else self.uri


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of files as a sink; its path is the same on every machine of the job."""

    path: str
    """Absolute; or the URI of a store, with a prefix: `s3://bucket/changes`."""
    form: str
    """How its files are written, `json` or `parquet`; or whose tables they are, as `iceberg`."""
    with_queries: bool = False
    """Each change comes with the statement that made it."""
    debezium_types: bool = False
    """Parquet files have Debezium's numbers and texts, not types of their own."""
    commit_seconds: int = 0
    """Of tables that follow the files: the seconds from one commit to the next."""
    access: StoreAccess = field(default=AS_THE_ENVIRONMENT_SAYS, repr=False)
    """How to get into the store."""
    catalog: CatalogAccess | None = None
    """Which server knows its tables; None for a catalog in the folder, or none at all."""
    mirror_mb: int = 0
    """Of tables that hold the current rows: how much of one a commit may write again, in MB; 0 for
    tables that hold each change."""
    compacts: bool = True
    """Of tables that hold each change: small files become larger ones now and then."""

    @property
    def identity(self) -> str:
        """Return a URL that identifies the folder and its file format."""
        return f"{self.store.uri}?form={self.form}"

    @property
    def store(self) -> Store:
        """Return the folder as a place of files, whatever their format."""
        if not self.path.startswith("/"):
            return Store(self.path, self.access)
        return Store.of_folder(self.path)

    @property
    def address(self) -> str:
        """Return the folder as a URL with all its options; `parse_sink` reads that back.

        With the key of its store and the account of its catalog, if it has them: then it is as
        secret as those.
        """
        queries = "&with_queries=1" if self.with_queries else ""
        types = "&debezium_types=1" if self.debezium_types else ""
        pace = f"&commit_seconds={self.commit_seconds}" if self.commit_seconds else ""
        mirror = f"&mirror_mb={self.mirror_mb}" if self.mirror_mb else ""
        small = "" if self.compacts else "&compacts=0"
        told = f"form={self.form}{queries}{types}{pace}{mirror}{small}"
        if self.catalog is not None:
            told = f"{told}&{urlencode(self.catalog.options)}"
        if self.access == AS_THE_ENVIRONMENT_SAYS:
            return f"{self.store.uri}?{told}"
        store, access = self.store, self.access
        account = (access.key_id, access.secret)
        prefix = store.path.lstrip("/")
        place = Dsn(store.scheme, store.bucket, None, *account, prefix, access.options).text()
        return f"{place}{'&' if '?' in place else '?'}{told}"

    def __str__(self) -> str:
        return self.path


SinkPlace = Endpoint | Folder | Store
"""Where a sink is: a server, a folder with the form of its files, or a store of files."""


def parse_sink(dsn: str) -> SinkPlace:
    """Parse a sink's DSN: a server's, or the URL of a folder.

    A folder's URL that names no file format (`form`) is that of a store of files.
    """
    scheme = dsn.partition("://")[0]
    if scheme not in ("file", *STORE_SCHEMES):
        return Endpoint.parse(dsn)
    try:
        parts = parse_dsn(dsn)
    except DsnError as error:
        raise ValueError(f"a folder looks like file:///path; of this {error}") from None
    path, access = f"/{parts.path}", AS_THE_ENVIRONMENT_SAYS
    if scheme != "file":
        path, access = f"{scheme}://{parts.host}{path.rstrip('/')}", StoreAccess.of(parts)
    if "form" not in parts.options:
        return Store.of_folder(path) if scheme == "file" else Store(path, access)
    with_queries = _flag(parts.options, "with_queries", default=False)
    debezium_types = _flag(parts.options, "debezium_types", default=False)
    pace = int(parts.options.get("commit_seconds", 0))
    mirror_mb = int(parts.options.get("mirror_mb", 0))
    options = (parts.options["form"], with_queries, debezium_types, pace)
    compacts = _flag(parts.options, "compacts", default=True)
    catalog = CatalogAccess.of(parts.options)
    return Folder(path, *options, access, catalog, mirror_mb, compacts)


def _looks_like() -> str:
    """Return an example of a DSN, for an error message."""
    return f"a source or sink DSN looks like {kinds().example_dsns()}"


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read an option that is true or false."""
    text = options.get(name, "").lower()
    if not text:
        return default
    if text not in _FLAGS:
        raise ValueError(f"DSN option {name} is true or false, and here neither")
    return _FLAGS[text]
