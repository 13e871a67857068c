"""What several tests need of `test_migrations`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.state import migrate
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE, metadata
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import SHOP

if TYPE_CHECKING:
    import pytest


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    engine = open_engine(dsn)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def differences(dsn: str) -> list[object]:
    open_store(dsn).close()
    with connected(dsn) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return list(compare_metadata(context, metadata))


MADE_UP = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9998", "{before}"


def upgrade() -> None:
    op.add_column("cdc_plan", sa.Column("made_up", sa.Integer, server_default="7"))
"""


def migrate_by_one(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a release with one more migration open a store of this one."""
    open_store(dsn).close()
    with connected(dsn) as connection, connection.begin():
        connection.execute(text("INSERT INTO cdc_plan VALUES ('shop', '{}', '[]')"))
    later = tmp_path / "migrations"
    shutil.copytree(migrate._MIGRATIONS, later)
    (later / "versions" / "9998_made_up.py").write_text(MADE_UP.format(before=migrate.HEAD))
    monkeypatch.setattr(migrate, "_MIGRATIONS", later)
    monkeypatch.setattr(migrate, "HEAD", "9998")
    for _ in range(2):
        open_store(dsn).close()
    with connected(dsn) as connection:
        rows = connection.execute(text("SELECT pipeline, made_up FROM cdc_plan")).all()
        (version,) = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars()
    assert ([tuple(row) for row in rows], version) == ([("shop", 7)], "9998")


def ask_a_store_of_before(dsn: str) -> None:
    """Bring a store of the first release up to date, which has a pipeline with a plan."""
    config = Config()
    config.set_main_option("script_location", str(migrate._MIGRATIONS))
    with connected(dsn) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        pipeline = "('shop', 'run', 'streaming', 7, 'plan-1', 'me', 0, '', 5)"
        connection.execute(text(f"INSERT INTO cdc_pipeline VALUES {pipeline}"))
        connection.execute(text("INSERT INTO cdc_plan VALUES ('shop', '{}', '[]')"))
        assert not inspect(connection).has_table("cdc_request")
        connection.commit()
    store = open_store(dsn)
    asked = store.ask(request_of())
    assert (store.requests(SHOP), store.ensure(SHOP).generation) == ((asked,), 7)
    store.start_plan(SHOP, 7, "plan-2", [])
    assert store.requests(SHOP, only_open=True) == ()
    store.close()
