"""Tables whose definition changes while they are followed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import converging, start_jobs
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK

if TYPE_CHECKING:
    import pytest


def begin(shop: Shop, names: Sequence[str]) -> None:
    """Copy tables of these names, and one more."""
    shop.at_source("ALTER TABLE orders ADD COLUMN flag INT NOT NULL DEFAULT 0")
    shop.at_source("UPDATE orders SET flag = id")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO others VALUES (1)")
    for name in names:
        if name != "orders":
            shop.at_source(f"CREATE TABLE {name} LIKE orders")
            shop.at_source(f"INSERT INTO {name} SELECT * FROM orders")
    picked = [*names, "others"] if len(names) > 1 else ["o*"]
    tables = ", ".join(f'"{shop.database}.{name}"' for name in picked)
    text = shop.path.read_text()
    shop.path.write_text(text.replace(f'"{shop.database}.*"]', f"{tables}]", 1))
    catch_up(shop)


def change(shop: Shop, name: str, statements: Sequence[str]) -> None:
    with closing(shop.source.connect(database=shop.database)) as connection:
        connection.autocommit(True)
        for statement in statements:
            connection.cursor().execute(re.sub(r"\borders", name, statement))


def catch_up(shop: Shop) -> Run:
    run = shop.run()
    run_until_caught_up(run, SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs"))
    return run


def alter_before_reading(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have `orders` altered once a run has planned it; what is returned is empty then."""
    read, left = start_jobs.snapshot, ["ALTER TABLE orders ADD COLUMN more INT DEFAULT 7"]

    def altered_first(*given: Any, **named: Any) -> Any:
        if left:
            shop.at_source(left.pop())
            shop.at_source("INSERT INTO orders (id) VALUES (9)")
        return read(*given, **named)

    monkeypatch.setattr(converging, "snapshot", altered_first)
    return left


def columns_at_sink(shop: Shop) -> list[object]:
    return [row[0] for row in shop.sink_rows("SHOW COLUMNS FROM orders")]


def is_equal(shop: Shop, table: str) -> bool:
    columns = shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
    names = ", ".join(f"`{row[0]}`" for row in columns)
    query = f"SELECT {names} FROM {table} ORDER BY 1"
    return shop.sink_rows(query) == list(shop.source.execute(query, database=shop.database))
