"""Several tables of the source in one table of a lake, each with its own rows and columns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    RefusedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.engine.stream import schema_changes
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import (
    remove_tables,
    reset_tables,
)
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import FORMS, Lake

MADE = (
    "CREATE TABLE orders_1 (id INT PRIMARY KEY, note VARCHAR(20), n INT, d DECIMAL(8,2))",
    "CREATE TABLE orders_2 (id INT PRIMARY KEY, n INT, born DATE, note VARCHAR(40))",
    "CREATE TABLE orders_3 (id INT PRIMARY KEY, state ENUM('a', 'b'))",
    "CREATE TABLE others (id INT PRIMARY KEY)",
    "INSERT INTO orders_1 VALUES (1, 'one', 10, 1.5), (2, 'two', 20, NULL), (3, NULL, NULL, 3)",
    "INSERT INTO orders_2 VALUES (1, 5, NULL, 'x'), (2, NULL, '2001-02-03', 'y'), (4, 1, NULL, '')",
    "INSERT INTO orders_3 VALUES (1, 'a'), (2, 'b'), (9, NULL)",
    "INSERT INTO others VALUES (1)",
)
SHARED = """tables:
  "{source}.orders_*":
    shard: {{column: shop, value: table}}
"""


class Shards:
    """A pipeline whose tables `orders_*` are one in a lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.shop = lake, lake.shop

    @classmethod
    def of(cls, shop: Shop, form: str, more: str = "") -> Shards:
        """Turn a shop's file into one of such a pipeline; `more` is said of its tables."""
        shop.path.write_text(
            FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
        )
        lake = Lake.of(shop, form)
        text = shop.path.read_text().replace(
            "  commit_seconds: 1\n",
            f'  commit_seconds: 1\n  route: {{"{shop.database}.orders_*": '
            f'"{shop.database}.orders"}}\n',
        )
        policy = "schema_changes: {drop_column: apply, drop_table: apply}\n"
        shop.path.write_text(text + policy + SHARED.format(source=shop.database) + more)
        for statement in MADE:
            shop.at_source(statement)
        return cls(lake)

    def table(self, number: int) -> TableId:
        """Return the name of a shard."""
        return TableId(self.shop.database, f"orders_{number}")

    def do(self, *statements: str) -> None:
        """Run statements at the source, and catch up."""
        for statement in statements:
            self.shop.at_source(statement)
        self.lake.catch_up()

    def require_union(self, but: Sequence[str] = ()) -> list[str]:
        """Require that the lake has what a UNION ALL of the shards gives; return its columns."""
        found = [row for row in self.rows() if row["shop"] not in but]
        wanted = [row for row in self.wanted() if row["shop"] not in but]
        names = sorted({name for row in (*found, *wanted) for name in row})
        assert _texts(found, names) == _texts(wanted, names)
        orders = [n for n in self.lake.changes("orders").column("_order").to_pylist() if n >= 0]
        assert len({*orders}) == len(orders)
        return names

    def require_equal(self) -> None:
        """Require the union, and that our own comparison finds each table as it is."""
        self.require_union()
        report = self.lake.verified()
        assert {*self.tables()} <= {verdict.table.table for verdict in report.tables}
        assert report.equal, report

    def tables(self) -> list[str]:
        """Return the names of the shards that the source has."""
        found = self.shop.source.execute(
            "SHOW TABLES LIKE 'orders\\_%'", database=self.shop.database
        )
        return sorted(str(row[0]) for row in found)

    def wanted(self) -> list[dict[str, Any]]:
        """Return the source's rows, with the names of their tables."""
        rows = []
        for table in self.tables():
            names = [
                str(row[0])
                for row in self.shop.source.execute(
                    f"SHOW COLUMNS FROM {table}", database=self.shop.database
                )
            ]
            query = f"SELECT {', '.join(names)} FROM {table}"
            for row in self.shop.source.execute(query, database=self.shop.database):
                rows.append({"shop": table, **dict(zip(names, row, strict=True))})
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """Return the lake's current rows, by the query that `show` prints."""
        return self.lake.current_rows("orders")


def _texts(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(row.get(name)) for name in names) for row in rows)


@pytest.fixture(params=FORMS)
def shards(empty_shop: Shop, request: pytest.FixtureRequest) -> Shards:
    """Three tables that go to one of a lake, of each form, and one beside them."""
    return Shards.of(empty_shop, request.param)


