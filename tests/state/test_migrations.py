"""The migrations lead to the tables that the code uses, on a new store and on one of old."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.state import migrate
from airflow_cdc_provider.state.dsn import open_engine
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE, metadata
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import SHOP
from tests.servers.given import SqlServer


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


def test_on_sqlite_the_migrations_make_exactly_our_tables(tmp_path: Path) -> None:
    assert differences(f"sqlite:///{tmp_path / 'state.db'}") == []


def test_on_mysql_the_migrations_make_exactly_our_tables(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    assert differences(mysql_server.dsn(database=mysql_database)) == []


def test_the_head_is_the_newest_script() -> None:
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert scripts.get_current_head() == migrate.HEAD


MADE_UP = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9998", "{before}"


def upgrade() -> None:
    op.add_column("cdc_plan", sa.Column("made_up", sa.Integer, server_default="7"))
"""


def test_on_sqlite_a_store_of_an_older_release_is_migrated_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_by_one(f"sqlite:///{tmp_path / 'state.db'}", tmp_path, monkeypatch)


def test_on_mysql_a_store_of_an_older_release_is_migrated_and_keeps_its_rows(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_by_one(mysql_server.dsn(database=mysql_database), tmp_path, monkeypatch)


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


def test_on_sqlite_a_store_of_before_requests_gets_them(tmp_path: Path) -> None:
    ask_a_store_of_before(f"sqlite:///{tmp_path / 'state.db'}")


def test_on_mysql_a_store_of_before_requests_gets_them(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    ask_a_store_of_before(mysql_server.dsn(database=mysql_database))


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


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path / 'state.db'}"
    open_store(dsn).close()
    with connected(dsn) as connection, connection.begin():
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(RefusedError, match="newer release"):
        open_store(dsn)
