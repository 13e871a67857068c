"""Airflow's connections, wherever they are kept, and what they are to us: a DSN, a Spark master.

Airflow's own form is nearly a DSN, but not quite: a file of SQLite is a host or a schema there, TLS
settings are nested, and settings that only another driver knows may be beside them. What the extra
says of a server, the server's system reads (`systems.kinds`). Airflow reads a connection from its
database; without Airflow it is read here, from the same JSON or URI.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import unquote

from airflow_cdc_provider.core.dsn import Dsn, DsnError, parse_dsn
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.store_access import ACCESS_OPTIONS, StoreAccess
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.kinds import FIRST, SystemKind, conn_types, extra_reader

STATE_TYPE = "cdc_state"
"""Its field `kind` says which database it is; the others are of the same names on all."""
_POSTGRES_TYPES = frozenset({"postgres", "postgresql"})
_AWS = "aws"
_HTTP_TYPES = frozenset({"iceberg", "http", "https"})
_SQLITE = "sqlite"
_STATE = "state"
_STATE_KINDS = frozenset({"mysql", "mariadb", _SQLITE}) | _POSTGRES_TYPES
_POSTGRES_TLS = {"ssl_ca": "sslrootcert", "ssl_cert": "sslcert", "ssl_key": "sslkey"}
_MASTERS = ("local", "yarn", "k8s://", "spark://", "sc://")
_STANDALONE = "spark://"
ONLY_SUBMITTED = frozenset({"queue", "namespace", "principal", "keytab"})
"""Fields of a `spark` connection that only a submitted job obeys, besides a deploy mode."""
_AS_URI = "where Airflow makes such a type generic, add the connection as a URI"
_EXTRA = "__extra__"
"""The option in which Airflow's URIs hold an extra that is not flat."""


