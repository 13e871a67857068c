"""From a DSN in the form of Airflow's connection URIs to a SQLAlchemy engine.

SQLite runs with a write-ahead log, so that a status command reads while a job writes, and waits
instead of failing when another process writes. Python's sqlite3 would open a transaction only at
the first write and upgrade its lock then, which fails at once if someone else wrote in between;
so a transaction that will write says so at its beginning (`begin_writing`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from airflow_cdc_provider.core.dsn import Dsn, DsnError, parse_dsn
from airflow_cdc_provider.core.endpoint import LOOPBACK, Endpoint
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.databases.patience import ANSWER_S, CONNECT_S, limit_psycopg

BUSY_TIMEOUT_MS = 30_000
_BEGIN = "cdc_sqlite_begin"
_POSTGRES_DRIVERS = ("psycopg", "psycopg2")
_POSTGRES_MODES = {"verify-full", "verify-ca", "disable"}
_POSTGRES_FIX = "write verify-full, verify-ca or disable, and sslrootcert=/path for your own CA"


def open_engine(
    dsn: str, answer_s: float = ANSWER_S, *, what: str = "state", keeps: bool = True
) -> Engine:
    """Create a SQLAlchemy engine from a DSN; nothing connects, and no error repeats the DSN.

    `answer_s` are the seconds that a server has for an answer; `what` names the database in errors.
    Without `keeps` no connection is kept for the next use.
    """
    pool: dict[str, Any] = {"hide_parameters": True}
    pool |= {"pool_pre_ping": True} if keeps else {"poolclass": NullPool}
    try:
        if dsn.lower().startswith("sqlite:"):
            return _sqlite_engine(make_url(dsn), what)
        parts = parse_dsn(dsn)
        kind, _, driver = parts.scheme.partition("+")
        if kind in {"mysql", "mariadb"}:  # by PyMySQL, whichever driver is named
            return _mysql_engine(f"mysql://{dsn.partition('://')[2]}", answer_s, what, pool)
        if kind in {"postgres", "postgresql"}:
            url = postgres_url(parts, driver or _postgres_driver(), what=what)
            engine = create_engine(url, **pool)
            if engine.driver == "psycopg":
                limit_psycopg(engine, answer_s)
            return engine
        return create_engine(_url(parts, parts.scheme), **pool)
    except DsnError as error:
        raise _unusable(what, str(error)) from None
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        why = f"SQLAlchemy cannot use it here ({type(error).__name__})"
        raise _unusable(what, why) from None


def require_answer(engine: Engine) -> None:
    """Have a database let one in and answer; SQLAlchemy's error if it does not."""
    with engine.connect() as connection:
        connection.execute(select(1))


def _unusable(what: str, why: str) -> RefusedError:
    """Return the error for a DSN that cannot be used."""
    return RefusedError(
        f"the {what} DSN cannot be used: {why}",
        where=what,
        risk=NOTHING_STARTED,
        remedy="use mysql://user:password@host:3306/database, postgresql://... or "
        "sqlite:////path/to/file, and install the database's driver; PostgreSQL's comes with "
        "airflow-provider-cdc[postgres]",
    )


def _url(parts: Dsn, driver: str, options: Mapping[str, str] | None = None) -> URL:
    """Return a SQLAlchemy URL of a DSN's parts."""
    return URL.create(
        driver,
        username=parts.user or None,
        password=parts.password or None,
        host=parts.host or None,
        port=parts.port,
        database=parts.path or None,
        query=parts.options if options is None else options,
    )


