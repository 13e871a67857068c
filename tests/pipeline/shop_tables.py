"""Tables of a shop that come and go, and their rows on both sides."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK


def synced(shop: Shop) -> Run:
    """Run everything that is to do, without a Spark."""
    run = shop.run()
    run_until_caught_up(run, SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs"))
    give_back(run)
    return run


def later(shop: Shop, name: str = "later") -> TableId:
    shop.at_source(f"CREATE TABLE {name} (id INT PRIMARY KEY, note VARCHAR(20), UNIQUE (note))")
    shop.at_source(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    return TableId(shop.database, name)


def at_sink(shop: Shop, table: str) -> list[tuple[object, ...]]:
    return shop.sink_rows(f"SELECT * FROM {table} ORDER BY id")


def at_source(shop: Shop, table: str) -> list[tuple[object, ...]]:
    query = f"SELECT * FROM {table} ORDER BY id"
    return list(shop.source.execute(query, database=shop.database))


def exclude(shop: Shop, table: TableId) -> None:
    text = shop.path.read_text()
    shop.path.write_text(text.replace("sink:", f'  exclude: ["{table}"]\nsink:', 1))
