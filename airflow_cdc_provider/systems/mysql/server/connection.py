"""Open sessions on a server: the same in every way that changes what a statement means.

Each session states its own sql_mode, time zone, charset, isolation, limits and timeouts, so that
nothing depends on a server's defaults: a server that cuts every result at `sql_select_limit` rows
would else pass for one that holds no more. `DEFAULT` will not do, for it means the server's.

TLS is on and verified for any server off this machine. Sessions on a source never accept LOAD DATA
LOCAL: a server could use it to ask for our files. On a sink it is negotiated on request, and even
then only `RawConnection` answers it, from memory.

Values of ordinary cursors come in the canonical form of `core.keys`: integers, `Decimal`, text,
bytes for binary columns, and temporals as the server writes them. Rows in quantity do not come
this way: see `RawConnection`.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.converters import encoders

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import AccessDeniedError, RefusedError
from airflow_cdc_provider.core.open_connections import note_open
from airflow_cdc_provider.systems.mysql.server.raw_connection import (
    FieldDescriptor,
    PreparedStatement,
    RawConnection,
    StatementOutcome,
    is_mariadb,
    refuse_local_files,
    server_version_text,
    shut,
)
from airflow_cdc_provider.systems.mysql.server.server_errors import Role, server_errors, translated

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    ServerConnection = Connection[Cursor]

__all__ = [
    "FieldDescriptor",
    "PreparedStatement",
    "RawConnection",
    "Role",
    "StatementOutcome",
    "connect",
    "query",
    "query_named",
    "server_errors",
    "sink_session",
    "sql_mode_statement",
    "translated",
]

CONNECT_TIMEOUT_S = 10
# Impossible dates may be keys: the session must read their literals as the table holds them.
_SOURCE_SQL_MODE = "ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
# Strict, so that nothing is cut or rounded silently; what the source holds is allowed to be
# zero or impossible as a date, and 0 in an AUTO_INCREMENT column stays 0.
_SINK_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
)
_LENIENT_SQL_MODE = _SINK_SQL_MODE.replace("STRICT_ALL_TABLES,", "")
_NET_TIMEOUT_S = 3600  # a reader that waits for its sink must not be cut off by the server
_IDLE_TIMEOUT_S = 28800
# A write that waits for a locked table holds the ledger's row meanwhile, also when its client has
# given up: the next try could not begin. So the server ends the wait, as it does with rows.
_LOCK_WAIT_S = 50
_NO_LIMIT = 2**64 - 1
_EVERY_SESSION: dict[str, str | int] = {
    "autocommit": 1,
    "completion_type": "'NO_CHAIN'",
    "sql_mode": f"'{_SOURCE_SQL_MODE}'",
    "time_zone": "'+00:00'",
    "net_read_timeout": _NET_TIMEOUT_S,
    "net_write_timeout": _NET_TIMEOUT_S,
    "wait_timeout": _IDLE_TIMEOUT_S,
    "sql_select_limit": _NO_LIMIT,
    "sql_big_selects": 1,
    "sql_quote_show_create": 1,
    "sql_auto_is_null": 0,
}
_GIPK_VERSION = (8, 0, 30)
_WARNINGS_KEPT = 64

_DECODERS: dict[int, Any] = {
    FIELD_TYPE.TINY: int,
    FIELD_TYPE.SHORT: int,
    FIELD_TYPE.INT24: int,
    FIELD_TYPE.LONG: int,
    FIELD_TYPE.LONGLONG: int,
    FIELD_TYPE.YEAR: int,
    FIELD_TYPE.FLOAT: float,
    FIELD_TYPE.DOUBLE: float,
    FIELD_TYPE.DECIMAL: Decimal,
    FIELD_TYPE.NEWDECIMAL: Decimal,
}


def connect(  # noqa: PLR0913 - each option is one a caller chooses by name
    endpoint: Endpoint,
    *,
    purpose: str,
    read_timeout_s: float | None = 600.0,
    write_timeout_s: float | None = 600.0,
    role: Role = Role.SOURCE,
    local_infile: bool = False,
    raw_values: bool = False,
    many_statements: bool = False,
) -> ServerConnection:
    """Open a session in autocommit mode; errors say what to do.

    `purpose` is shown in the server's list of sessions. With `raw_values` cursors give every
    value as the bytes the server sent. `many_statements` permits several in one command.
    """
    options: dict[str, Any] = {
        "host": endpoint.host,
        "port": endpoint.port,
        "unix_socket": endpoint.unix_socket or None,
        "user": endpoint.user,
        # PyMySQL would encode text as latin1; servers compare UTF-8 bytes
        "password": endpoint.password.encode(),
        # no database: statements name theirs, and one that is not there would end the session
        "charset": "utf8mb4",
        "autocommit": True,
        "use_unicode": not raw_values,
        "conv": dict(encoders) if raw_values else {**encoders, **_DECODERS},
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": read_timeout_s,
        "write_timeout": write_timeout_s,
        "local_infile": local_infile,
        "client_flag": CLIENT.MULTI_STATEMENTS if many_statements else 0,
        "program_name": f"airflow-cdc {purpose}",
    }
    with server_errors(endpoint, f"connecting for {purpose}", role=role):
        connection: ServerConnection = pymysql.connect(
            **options, **_tls(endpoint), defer_connect=True
        )
        note_open(connection, shut)  # before it greets: a server may hang there, too
        connection.connect()
        refuse_local_files(connection)
        _state_session(connection, role)
    return connection


def query(
    connection: ServerConnection, sql: str, *, role: Role = Role.SOURCE
) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows, none if it has no result."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    except pymysql.Error as error:
        where = f"{connection.host}:{connection.port}"
        raise translated(error, where, role=role, statement=sql) from None


def query_named(
    connection: ServerConnection, sql: str, *, role: Role = Role.SOURCE
) -> list[dict[str, Any]]:
    """Run one statement and return its rows as dictionaries by column name."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            names = [part[0] for part in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except pymysql.Error as error:
        where = f"{connection.host}:{connection.port}"
        raise translated(error, where, role=role, statement=sql) from None