def test_three_tables_are_one_and_each_change_of_one_leaves_the_others_rows(
    shards: Shards,
) -> None:
    assert not check(shards.shop.run()).blocks
    shards.do()
    assert shards.require_union() == ["born", "d", "id", "n", "note", "shop", "state"]
    shards.require_equal()
    shards.do(
        "DELETE FROM orders_1 WHERE id = 2",
        "UPDATE orders_2 SET id = 100, n = 7 WHERE id = 1",
        "INSERT INTO orders_2 VALUES (3, 3, NULL, 'three'), (2000, 4, NULL, NULL)",
        "UPDATE orders_3 SET state = NULL",
    )
    shards.require_equal()
    shards.do(
        "INSERT INTO orders_1 VALUES (50, 'before', 1, 1)",
        "TRUNCATE TABLE orders_2",
        "INSERT INTO orders_2 VALUES (3, 33, NULL, 'again')",
        "UPDATE orders_1 SET n = n + 1",
    )
    shards.require_equal()
    shards.do("TRUNCATE TABLE orders_3", "TRUNCATE TABLE orders_2", "DELETE FROM orders_1")
    assert shards.rows() == []
    shards.do("INSERT INTO orders_3 VALUES (1, 'b')", "INSERT INTO orders_1 (id) VALUES (1)")
    shards.require_equal()


def test_definitions_of_shards_change_one_by_one(shards: Shards) -> None:
    shards.do()
    shards.do("ALTER TABLE orders_1 ADD COLUMN mark INT", "INSERT INTO orders_1 (id) VALUES (5)")
    shards.do("ALTER TABLE orders_3 ADD COLUMN mark INT", "UPDATE orders_3 SET mark = id")
    shards.require_equal()
    shards.do("ALTER TABLE orders_2 ADD COLUMN rank_ INT NOT NULL DEFAULT 3")
    shards.require_equal()
    shards.do("ALTER TABLE orders_1 DROP COLUMN mark", "INSERT INTO orders_1 (id) VALUES (6)")
    shards.do("ALTER TABLE orders_1 DROP COLUMN note")
    reset_tables(shards.shop.run(), [shards.table(1)])
    shards.do()
    shards.require_equal()
    shards.do(
        "CREATE TABLE copy_of_3 (id INT PRIMARY KEY, state ENUM('a'), other INT)",
        "INSERT INTO copy_of_3 VALUES (1, 'a', 5), (77, NULL, 6)",
        "RENAME TABLE orders_3 TO old_3, copy_of_3 TO orders_3",
    )
    shards.require_equal()


def test_a_shard_comes_later_and_goes_without_the_others(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_changes, "COMES_BACK_S", 0.0)
    shards.do()
    shards.do(
        "CREATE TABLE orders_4 (id INT PRIMARY KEY, extra INT)",
        "INSERT INTO orders_4 VALUES (1, 11), (2, 22)",
    )
    shards.do("UPDATE orders_4 SET extra = 23 WHERE id = 2", "DELETE FROM orders_1 WHERE id = 1")
    shards.require_equal()
    shards.do("DROP TABLE orders_3", "INSERT INTO orders_1 (id) VALUES (70)")
    shards.require_equal()
    path = shards.shop.path
    path.write_text(
        path.read_text().replace("sink:", f"  exclude: [{shards.table(4)}]\nsink:", 1)
    )
    remove_tables(shards.shop.run(), [shards.table(4)])
    shards.do("UPDATE orders_1 SET n = 4")
    rows = shards.rows()
    assert sorted(row["id"] for row in rows if row["shop"] == "orders_4") == [1, 2]
    shards.require_union(but=["orders_4"])
    path.write_text(path.read_text().replace(f"{shards.table(4)}]", f"{shards.table(4)}, {shards.table(2)}]"))
    remove_tables(shards.shop.run(), [shards.table(2)], drop_targets=True)
    shards.do("UPDATE orders_1 SET n = 5")
    assert {row["shop"] for row in shards.rows()} == {"orders_1", "orders_4"}
    reset(shards.shop.run())
    shards.do()
    assert {row["shop"] for row in shards.rows()} == {"orders_1"}
    shards.require_union(but=["orders_2", "orders_4"])


def test_rows_of_one_shard_are_read_again_alone(shards: Shards) -> None:
    shards.do()
    shards.lake.unlogged(
        "UPDATE orders_1 SET note = 'other' WHERE id = 2",
        "DELETE FROM orders_1 WHERE id = 3",
        "INSERT INTO orders_1 (id) VALUES (12)",
        "DELETE FROM orders_2 WHERE id = 4",
    )
    report = shards.lake.verified()
    assert [verdict.equal for verdict in report.tables] == [False, False, True, True], report
    for number in (1, 2):
        run = shards.shop.run()
        request = ask_resync(run, resync_scope(run, [str(shards.table(number))]))
        shards.do("UPDATE orders_3 SET state = 'a'")
        assert known(run, request.request_id).status is RequestStatus.DONE
        shards.require_union(but=["orders_2"] if number == 1 else [])
    shards.require_equal()
    for numbers in ([2], [1, 2, 3]):
        reset_tables(shards.shop.run(), [shards.table(number) for number in numbers])
        shards.do("UPDATE orders_3 SET state = 'b'", "INSERT INTO orders_2 (id) VALUES (80)")
        shards.shop.at_source("DELETE FROM orders_2 WHERE id = 80")
        shards.do()
        shards.require_equal()