def begin_writing(connection: Connection) -> Connection:
    """Return the connection set so that its next transaction takes SQLite's write lock first."""
    return connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def _mysql_engine(dsn: str, answer_s: float, what: str, pool: Mapping[str, Any]) -> Engine:
    """Create an engine for MySQL or MariaDB, with time limits and verified TLS."""
    try:
        endpoint = Endpoint.parse(dsn)
    except ValueError as error:
        raise RefusedError(
            str(error),
            where=what,
            risk=NOTHING_STARTED,
            remedy=f"correct the {what} DSN",
        ) from None
    if not endpoint.database:
        raise RefusedError(
            f"the {what} DSN names no database",
            where=f"{what}, {endpoint}",
            risk=NOTHING_STARTED,
            remedy=f"create one and name it behind the port: mysql://user:...@host:3306/cdc_{what}",
        )
    url = URL.create(
        "mysql+pymysql",
        username=endpoint.user,
        host=endpoint.host,
        port=endpoint.port,
        database=endpoint.database,
    )
    return create_engine(
        url,
        connect_args=_mysql_arguments(endpoint, answer_s),
        **pool,
        # The fence is a conditional UPDATE; under REPEATABLE READ the rows read after it could
        # be older than what the fence has waited for.
        isolation_level="READ COMMITTED",
    )


def _mysql_arguments(endpoint: Endpoint, answer_s: float) -> dict[str, Any]:
    """Return PyMySQL's connection arguments: password, time limits and TLS."""
    arguments: dict[str, Any] = {
        "password": endpoint.password.encode(),  # PyMySQL would write text as Latin-1
        "charset": "utf8mb4",
        "connect_timeout": min(CONNECT_S, answer_s),
        "read_timeout": answer_s,
        "write_timeout": answer_s,
    }
    if endpoint.unix_socket:
        arguments["unix_socket"] = endpoint.unix_socket
    if endpoint.ssl_disabled or (endpoint.is_loopback and not endpoint.ssl_ca):
        arguments["ssl_disabled"] = True
        return arguments
    context = ssl.create_default_context(cafile=endpoint.ssl_ca or None)
    context.check_hostname = endpoint.ssl_verify_identity
    if endpoint.ssl_cert:
        context.load_cert_chain(endpoint.ssl_cert, endpoint.ssl_key or None)
    arguments["ssl"] = context
    return arguments


def postgres_url(parts: Dsn, driver: str, *, what: str = "state") -> URL:
    """Return a PostgreSQL URL that verifies the server's certificate, unless it is local.

    libpq would take an unencrypted connection, or any certificate, if nothing is said.
    """
    if driver not in _POSTGRES_DRIVERS:
        raise _unusable(what, f"wanted is one of the drivers {', '.join(_POSTGRES_DRIVERS)}")
    options = dict(parts.options)
    if not _stays_here(parts):
        mode = options.setdefault("sslmode", "verify-full")
        if mode not in _POSTGRES_MODES:
            raise _unusable(what, f"its sslmode does not verify the server; {_POSTGRES_FIX}")
        if mode != "disable" and "PGSSLROOTCERT" not in os.environ:
            options.setdefault("sslrootcert", "system")
    return _url(parts, f"postgresql+{driver}", options)


def _stays_here(parts: Dsn) -> bool:
    """Tell whether the server is on this machine; False if that is not sure."""
    if parts.options.keys() & {"hostaddr", "service"}:
        return False
    host = parts.options.get("host", parts.host)
    return host in LOOPBACK or not host or host.startswith("/")


def _postgres_driver() -> str:
    """Return the first PostgreSQL driver that is installed."""
    for driver in _POSTGRES_DRIVERS:
        if find_spec(driver) is not None:
            return driver
    raise ImportError("psycopg")


def _sqlite_engine(url: URL, what: str) -> Engine:
    """Create an engine for a SQLite file; refuse an in-memory database."""
    if url.database in {None, "", ":memory:"}:
        raise RefusedError(
            f"an in-memory SQLite database cannot hold the {what}: jobs are processes of their own",
            where=what,
            risk="progress would be forgotten",
            remedy="name a file: sqlite:////path/to/state.db",
        )
    patience = {"timeout": BUSY_TIMEOUT_MS / 1000}
    engine = create_engine(url, hide_parameters=True, connect_args=patience)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set a new SQLite connection's busy timeout and journal mode."""
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, see above
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Begin a SQLite transaction, with the write lock if the connection is set so."""
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
