"""The migrations lead to the tables that the code uses, on a new store and on one of old."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.state import migrate
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE
from tests.servers.given import SqlServer
from tests.state.migrations import (
    ask_a_store_of_before,
    connected,
    differences,
    migrate_by_one,
)


def test_on_sqlite_the_migrations_make_exactly_our_tables(tmp_path: Path) -> None:
    assert differences(f"sqlite:///{tmp_path / 'state.db'}") == []


def test_on_mysql_the_migrations_make_exactly_our_tables(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    assert differences(mysql_server.dsn(database=mysql_database)) == []


def test_the_head_is_the_newest_script() -> None:
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert scripts.get_current_head() == migrate.HEAD


def test_on_sqlite_a_store_of_an_older_release_is_migrated_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_by_one(f"sqlite:///{tmp_path / 'state.db'}", tmp_path, monkeypatch)


def test_on_mysql_a_store_of_an_older_release_is_migrated_and_keeps_its_rows(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_by_one(mysql_server.dsn(database=mysql_database), tmp_path, monkeypatch)


def test_on_sqlite_a_store_of_before_requests_gets_them(tmp_path: Path) -> None:
    ask_a_store_of_before(f"sqlite:///{tmp_path / 'state.db'}")


def test_on_mysql_a_store_of_before_requests_gets_them(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    ask_a_store_of_before(mysql_server.dsn(database=mysql_database))


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path / 'state.db'}"
    open_store(dsn).close()
    with connected(dsn) as connection, connection.begin():
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(RefusedError, match="newer release"):
        open_store(dsn)
