"""The state store on PostgreSQL: the behaviours of every store, its migrations, and a pipeline."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import StateUnreachableError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.state import read_only_store
from airflow_cdc_provider.state.read_only_store import open_present, open_read_only
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.behaviours.request_behaviours import RequestStoreBehaviour
from tests.behaviours.sample_behaviours import SampleBehaviour
from tests.behaviours.state_behaviours import SHOP, StateStoreBehaviour
from tests.pipeline.conftest import Shop
from tests.pipeline.conftest import shop as shop  # the fixture
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.postgres import PostgresServer, SqlDatabase
from tests.state.migrations import ask_a_store_of_before, differences, migrate_by_one

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


@pytest.fixture
def dsn(postgres_server: SqlDatabase, postgres_database: str) -> str:
    return postgres_server.dsn(postgres_database)


@pytest.fixture
def store(dsn: str) -> Iterator[SqlStateStore]:
    opened = open_store(dsn)
    yield opened
    opened.close()


class TestPostgresStore(StateStoreBehaviour):
    """All behaviours, on PostgreSQL."""


class TestPostgresRequests(RequestStoreBehaviour):
    """All behaviours of requests, on PostgreSQL."""


class TestPostgresSamples(SampleBehaviour):
    """All behaviours of samples and overviews, on PostgreSQL."""


def test_the_migrations_make_exactly_our_tables(dsn: str) -> None:
    assert differences(dsn) == []


def test_a_store_of_an_older_release_is_migrated_and_keeps_its_rows(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_by_one(dsn, tmp_path, monkeypatch)


def test_a_store_of_before_requests_gets_them(dsn: str) -> None:
    ask_a_store_of_before(dsn)


def test_processes_that_open_a_new_store_at_once_migrate_it_once_and_take_over_in_turn(
    dsn: str,
) -> None:
    program = (
        "import sys; from airflow_cdc_provider.state.store import open_store;"
        "from airflow_cdc_provider.core.identifiers import PipelineName;"
        "print(open_store(sys.stdin.read()).take_over(PipelineName('shop'), 'x').generation)"
    )

    def run(_: int) -> str:
        return subprocess.check_output([sys.executable, "-c", program], input=dsn, text=True)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(map(int, pool.map(run, range(4)))) == [1, 2, 3, 4]


def test_looking_at_a_server_makes_no_tables(
    dsn: str, postgres_server: SqlDatabase, postgres_database: str
) -> None:
    open_read_only(dsn).close()
    assert postgres_server.execute(TABLES, postgres_database) == []


def test_a_connection_that_the_server_ended_is_made_again(
    store: SqlStateStore, postgres_server: SqlDatabase, postgres_database: str
) -> None:
    store.take_over(SHOP, "me")
    where = f"datname = '{postgres_database}' AND pid <> pg_backend_pid()"
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {where}"
    assert postgres_server.execute(ended) != []
    assert store.ensure(SHOP).owner == "me"


def test_a_server_that_is_not_there_may_come_back() -> None:
    with pytest.raises(StateUnreachableError) as caught:
        open_store("postgresql://cdc:planted-secret@127.0.0.1:1/state")
    assert "planted-secret" not in str(caught.value)


def test_an_account_that_is_refused_is_told(
    postgres_server: SqlDatabase, postgres_database: str, dsn: str
) -> None:
    there = dsn.rpartition("@")[2]
    with pytest.raises(StateUnreachableError, match="state store refused the account") as caught:
        open_store(f"postgresql://stranger:planted-secret@{there}")
    assert caught.value.where.startswith("state store ")
    assert postgres_database in caught.value.where
    assert "planted-secret" not in str(caught.value)


def test_a_pipeline_runs_to_its_consistent_point_with_its_state_there(shop: Shop, dsn: str) -> None:
    shop.path.write_text(shop.path.read_text() + "state:\n  dsn_env: STATE_DSN\n")
    shop.environment["STATE_DSN"] = dsn
    run_until_caught_up(shop.run(), SparkOptions(NO_SPARK))
    shop.at_source("UPDATE orders SET note = 'more' WHERE id = 3")
    run_until_caught_up(shop.run("another"), SparkOptions(NO_SPARK))
    asked = "SELECT * FROM orders ORDER BY id"
    assert shop.sink_rows(asked) == [(1, "one", 10), (2, "two", 20), (3, "more", 30)]
    with closing(open_read_only(dsn)) as seen:
        state = seen.pipeline(shop.run().name)
    assert state is not None
    assert state.phase is Phase.STOPPED  # a bounded run has caught up


def test_a_server_that_hangs_is_an_error_within_the_limit_and_used_again_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with PostgresServer() as server, closing(open_store(server.dsn())) as made:
        made.ensure(SHOP)
        monkeypatch.setattr(read_only_store, "LOOK_S", 2.0)
        with closing(open_present(server.dsn())) as store, server.hung():
            for _ in range(2):
                began_s = time.monotonic()
                with pytest.raises(StateUnreachableError, match="did not answer"):
                    store.pipeline(SHOP)
                assert time.monotonic() - began_s < 10
        assert made.pipeline(SHOP) is not None
