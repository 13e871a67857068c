"""Airflow's connections, wherever they are kept, and what they are to us: a DSN, a Spark master.

Airflow's own form is nearly a DSN, but not quite: a file of SQLite is a host or a schema there, TLS
settings are nested, and settings that only another driver knows may stand beside them. A setting
that changes how a server is reached is translated or refused, never dropped. Airflow reads a
connection from its database; without Airflow it is read here, from the same JSON or URI.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode

from airflow_cdc_provider.core.dsn import DsnError, parse_dsn
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError

MYSQL_TYPES = frozenset({"mysql", "mariadb", "cdc_mysql", "cdc_mysql_sink"})
POSTGRES_TYPES = frozenset({"postgres", "postgresql"})
STATE_TYPE = "cdc_state"
"""Its field `kind` says which database it is; the others are of the same names on all."""
# What other drivers take from the same connection; none of it changes who answers, or how safely.
_OF_OTHER_DRIVERS = frozenset({"charset", "cursor", "local_infile", "client", "autocommit"})
_TLS_FILES = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key"}
_POSTGRES_TLS = {"ssl_ca": "sslrootcert", "ssl_cert": "sslcert", "ssl_key": "sslkey"}
_MASTERS = ("local", "yarn", "k8s://", "spark://", "sc://")
_STANDALONE = "spark://"
ONLY_SUBMITTED = frozenset({"queue", "namespace", "principal", "keytab"})
"""Fields of a `spark` connection that only a submitted job obeys, besides a deploy mode."""
_SERVERS = MYSQL_TYPES | POSTGRES_TYPES | {STATE_TYPE}
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
            _kind(form.get("conn_type") or ""),
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
            _kind(parts.scheme),
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
        if self.kind == "sqlite":
            path = self.host or self.schema
            return f"sqlite:///{path}" if path.startswith("/") else f"sqlite:////{path}"
        if self.kind in MYSQL_TYPES or not self.kind:
            return self._url("mysql", self._mysql_options())
        if self.kind in POSTGRES_TYPES:
            return self._url("postgresql", self.extra)
        raise RefusedError(
            f"connection {self.conn_id!r} is of type {self.kind!r}",
            where=f"connection {self.conn_id}",
            risk=NOTHING_STARTED,
            remedy=f"wanted is one of {', '.join(sorted(_SERVERS))} or sqlite; "
            "where Airflow makes such a type generic, add the connection as a URI",
        )

    def _of_state(self) -> Self:
        """Return a connection of the type `cdc_state` as one of its database's own type."""
        kind = _kind(str(self.extra.get("kind") or ""))
        extra = {n: v for n, v in self.extra.items() if n != "kind" and v not in {None, ""}}
        if kind in POSTGRES_TYPES:
            return replace(self, kind=kind, extra=_postgres_options(extra))
        if kind not in {"mysql", "mariadb", "sqlite"}:
            raise self._refused(
                "it does not say which kind of database it is",
                "choose mysql, postgresql or sqlite as its kind",
            )
        if kind == "sqlite" and not (self.host or self.schema):
            raise self._refused("it names no file", "write the file's path as its host")
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
        """Return the connection as a DSN of a scheme, with URL-encoded parts."""
        if not self.login and "@" in self.schema:
            raise not_encoded(self.conn_id, "it has no login, and an @ in its schema")
        account = quote(self.login, safe="")
        if self.password:
            account += f":{quote(self.password, safe='')}"
        host = self.host
        if not host and scheme == "mysql":
            raise RefusedError(
                f"connection {self.conn_id!r} names no host",
                where=f"connection {self.conn_id}",
                risk=NOTHING_STARTED,
                remedy="write the server's name or address as its host",
            )
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"  # an IPv6 address
        port = f":{self.port}" if self.port else ""
        query = urlencode({name: _text(value) for name, value in options.items()})
        path = quote(self.schema, safe="")
        return f"{scheme}://{account and account + '@'}{host}{port}/{path}{query and '?' + query}"

    def _mysql_options(self) -> dict[str, Any]:
        """Return the options of the extra for a MySQL DSN, TLS settings included."""
        options = {
            name: value
            for name, value in self.extra.items()
            if name not in _OF_OTHER_DRIVERS | {"ssl", "ssl_mode"} and value not in {None, ""}
        }
        options |= self._tls_files(self.extra.get("ssl"))
        match str(self.extra.get("ssl_mode") or "").upper():
            case "" | "VERIFY_IDENTITY":
                pass
            case "VERIFY_CA":
                options["ssl_verify_identity"] = False
            case "DISABLED":
                options["ssl_disabled"] = True
            case mode:
                raise self._refused(
                    f"ssl_mode {mode} does not say whether the server is verified",
                    "write VERIFY_IDENTITY, VERIFY_CA or DISABLED",
                )
        return options

    def _tls_files(self, ssl: Any) -> dict[str, Any]:
        """Translate the `ssl` that Airflow's MySQL provider knows: `{"ca": ..., "cert": ...}`."""
        if not ssl:
            return {}
        try:
            files = json.loads(ssl) if isinstance(ssl, str) else ssl
            return {_TLS_FILES[name]: value for name, value in files.items()}
        except (ValueError, AttributeError, KeyError):
            raise self._refused(
                "the extra 'ssl' is not understood",
                'write it as {"ca": "/path", "cert": "/path", "key": "/path"}',
            ) from None

    def _refused(self, what: str, remedy: str) -> RefusedError:
        """Return the error for a wrong extra of this connection."""
        return RefusedError(
            what,
            where=f"extra of connection {self.conn_id}",
            risk=NOTHING_STARTED,
            remedy=remedy,
        )


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


def _kind(text: str) -> str:
    """Return a connection's type in lower case, with underscores."""
    return text.lower().replace("-", "_")


def _text(value: Any) -> str:
    """Return a setting as text; booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