@dataclass(frozen=True, slots=True)
class ConnectionFields:
    """The fields of an Airflow connection; its `repr` hides password and extra."""

    conn_id: str
    kind: str
    host: str = ""
    port: int | None = None
    login: str = ""
    password: str = field(default="", repr=False)
    schema: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, conn_id: str, stored: str) -> Self:
        """Read a connection from Airflow's stored form, JSON or a URI."""
        try:
            if stored.lstrip().startswith("{"):
                return cls._of_json(conn_id, json.loads(stored))
            return cls._of_uri(conn_id, stored)
        except DsnError as error:
            raise not_encoded(conn_id, str(error)) from None
        except (ValueError, AttributeError):
            raise not_encoded(conn_id, "it is neither JSON nor a URI that can be read") from None

    @classmethod
    def _of_json(cls, conn_id: str, form: Mapping[str, Any]) -> Self:
        """Read a connection from its JSON form."""
        extra = form.get("extra") or {}
        texts = ("host", "login", "password", "schema")
        return cls(
            conn_id,
            conn_type_of(form.get("conn_type") or ""),
            port=int(form["port"]) if form.get("port") else None,
            extra=json.loads(extra) if isinstance(extra, str) else extra,
            **{name: str(form.get(name) or "") for name in texts},
        )

    @classmethod
    def _of_uri(cls, conn_id: str, uri: str) -> Self:
        """Read a connection from its URI."""
        parts = parse_dsn(uri)
        extra: dict[str, Any] = dict(parts.options)
        nested = extra.pop(_EXTRA, "")
        return cls(
            conn_id,
            conn_type_of(parts.scheme),
            unquote(parts.host),
            parts.port,
            parts.user,
            parts.password,
            parts.path,
            {**extra, **(json.loads(nested) if nested else {})},
        )

    def dsn(self) -> str:
        """Return the connection as a DSN; refuse a type that is no database."""
        if self.kind == STATE_TYPE:
            return self._of_state().dsn()
        if self.kind == _SQLITE:
            path = self.host or self.schema
            return f"sqlite:///{path}" if path.startswith("/") else f"sqlite:////{path}"
        if self.kind in _POSTGRES_TYPES:
            return self._url("postgresql", self.extra)
        if (kind := self.kind or FIRST) in conn_types():
            return self._of_system(conn_types()[kind][0])
        wanted = ", ".join(sorted({*conn_types(), *_POSTGRES_TYPES, STATE_TYPE}))
        raise RefusedError(
            f"connection {self.conn_id!r} is of type {self.kind!r}",
            where=f"connection {self.conn_id}",
            risk=NOTHING_STARTED,
            remedy=f"wanted is one of {wanted} or {_SQLITE}; {_AS_URI}",
        )

    def store_access(self) -> StoreAccess:
        """Return the key of a store, of a connection of type `aws`; refuse any other."""
        if self.kind != _AWS:
            raise RefusedError(
                f"connection {self.conn_id!r} is of type {self.kind!r}",
                where=f"connection {self.conn_id}",
                risk=NOTHING_STARTED,
                remedy="make it one of type aws, with the key's id as login and its secret as "
                f"password; {_AS_URI}",
            )
        given = {name: str(value) for name, value in self.extra.items() if value not in (None, "")}
        unknown = sorted(given.keys() - set(ACCESS_OPTIONS))
        unknown += ["host"] if self.host else []
        unknown += ["schema"] if self.schema else []
        if unknown:
            raise self._refused(
                f"{', '.join(unknown)} is not known of a store",
                f"known are login, password and the extras {', '.join(ACCESS_OPTIONS)}; leave "
                "the rest out, or let the environment say how to get in",
            )
        try:
            return StoreAccess.of(Dsn("aws", "", None, self.login, self.password, "", given))
        except ValueError as error:
            raise self._refused(
                str(error), "give the id of a key and its secret, or none"
            ) from None

    def catalog_dsn(self, catalog: str) -> str:
        """Return the DSN of a SQL catalog's database, or the URL of a REST catalog's server.

        With the account; a password without a login is a token.
        """
        if catalog == "sql":
            if self.kind == _SQLITE:
                raise self._refused(
                    "a catalog of SQLite is a file in the folder of its tables",
                    "leave catalog out, or name a server",
                )
            return self.dsn()
        if self.kind not in _HTTP_TYPES:
            raise self._refused(
                f"connection {self.conn_id!r} is of type {self.kind!r}",
                f"make it one of type iceberg or http with the server's URL as its host; {_AS_URI}",
            )
        if self.extra:
            raise self._refused(
                f"{', '.join(sorted(self.extra))} is not known of a catalog",
                "leave the extra out; what is not secret goes into catalog.properties",
            )
        return self._url_of_host()

    def _url_of_host(self) -> str:
        """Return the server's URL, with the account: the host may be one itself."""
        account = (self.login, self.password)
        if "://" not in self.host:
            scheme = "http" if self.kind == "http" else "https"
            return Dsn(scheme, self.host, self.port, *account, self.schema, {}).text()
        try:
            url = parse_dsn(self.host)
        except DsnError as error:
            raise not_encoded(self.conn_id, str(error)) from None
        if url.scheme not in {"http", "https"} or url.user or url.password or url.options:
            raise self._refused(
                "its host is no URL of a server that begins with https:// or http://",
                "write the URL alone; login and password have fields of their own",
            )
        path = url.path.strip("/") or self.schema
        return Dsn(url.scheme, url.host, url.port or self.port, *account, path, {}).text()

    def _of_system(self, kind: SystemKind) -> str:
        """Return the connection as a DSN of a server of that system."""
        try:
            options = extra_reader(kind).dsn_options(self.extra)
        except WrongValueError as error:
            raise self._refused(error.what, error.fix) from None
        dsn = self._url(kind.schemes[0], options)
        if not self.host:
            raise RefusedError(
                f"connection {self.conn_id!r} names no host",
                where=f"connection {self.conn_id}",
                risk=NOTHING_STARTED,
                remedy="write the server's name or address as its host",
            )
        return dsn

    def _of_state(self) -> Self:
        """Return a connection of the type `cdc_state` as one of its database's own type."""
        kind = conn_type_of(str(self.extra.get("kind") or ""))
        extra = {n: v for n, v in self.extra.items() if n != "kind" and v not in {None, ""}}
        if kind not in _STATE_KINDS:
            raise self._refused(
                "it does not say which kind of database it is",
                "choose mysql, postgresql or sqlite as its kind",
            )
        if kind == _SQLITE and not (self.host or self.schema):
            raise self._refused("it names no file", "write the file's path as its host")
        if kind in _POSTGRES_TYPES:
            extra = _postgres_options(extra)
        return replace(self, kind=kind, extra=extra)

    def spark_master(self) -> str:
        """Return the Spark master's URL that the connection names; refuse if it names none."""
        port = f":{self.port}" if self.port else ""
        if self.host.startswith(_MASTERS):
            master = f"{self.host}{port}"
        elif self.host and self.kind == "spark":
            master = f"{_STANDALONE}{self.host}{port}"
        else:
            raise RefusedError(
                f"connection {self.conn_id!r} names no Spark master",
                where=f"spark.conn_id, connection {self.conn_id}",
                risk=NOTHING_STARTED,
                remedy="make it one of type spark with a host such as spark://host, and its port",
            )
        has_port = ":" in master.removeprefix(_STANDALONE)
        return master if has_port or not master.startswith(_STANDALONE) else f"{master}:7077"

    def own_master(self) -> str:
        """Return the Spark master's URL for a job that this process starts itself.

        Settings that only a submitted job obeys are refused, not left out.
        """
        asked = {name for name in ONLY_SUBMITTED if self.extra.get(name)}
        if self.extra.get("deploy-mode") == "cluster":
            asked.add("deploy-mode")
        if asked:
            raise RefusedError(
                f"connection {self.conn_id!r} says {', '.join(sorted(asked))}, which only jobs "
                "obey that Airflow's Spark provider submits",
                where=f"spark.conn_id, connection {self.conn_id}",
                risk=NOTHING_STARTED,
                remedy="run the pipeline as a DAG where apache-airflow-providers-apache-spark is "
                "installed, or give --master",
            )
        return self.spark_master()

    def _url(self, scheme: str, options: Mapping[str, Any]) -> str:
        """Return the connection as a DSN of a scheme, with `options` as the DSN's query."""
        if not self.login and "@" in self.schema:
            raise not_encoded(self.conn_id, "it has no login, and an @ in its schema")
        texts = {name: _text(value) for name, value in options.items()}
        account = (self.login, self.password)
        return Dsn(scheme, self.host, self.port, *account, self.schema, texts).text()

    def _refused(self, what: str, remedy: str) -> RefusedError:
        """Return the error for a wrong extra of this connection."""
        return RefusedError(
            what,
            where=f"extra of connection {self.conn_id}",
            risk=NOTHING_STARTED,
            remedy=remedy,
        )


