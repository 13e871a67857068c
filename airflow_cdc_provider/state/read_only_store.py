"""Looking at a store that may not be there yet, without making it.

A first `check` or `status` would otherwise leave a file, or tables in someone's database, for a
pipeline that was never run. What is not there reads as empty, from a store in memory that has the
tables and refuses every write.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, StaticPool, create_engine, inspect

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.databases.patience import ANSWER_S, LOOK_S
from airflow_cdc_provider.state.database_errors import explained
from airflow_cdc_provider.state.migrate import HEAD, stored_version
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE, metadata

NO_STORE = "there is no state store yet"


def open_read_only(dsn: str) -> SqlStateStore:
    """Open the store to read it; where none exists, return an empty one."""
    return open_store(dsn, LOOK_S) if store_exists(dsn, LOOK_S) else empty_store()


def empty_store() -> SqlStateStore:
    """Return an empty, read-only store in memory."""
    return SqlStateStore(_nothing())


def open_present(dsn: str) -> SqlStateStore:
    """Open an existing store of this release's version, without creating or migrating it.

    For readers of other people's pipelines: a new release must not change the tables under runs of
    the old one.
    """
    if not store_exists(dsn, LOOK_S):
        raise RefusedError(
            NO_STORE,
            where="state",
            risk=NOTHING_CHANGED,
            remedy="`run` the pipeline: its first run makes it",
        )
    engine = open_engine(dsn, LOOK_S)
    found = stored_version(engine)
    if found != HEAD:
        engine.dispose()
        raise RefusedError(
            f"the state store has the tables of another release: {found}, not {HEAD}",
            where="state",
            risk=NOTHING_CHANGED,
            remedy="`run` the pipeline with this release, which brings them up to date; of a newer "
            "one, upgrade airflow-provider-cdc where the page is served",
        )
    return SqlStateStore(engine)


def store_exists(dsn: str, answer_s: float = ANSWER_S) -> bool:
    """Tell whether a state store exists, without creating it; a server must answer."""
    engine = open_engine(dsn, answer_s)
    try:
        # to connect to a file of SQLite is to make it
        if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists():
            return False
        with explained(engine):
            return inspect(engine).has_table(VERSION_TABLE)
    finally:
        engine.dispose()


def _nothing() -> Engine:
    """Create an engine of an empty, read-only SQLite database in memory."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    metadata.create_all(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    return engine
