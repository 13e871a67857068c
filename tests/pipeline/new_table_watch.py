"""What several tests need of `test_new_table_watch`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from tests.pipeline.conftest import Shop


def of_another_engine(shop: Shop) -> None:
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY) ENGINE=MyISAM")


def with_rows_at_the_sink(shop: Shop) -> None:
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("CREATE TABLE later (id INT PRIMARY KEY)")
        connection.cursor().execute("INSERT INTO later VALUES (1)")
        connection.commit()


def with_another_definition_at_the_sink(shop: Shop) -> None:
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, n INT)")
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("CREATE TABLE later (id VARCHAR(9) PRIMARY KEY)")


WRONG: list[Callable[[Shop], None]] = [
    of_another_engine,
    with_rows_at_the_sink,
    with_another_definition_at_the_sink,
]
