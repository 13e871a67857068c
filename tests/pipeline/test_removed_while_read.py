"""A table that goes in the first snapshot is left out, and the others keep what is read."""

from __future__ import annotations

import threading

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.in_process import OwnReader
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _snapshot_to_do
from airflow_cdc_provider.pipeline.steps.table_requests import remove
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, exclude, synced

QUICK = BackOff(first_s=0.1, longest_s=0.1, give_up_s=0.5)


@pytest.fixture
def planned(shop: Shop) -> Shop:
    """A pipeline of two tables that has a plan, and nothing is read."""
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO others VALUES (1)")
    run = shop.run()
    plan(run)
    give_back(run)
    return shop


def orders(shop: Shop) -> TableId:
    return TableId(shop.database, "orders")


def read(shop: Shop) -> None:
    """Read the tables, in this process, and do not hand off."""
    run = shop.run()
    spec = _snapshot_to_do(run)
    assert spec is not None
    try:
        run_snapshot(_job(run, spec, threading.Event()), OwnReader(), back_off=QUICK)
    finally:
        give_back(run)


def removed(shop: Shop, *, drop_targets: bool = False) -> str:
    run = shop.run()
    told = remove(run, [orders(shop)], drop_targets=drop_targets)
    give_back(run)
    return told


def splits(run: Run) -> set[str]:
    return {state.split.table.table for state in run.store.splits(run.name)}


def assert_left_out(shop: Shop) -> None:
    """Check that only the other table is copied, and that it was not read once more."""
    before = reports(shop)
    run = synced(shop)
    assert {state.table.table for state in run.store.tables(run.name)} == {"others"}
    assert splits(run) == {"others"}
    assert before
    assert reports(shop) == before
    shop.at_source("INSERT INTO others VALUES (2)")
    synced(shop)
    assert at_sink(shop, "others") == at_source(shop, "others")


def reports(shop: Shop) -> list[tuple[object, ...]]:
    """Return when each split of the table that stays was committed."""
    query = "SELECT number, report, committed_us FROM airflow_cdc.finished_split"
    return list(shop.sink.execute(f"{query} WHERE table_name = '{shop.database}.others'"))


def test_a_table_that_is_gone_at_the_source_is_left_out_alone(planned: Shop) -> None:
    planned.at_source("DROP TABLE orders")
    with pytest.raises(RefusedError, match=r"`remove` it with --table"):
        read(planned)
    exclude(planned, orders(planned))
    with pytest.raises(PipelineFileError, match=f"`remove` it with --table {orders(planned)}"):
        synced(planned)
    give_back(planned.run())
    assert "is not copied any more" in removed(planned)
    assert_left_out(planned)


@pytest.mark.parametrize("drop_targets", [False, True])
def test_what_was_read_of_it_is_no_part_of_the_hand_off(planned: Shop, drop_targets: bool) -> None:
    read(planned)
    planned.at_source("DROP TABLE orders")
    exclude(planned, orders(planned))
    assert "is not copied any more" in removed(planned, drop_targets=drop_targets)
    assert_left_out(planned)
    shown = {row[0] for row in planned.sink_rows("SHOW TABLES")}
    assert shown == ({"others"} if drop_targets else {"others", "orders"})


def test_one_that_the_file_still_picks_is_refused_at_once(planned: Shop) -> None:
    with pytest.raises(RefusedError, match="still picks"):
        removed(planned)