def conn_type_of(text: str) -> str:
    """Return a connection's type as one word in lower case: Airflow writes it with `-` or `_`."""
    return text.lower().replace("-", "_")


def parts_of_type(conn_type: str) -> tuple[str, ...]:
    """Return what a connection of a type may be in a pipeline: source, sink or state.

    A type whose form and test are of one part is offered for that part alone.
    """
    if conn_type in _POSTGRES_TYPES | {STATE_TYPE, _SQLITE}:
        return (_STATE,)
    if conn_type not in conn_types():
        return ()
    kind, found = conn_types()[conn_type]
    if found.part is not None:
        return (found.part,)
    return (Part.SOURCE, Part.SINK, *([_STATE] if kind.name in _STATE_KINDS else []))


def require_encoded(conn_id: str, stored: str) -> None:
    """Refuse a connection's URI that is not encoded, before Airflow parses it.

    Airflow splits it as Python does, and takes what is before a `/`, `?` or `#` in a password that
    is not encoded for host and port, which are then shown.
    """
    kind, mark, _ = stored.strip().partition("://")
    if not mark or not parts_of_type(conn_type_of(kind)) or conn_type_of(kind) == _SQLITE:
        return  # JSON, or of a kind in which an @ may be part of a path
    try:
        parse_dsn(stored)
    except DsnError as error:
        raise not_encoded(conn_id, str(error)) from None


def endpoint_of(conn_id: str, dsn: str, *, risk: str = NOTHING_STARTED) -> Endpoint:
    """Return the address of the server that a connection's DSN names; refuse another DSN."""
    try:
        return Endpoint.parse(dsn)
    except ValueError as error:
        raise RefusedError(
            str(error),
            where=f"connection {conn_id}",
            risk=risk,
            remedy="correct the connection",
        ) from None


def not_encoded(conn_id: str, why: str) -> RefusedError:
    """Return the error for a stored text that is no connection; never repeats the text."""
    return RefusedError(
        f"the URI of connection {conn_id!r} is not one: {why}",
        where=f"connection {conn_id}",
        risk=NOTHING_STARTED,
        remedy="write user and password of the URI URL-encoded, or the connection as JSON",
    )


def _postgres_options(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extra with the provider's TLS settings written as libpq's options."""
    flags = {"ssl_disabled", "ssl_verify_identity"}
    options = {_POSTGRES_TLS.get(n, n): v for n, v in extra.items() if n not in flags}
    if _is(extra.get("ssl_disabled"), default=False):
        options["sslmode"] = "disable"
    elif not _is(extra.get("ssl_verify_identity"), default=True):
        options["sslmode"] = "verify-ca"
    return options


def _is(value: Any, *, default: bool) -> bool:
    """Return a setting as a boolean."""
    return default if value is None else str(value).lower() in {"true", "1", "yes"}


def _text(value: Any) -> str:
    """Return a setting as text; booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
