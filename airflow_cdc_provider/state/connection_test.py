"""Trying a database as a state store, for the test of a connection; nothing there is changed.

A privilege is tried, not looked up: each database keeps them in its own way. Where our tables are,
statements that touch no row need the same privileges as those that do. Where they are not, a table
of a name that nobody else has is made and dropped again; a file of SQLite is not even made.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Column, Engine, Integer, MetaData, Table, delete, false, inspect, update
from sqlalchemy.exc import DBAPIError

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError, StateUnreachableError
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.state.migrate import HEAD, stored_version
from airflow_cdc_provider.state.tables import VERSION_TABLE, events

_AIRFLOWS_OWN = ("dag_run", "task_instance", "slot_pool")


def try_store(dsn: str) -> tuple[str, ...]:
    """Test a database as state store; return what was found, raise if it cannot be used."""
    engine = open_engine(dsn)
    try:
        if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists():
            return _try_folder(Path(str(engine.url.database)))
        return _try_database(engine)
    except DBAPIError as error:
        raise StateUnreachableError(
            f"the database did not answer: {error.orig}",
            where="state",
            risk=NOTHING_CHANGED,
            remedy="correct host, port, user, password and database, or start the server",
        ) from None
    finally:
        engine.dispose()


def _try_folder(file: Path) -> tuple[str, ...]:
    """Return that a SQLite file can be created; refuse if the folder is not writable."""
    folder = file.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(
            f"the file {file} is not there and cannot be made",
            f"make the folder {folder} and let this user write to it",
        )
    return (f"SQLite: the file {file} is not there yet, and is made on first use",)


def _try_database(engine: Engine) -> tuple[str, ...]:
    """Return what a database has; refuse Airflow's own, and one that cannot be written."""
    seen = inspect(engine)
    if all(seen.has_table(name) for name in _AIRFLOWS_OWN):
        raise _refused(
            "this is Airflow's own metadata database",
            "make a database of its own for the state, and name it in the connection",
        )
    if not seen.has_table(VERSION_TABLE):
        _try_making(engine)
        return (_server(engine), "there are no tables of ours yet; they are made on first use")
    _try_writing(engine)
    return _server(engine), _tables(stored_version(engine))


def _tables(version: str | None) -> str:
    """Describe the version of the state tables; refuse one that is newer than this release."""
    if version == HEAD:
        return f"our tables are there, of version {version}, which is this release's"
    if version is None or version < HEAD:
        return (
            f"our tables are there, of version {version or 'none'}; the next run brings them "
            f"to {HEAD}"
        )
    raise _refused(
        f"our tables are of version {version}, and this release knows those up to {HEAD}",
        "upgrade airflow-provider-cdc, or use another state database",
    )


def _server(engine: Engine) -> str:
    """Describe the database server: kind, version, host and database."""
    version = ".".join(map(str, engine.dialect.server_version_info or ()))
    where = f" at {engine.url.host}" if engine.url.host else ""
    return f"{engine.dialect.name} {version}{where}, database {engine.url.database}"


def _try_making(engine: Engine) -> None:
    """Create and drop a table; refuse the account if it may not."""
    probe = Table(f"cdc_try_{secrets.token_hex(8)}", MetaData(), Column("one", Integer))
    try:
        probe.create(engine)
    except DBAPIError as error:
        raise _refused(
            f"the account may not make tables: {error.orig}",
            "grant it all privileges on this database, or name one where it has them",
        ) from None
    finally:
        with suppress(DBAPIError):
            probe.drop(engine, checkfirst=True)


def _try_writing(engine: Engine) -> None:
    """Update, delete and insert no rows, in a transaction rolled back; refuse if not allowed."""
    column = next(iter(events.columns))
    nothing = false()
    try:
        with engine.connect() as connection:
            connection.execute(update(events).where(nothing).values({column: column}))
            connection.execute(delete(events).where(nothing))
            connection.execute(
                events.insert().from_select(
                    [each.name for each in events.columns], events.select().where(nothing)
                )
            )
            connection.rollback()
    except DBAPIError as error:
        raise _refused(
            f"the account may not write to our tables: {error.orig}",
            "grant it all privileges on this database",
        ) from None


def _refused(what: str, remedy: str) -> RefusedError:
    """Return the error for a database that cannot be used as state store."""
    return RefusedError(what, where="state", risk=NOTHING_CHANGED, remedy=remedy)