def sink_session(connection: ServerConnection) -> None:
    """Set up a sink's session to store rows exactly as given, or refuse them.

    Foreign keys are not checked: the source has checked them, and rows arrive table by table.
    MariaDB's CHECKs are not checked either: rows that break one may be there, for whoever wrote
    them could turn it off. MySQL holds what it enforces, and has no such switch.
    """
    settings: dict[str, str | int] = {
        "sql_mode": f"'{_SINK_SQL_MODE}'",
        "foreign_key_checks": 0,
        "unique_checks": 1,
        "sql_safe_updates": 0,
        "lock_wait_timeout": _LOCK_WAIT_S,
        # what the server doubts about a value must be counted
        "sql_notes": 1,
        # triggers ask for it that are to leave our rows alone
        "@airflow_cdc": 1,
    }
    if is_mariadb(connection):
        settings["check_constraint_checks"] = 0
    statement = "SET SESSION " + ", ".join(f"{k} = {v}" for k, v in settings.items())
    query(connection, statement, role=Role.SINK)
    _keep_warnings(connection)


def _keep_warnings(connection: ServerConnection) -> None:
    """Have the server keep the texts of enough warnings, if the account may set that.

    MySQL asks for a privilege that nothing else here needs. Without it, whoever reads warnings
    sees fewer of them than were counted, and has to take what is not shown for the worst.
    """
    kept = int(query(connection, "SELECT @@SESSION.max_error_count", role=Role.SINK)[0][0])
    if kept < _WARNINGS_KEPT:
        with suppress(AccessDeniedError):
            query(connection, f"SET SESSION max_error_count = {_WARNINGS_KEPT}", role=Role.SINK)


def sql_mode_statement(*, strict: bool) -> str:
    """Return the statement that switches strict mode on or off in a sink's session."""
    return f"SET SESSION sql_mode = '{_SINK_SQL_MODE if strict else _LENIENT_SQL_MODE}'"


def _state_session(connection: ServerConnection, role: Role) -> None:
    """Set the variables that every session states for itself."""
    version = server_version_text(connection)
    settings = dict(_EVERY_SESSION)
    settings["max_statement_time" if is_mariadb(connection) else "max_execution_time"] = 0
    if not is_mariadb(connection) and _numbers(version) >= _GIPK_VERSION:
        settings["show_gipk_in_create_table_and_information_schema"] = 1
    statement = "SET SESSION " + ", ".join(f"{k} = {v}" for k, v in settings.items())
    query(connection, statement, role=role)
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", role=role)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as (8, 0, 46)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _tls(endpoint: Endpoint) -> dict[str, Any]:
    """Return the TLS options: as the DSN says, else verified unless on this machine."""
    wanted = bool(endpoint.ssl_ca or endpoint.ssl_cert)
    if endpoint.ssl_disabled:
        return {"ssl_disabled": True}
    if endpoint.is_loopback and not wanted:
        return {"ssl_disabled": True}
    try:
        context = ssl.create_default_context(cafile=endpoint.ssl_ca or None)
        if endpoint.ssl_cert:
            context.load_cert_chain(endpoint.ssl_cert, endpoint.ssl_key or None)
    except OSError as error:
        raise RefusedError(
            f"the certificate files of the connection cannot be used: {error}",
            where=f"TLS to {endpoint}",
            remedy="check ssl_ca, ssl_cert and ssl_key of the connection",
        ) from error
    # the servers' own generated certificates lack an extension that strict checking wants
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = endpoint.ssl_verify_identity
    return {"ssl": context}
