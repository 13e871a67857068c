"""A sink table that another session locks holds the stream up, and that is told within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from airflow_cdc_provider.core.records import Outage
from airflow_cdc_provider.engine.stream import lock_watch
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.mysql.server import connection
from airflow_cdc_provider.views.outages import outage_text
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.pipeline.changed_sink_tables import continuous
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.servers.accounts import least_privileged, sink_account
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until


@contextmanager
def locked(shop: Shop, how: str) -> Iterator[int]:
    """Lock the sink's table from another session; returns its number."""
    with closing(shop.sink.connect(shop.target)) as other:
        cursor = other.cursor()
        cursor.execute(f"LOCK TABLES orders {how}")
        cursor.execute("SELECT CONNECTION_ID()")
        yield cursor.fetchone()[0]
        cursor.execute("UNLOCK TABLES")


def seen(run: Run) -> PipelineStatus:
    return status(run.store, run.name, now_us=run.store.now_us())


def outage(run: Run) -> Outage | None:
    found = seen(run).outages
    return found[0] if found else None


class Locks:
    """What is so at a sink of any family."""

    @pytest.mark.parametrize("how", ["READ", "WRITE"])
    def test_a_locked_table_is_told_as_what_holds_the_stream_up(
        self, shop: Shop, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        synced(shop)
        with continuous(shop) as (run, failures):
            with locked(shop, how) as session:
                shop.at_source("INSERT INTO orders (id) VALUES (9)")
                wait_until(lambda: outage(run) is not None, seconds=20)
                told = outage(run)
                assert told is not None
                assert told.error.code == "CDC-SNK-002"
                assert f"writes to {shop.target}.orders wait for" in told.error.what
                assert str(shop.sink.port) in told.error.where
                assert seen(run).summary == "streaming, held up"
                assert any("since" in line and "orders" in line for line in status_lines(seen(run)))
                (row,) = run.store.overviews([run.name], run.store.now_us())
                shown = list_row(str(run.name), row, run.store.now_us())
                assert "CDC-SNK-002" in {each.get("code") for each in shown["problems"]}
                assert f"writes to {shop.target}.orders wait for" in caplog.text
                self.assert_names(told, session)
            wait_until(lambda: at_sink(shop, "orders") == at_source(shop, "orders"))
            wait_until(lambda: outage(run) is None, seconds=20)
        assert not failures
        events = [event.text for event in run.store.events(run.name, 100)]
        assert len([text for text in events if text.startswith("over, after")]) == 1

    def assert_names(self, told: Outage, session: int) -> None:
        """Check that the session is named, where the account may see it."""


class TestAtMySql(Locks):
    def assert_names(self, told: Outage, session: int) -> None:
        assert f"session {session} of " in told.error.what

    def test_an_account_that_may_not_see_the_session_is_told_of_the_wait(self, shop: Shop) -> None:
        account = sink_account(shop.sink, shop.target)
        with least_privileged(account):
            shop.environment["DR_DSN"] = account.dsn
            synced(shop)
            with continuous(shop) as (run, _), locked(shop, "WRITE"):
                shop.at_source("INSERT INTO orders (id) VALUES (9)")
                wait_until(lambda: outage(run) is not None, seconds=20)
                told = outage(run)
                assert told is not None
                assert "orders wait for another session's lock" in told.error.what

    def test_a_wait_that_is_tried_again_is_one_outage_with_its_tries(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "_LOCK_WAIT_S", 6)
        monkeypatch.setattr(lock_watch, "_STILL_S", 1.0)
        synced(shop)
        with continuous(shop) as (run, failures):
            with locked(shop, "WRITE"):
                shop.at_source("INSERT INTO orders (id) VALUES (9)")
                wait_until(lambda: (found := outage(run)) is not None and found.tries >= 3)
                first = outage(run)
                assert first is not None
                assert "tried 3 times" in outage_text(first, run.store.now_us())
            wait_until(lambda: at_sink(shop, "orders") == at_source(shop, "orders"))
            wait_until(lambda: outage(run) is None, seconds=20)
        assert not failures
        events = [event.text for event in run.store.events(run.name, 100)]
        assert len([text for text in events if text.startswith("over, after")]) == 1


class TestAtMariaDb(Locks):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
