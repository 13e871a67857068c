"""Bring the state store's tables up to date, safely from several processes at once.

The version table is our own, so the store may share a database with anything, Airflow's
metadata included (though that is not what it is for). A store that is up to date is recognised by
one query, and alembic is not even imported then. Else the migrations run under a lock of the
database: a named lock on MySQL and PostgreSQL, the write lock of the file on SQLite.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, String, select, table, text
from sqlalchemy import column as sql_column
from sqlalchemy.exc import OperationalError, ProgrammingError

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError, RetryableError
from airflow_cdc_provider.databases.engines import begin_writing
from airflow_cdc_provider.state.tables import VERSION_TABLE

HEAD = "0007"
"""The newest migration of this release."""
_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_NAME = "airflow_cdc_state_migration"
_LOCK_NUMBER = 5400_2306
_LOCK_TIMEOUT_S = 60


def bring_up_to_date(engine: Engine) -> None:
    """Create or migrate the state store's tables; refuse those of a newer release."""
    if is_up_to_date(engine):
        return
    with begin_writing(engine.connect()) as connection, _locked(connection):
        _upgrade(connection)


def is_up_to_date(engine: Engine) -> bool:
    """Tell whether the tables are of this release's version."""
    return stored_version(engine) == HEAD


def stored_version(engine: Engine) -> str | None:
    """Return the stored version of the tables, None if there are none."""
    versions = select(sql_column("version_num", String)).select_from(table(VERSION_TABLE))
    try:
        with engine.connect() as connection:
            return connection.execute(versions).scalar()
    except (OperationalError, ProgrammingError):
        return None  # no such table; a server that does not answer fails again in `_upgrade`


def _upgrade(connection: Connection) -> None:
    """Run alembic's migrations on a connection."""
    # alembic takes a quarter of a second to import, and almost no start needs it
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    # its lines at INFO would stand between a command's own, and on standard output under Airflow
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise RefusedError(
            f"the state store was written by a newer release: {error}",
            where="state",
            risk="an older release could misread what is remembered",
            remedy="upgrade airflow-provider-cdc, or use another state database",
        ) from error


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """Take a lock against other migrating processes, and commit at the end."""
    backend = connection.dialect.name
    if backend in {"mysql", "mariadb"}:
        taken = connection.execute(
            text("SELECT GET_LOCK(:name, :seconds)"),
            {"name": _LOCK_NAME, "seconds": _LOCK_TIMEOUT_S},
        ).scalar()
        if taken != 1:
            raise RetryableError(
                f"the state store's migration lock was not free for {_LOCK_TIMEOUT_S} s",
                where=f"state, lock {_LOCK_NAME}",
                risk=NOTHING_CHANGED,
                remedy="try again; SHOW PROCESSLIST shows who holds the lock",
            )
        connection.commit()
        try:
            yield
            connection.commit()
        finally:
            connection.rollback()
            connection.execute(text("DO RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
            connection.commit()
        return
    connection.begin()
    if backend == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK_NUMBER})
    yield
    connection.commit()
