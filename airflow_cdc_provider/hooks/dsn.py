"""From Airflow's connections to DSNs, the one form in which the rooms below know a server.

Airflow's own URIs are nearly that form, but not quite: a file of SQLite is a host or a schema
there, TLS settings are nested, and settings that only another driver knows may stand beside
them. A setting that changes how a server is reached is translated or refused, never dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_cdc_provider.core.dsn import DsnError, parse_dsn, passwords_in
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.pipeline.file.model import Reference

MYSQL_TYPES = frozenset({"mysql", "mariadb", "cdc_mysql"})
POSTGRES_TYPES = frozenset({"postgres", "postgresql"})
# What other drivers take from the same connection; none of it changes who answers, or how safely.
_OF_OTHER_DRIVERS = frozenset({"charset", "cursor", "local_infile", "client", "autocommit"})
_TLS_FILES = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key"}


class AirflowDsns:
    """Finds the DSN of a pipeline file's reference: a connection, or an environment variable."""

    def __call__(self, reference: Reference) -> str | None:
        if reference.dsn_env is not None:
            return remembered(os.environ.get(reference.dsn_env, "")) or None
        _require_encoded(reference.conn_id or "")
        try:
            connection = BaseHook.get_connection(reference.conn_id or "")
        except AirflowNotFoundException:
            return None
        return remembered(dsn_of(connection, connection.extra_dejson))


def dsn_of(connection: Connection, extra: Mapping[str, Any]) -> str:
    """Write a connection as a DSN; `extra` is its extra, already read from JSON."""
    kind = (connection.conn_type or "").replace("-", "_")
    if kind == "sqlite":
        path = connection.host or connection.schema or ""
        return f"sqlite:///{path}" if path.startswith("/") else f"sqlite:////{path}"
    if kind in MYSQL_TYPES:
        return _url("mysql", connection, _mysql_options(connection, extra))
    if kind in POSTGRES_TYPES:
        return _url("postgresql", connection, dict(extra))
    raise RefusedError(
        f"connection {connection.conn_id!r} is of type {kind!r}",
        where=f"connection {connection.conn_id}",
        risk="none: nothing was started",
        remedy=f"wanted is one of {', '.join(sorted(MYSQL_TYPES | POSTGRES_TYPES))} or sqlite; "
        "where Airflow makes such a type generic, add the connection as a URI",
    )


def remembered(dsn: str) -> str:
    """Have Airflow mask the DSN and its password, as it is and as the DSN writes it."""
    if not dsn:
        return dsn
    mask_secret(dsn)
    for password in passwords_in(dsn):
        mask_secret(password)
        mask_secret(unquote(password))
    return dsn


def _url(scheme: str, connection: Connection, options: Mapping[str, Any]) -> str:
    if not connection.login and "@" in (connection.schema or ""):
        raise _not_encoded(connection.conn_id, "it has no login, and an @ in its schema")
    account = quote(connection.login or "", safe="")
    if connection.password:
        account += f":{quote(connection.password, safe='')}"
    host = connection.host or ""
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"  # an IPv6 address
    port = f":{connection.port}" if connection.port else ""
    query = urlencode({name: _text(value) for name, value in options.items()})
    path = quote(connection.schema or "", safe="")
    return f"{scheme}://{account}@{host}{port}/{path}{query and '?' + query}"


def _require_encoded(conn_id: str) -> None:
    """Refuse a URI in the environment that is none.

    Airflow splits it as Python does, and takes what stands before a `/`, `?` or `#` in a password
    that is not encoded for host and port, which are then shown.
    """
    uri = os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", "").strip()
    kind, mark, _ = uri.partition("://")
    if not mark or kind.replace("-", "_") not in MYSQL_TYPES | POSTGRES_TYPES:
        return  # JSON, or of a kind in which an @ may be part of a path
    try:
        parse_dsn(uri)
    except DsnError as error:
        raise _not_encoded(conn_id, str(error)) from None


def _not_encoded(conn_id: str, why: str) -> RefusedError:
    return RefusedError(
        f"the URI of connection {conn_id!r} is not one: {why}",
        where=f"connection {conn_id}",
        risk="none: nothing was started",
        remedy="write user and password of the URI URL-encoded, or the connection as JSON",
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mysql_options(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    options = {
        name: value
        for name, value in extra.items()
        if name not in _OF_OTHER_DRIVERS | {"ssl", "ssl_mode"} and value not in {None, ""}
    }
    options |= _tls_files(connection, extra.get("ssl"))
    match str(extra.get("ssl_mode") or "").upper():
        case "" | "VERIFY_IDENTITY":
            pass
        case "VERIFY_CA":
            options["ssl_verify_identity"] = False
        case "DISABLED":
            options["ssl_disabled"] = True
        case mode:
            raise _refused(
                connection,
                f"ssl_mode {mode} does not say whether the server is verified",
                "write VERIFY_IDENTITY, VERIFY_CA or DISABLED",
            )
    return options


def _tls_files(connection: Connection, ssl: Any) -> dict[str, Any]:
    """Translate the `ssl` that Airflow's MySQL provider knows: `{"ca": ..., "cert": ...}`."""
    if not ssl:
        return {}
    try:
        files = json.loads(ssl) if isinstance(ssl, str) else ssl
        return {_TLS_FILES[name]: value for name, value in files.items()}
    except (ValueError, AttributeError, KeyError):
        raise _refused(
            connection,
            "the extra 'ssl' is not understood",
            'write it as {"ca": "/path", "cert": "/path", "key": "/path"}',
        ) from None


def _refused(connection: Connection, what: str, remedy: str) -> RefusedError:
    return RefusedError(
        what,
        where=f"extra of connection {connection.conn_id}",
        risk="none: nothing was started",
        remedy=remedy,
    )
