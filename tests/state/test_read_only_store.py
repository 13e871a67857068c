"""Looking at a store makes none, and what is not there reads as empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import StateUnreachableError
from airflow_cdc_provider.state.read_only_store import open_read_only
from airflow_cdc_provider.state.store import open_store
from tests.behaviours.state_behaviours import SHOP
from tests.servers.given import SqlServer


def test_looking_for_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    store = open_read_only(f"sqlite:///{tmp_path / 'state.db'}")
    assert store.pipeline(SHOP) is None
    assert (store.tables(SHOP), store.events(SHOP), store.origin(SHOP)) == ((), (), None)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_looking_at_a_server_makes_no_tables(
    mysql_server: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> None:
    database = fresh_database(mysql_server)
    open_read_only(mysql_server.dsn(database=database)).close()
    assert mysql_server.execute(f"SHOW TABLES FROM {database}") == []


def test_what_is_there_is_read(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path / 'state.db'}"
    store = open_store(dsn)
    store.take_over(SHOP, "me")
    store.close()
    seen = open_read_only(dsn)
    assert seen.ensure(SHOP).owner == "me"
    seen.close()


def test_the_store_that_stands_for_none_refuses_to_be_written(tmp_path: Path) -> None:
    store = open_read_only(f"sqlite:///{tmp_path / 'state.db'}")
    with pytest.raises(StateUnreachableError, match="readonly"):
        store.take_over(SHOP, "me")
    store.close()


def test_a_server_that_does_not_answer_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(StateUnreachableError):
        open_read_only("mysql://cdc:secret@127.0.0.1:1/state")
