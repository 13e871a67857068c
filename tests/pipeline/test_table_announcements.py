"""Others are told of each table once it is consistent, then of those that changed, and no other."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.table_announcements import store_announced, table_news
from tests.pipeline.conftest import Shop
from tests.pipeline.table_announcements import caught_up
from tests.pipeline.test_nothing_to_stream import shop
from tests.pipeline.without_spark import handed_off

__all__ = ["shop"]


def news_of(run: Run, told_by: str) -> dict[str, int | None]:
    return {each.table.table: each.changes for each in table_news(run, told_by)}


def test_a_table_is_news_when_it_is_consistent_and_then_when_its_rows_change(shop: Shop) -> None:
    shop.at_source("CREATE TABLE customers (id INT PRIMARY KEY)")
    run = handed_off(shop)
    caught_up(shop, run)
    assert news_of(run, "monday") == {"orders": None, "customers": None}
    store_announced(run, table_news(run, "monday"), "monday")
    assert news_of(run, "monday") == {"orders": None, "customers": None}  # a try of the same
    assert news_of(run, "tuesday") == {}

    shop.at_source("UPDATE orders SET note = 'new' WHERE id < 3")
    caught_up(shop, run)
    (told,) = table_news(run, "tuesday")
    assert (told.table.table, told.changes) == ("orders", 2)
    assert told.sink_table.database == shop.target
    stream = run.store.stream(run.name)
    assert stream is not None
    assert told.position == stream.position
    store_announced(run, [told], "tuesday")
    assert news_of(run, "wednesday") == {}


def test_a_table_that_is_read_anew_is_news_though_its_count_began_anew(shop: Shop) -> None:
    run = handed_off(shop)
    shop.at_source("UPDATE orders SET note = 'new'")
    caught_up(shop, run)
    (told,) = table_news(run, "monday")
    assert told.total == 3
    store_announced(run, [told], "monday")
    mine = f"pipeline = '{run.name}'"
    shop.sink.execute(f"UPDATE airflow_cdc.changed_table SET changes = 1 WHERE {mine}")
    assert news_of(run, "tuesday") == {"orders": None}


def test_before_the_hand_off_nothing_is_news(shop: Shop, tmp_path: Path) -> None:
    assert table_news(shop.run(), "monday") == ()
