"""The migrations lead to the tables that the code uses, on a new store and on one of old."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.state import migrate
from airflow_cdc_provider.state.dsn import open_engine
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE, metadata
from tests.servers.given import SqlServer


def differences(dsn: str) -> list[object]:
    open_store(dsn).close()
    with open_engine(dsn).connect() as connection:
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


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path / 'state.db'}"
    open_store(dsn).close()
    with open_engine(dsn).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(RefusedError, match="newer release"):
        open_store(dsn)
