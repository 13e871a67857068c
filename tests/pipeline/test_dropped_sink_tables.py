"""Tables that somebody drops at the sink come back one by one, and are told the same everywhere."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import CdcError, SinkTableChangedError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_requests import reset_some
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.status import status
from tests.pipeline.changed_sink_tables import continuous
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until

TABLES = ("orders", "others", "more")


@pytest.fixture
def kept(shop: Shop) -> Shop:
    """A pipeline of three tables that are copied."""
    for table in TABLES[1:]:
        shop.at_source(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        shop.at_source(f"INSERT INTO {table} VALUES (1)")
    synced(shop)
    return shop


def drop(shop: Shop, *tables: str) -> None:
    for table in tables:
        shop.sink.execute(f"DROP TABLE {table}", database=shop.target)


def begun_again(shop: Shop, table: str) -> Run:
    run = shop.run()
    text = reset_some(run, [TableId(shop.database, table)])
    give_back(run)
    assert f"{shop.database}.{table} begins again" in text
    return run


def phases(run: Run) -> dict[str, TablePhase]:
    return {state.table.table: state.phase for state in run.store.tables(run.name)}


def refused(shop: Shop) -> CdcError:
    """Return the error with which a run ends."""
    run = shop.run()
    with pytest.raises(CdcError) as found:
        run_until_caught_up(run, SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs"))
    give_back(run)
    return found.value


class Dropped:
    """What is so at a sink of any family."""

    def test_each_table_begins_again_alone_while_all_others_are_gone(self, kept: Shop) -> None:
        drop(kept, *TABLES)
        for table in TABLES:
            kept.at_source(f"INSERT INTO {table} (id) VALUES (9)")
        error = refused(kept)
        assert isinstance(error, SinkTableChangedError)
        for number, table in enumerate(TABLES, start=1):
            run = begun_again(kept, table)
            left = set(TABLES[number:])
            assert {each for each, phase in phases(run).items() if phase is TablePhase.FAILED} == (
                left
            )
            if left:
                assert isinstance(refused(kept), TablesStoppedError)
            else:
                synced(kept)
            assert at_sink(kept, table) == at_source(kept, table)
        assert set(phases(kept.run()).values()) == {TablePhase.CONSISTENT}

    def test_a_table_that_is_gone_is_told_the_same_while_it_streams_and_later(
        self, kept: Shop
    ) -> None:
        with continuous(kept) as (run, failures):
            drop(kept, "orders")
            kept.at_source("INSERT INTO orders (id) VALUES (9)")
            wait_until(lambda: phases(run)["orders"] is TablePhase.FAILED)
            kept.at_source("INSERT INTO others VALUES (9)")
            wait_until(lambda: at_sink(kept, "others") == at_source(kept, "others"))
            (told,) = [s.error.read() for s in run.store.tables(run.name) if s.error]
        assert not failures
        later = refused(kept)
        assert later.remedy.endswith(told.remedy)
        assert told.code in later.what
        drop(kept, "others", "more")
        again = refused(kept)
        others = f"--table {kept.database}.more --table {kept.database}.others"
        assert (told.code, again.code) == ("CDC-SNK-004", "CDC-SNK-004")
        assert again.remedy == told.remedy.replace(f"--table {kept.database}.orders", others)
        assert (told.risk, told.where) == (again.risk, again.where)


class TestAtMySql(Dropped):
    def test_a_table_whose_row_is_refused_keeps_no_other_from_its_reset(self, kept: Shop) -> None:
        kept.at_source("DROP TABLE more")
        synced(kept)
        kept.sink.execute(
            "ALTER TABLE others ADD CONSTRAINT small CHECK (id < 5)", database=kept.target
        )
        drop(kept, "orders")
        kept.at_source("INSERT INTO others VALUES (7)")
        run = begun_again(kept, "orders")
        assert phases(run)["others"] is TablePhase.FAILED
        with pytest.raises(TablesStoppedError, match="others"):
            synced(kept)
        assert at_sink(kept, "orders") == at_source(kept, "orders")

    def test_a_table_that_is_known_to_be_gone_is_not_consistent_in_the_picture(
        self, kept: Shop
    ) -> None:
        drop(kept, *TABLES)
        kept.at_source("INSERT INTO others VALUES (9)")
        refused(kept)
        run = kept.run()
        seen = status(run.store, run.name, now_us=run.store.now_us())
        assert "0/3 tables consistent" in progress_line(seen)
        assert not seen.is_consistent

    def test_a_reset_cancels_what_was_asked_of_the_rows_and_says_so_once(self, kept: Shop) -> None:
        drop(kept, "orders")
        kept.at_source("INSERT INTO orders (id) VALUES (9)")
        refused(kept)
        run = kept.run()
        (asked,) = run.store.requests(run.name, only_open=True)
        assert asked.kind is RequestKind.RESYNC
        give_back(run)
        begun_again(kept, "orders")
        synced(kept)
        run = kept.run()
        found = run.store.request(run.name, asked.request_id)
        assert found is not None
        assert found.status is RequestStatus.CANCELLED
        told = [e for e in run.store.events(run.name, 100) if asked.request_id in e.text]
        assert [e.level for e in told if "cancelled by the reset" in e.text] == ["info"]
        assert not [e for e in told if e.level == "error"]
        assert at_sink(kept, "orders") == at_source(kept, "orders")

    def test_a_request_of_more_tables_than_are_reset_is_not_cancelled(self, kept: Shop) -> None:
        run = kept.run()
        names = [f"{kept.database}.orders", f"{kept.database}.others"]
        asked = ask_resync(run, resync_scope(run, names))
        give_back(run)
        begun_again(kept, "orders")
        found = kept.run().store.request(run.name, asked.request_id)
        assert found is not None
        assert found.status is not RequestStatus.CANCELLED


class TestAtMariaDb(Dropped):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
