"""A pair of databases with one table alone: no other one flows while its definition changes.

A narrower type stops it as it stops one of several: rows of before may have been converted.
"""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import TablesStoppedError
from tests.pipeline.pairs import MakePair, Pair
from tests.servers.given import SqlServer

SAME = (
    "MODIFY code BIGINT",
    "MODIFY note VARCHAR(80)",
    "ADD COLUMN more INT",
    "ADD COLUMN often INT NOT NULL DEFAULT 7 FIRST",
    "DROP COLUMN note",
    "RENAME COLUMN note TO remark",
    "ADD UNIQUE KEY (code)",
)


class OneTable:
    winner = ""

    @pytest.fixture
    def pair(self, mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner=self.winner)
        made.one.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)")
        made.one.execute("INSERT INTO orders VALUES (1, 'first', 1), (2, 'first', 2)")
        made.begin()
        return made

    @pytest.mark.parametrize("change", SAME)
    def test_the_same_change_at_both_nodes_is_passed(self, pair: Pair, change: str) -> None:
        for node in (pair.one, pair.two):
            node.execute(f"ALTER TABLE orders {change}")
        pair.one.execute("UPDATE orders SET code = 11 WHERE id = 1")
        pair.two.execute("UPDATE orders SET code = 22 WHERE id = 2")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT code FROM orders ORDER BY id") == [(11,), (22,)]

    def test_a_new_column_with_another_default_at_each_node_stops_the_table(
        self, pair: Pair
    ) -> None:
        for node, value in ((pair.one, "'7'"), (pair.two, "7")):
            node.execute(f"ALTER TABLE orders ADD COLUMN alike INT NOT NULL DEFAULT {value}")
        pair.catch_up()
        assert pair.is_equal
        for node, value in ((pair.one, "8"), (pair.two, "9")):
            node.execute(f"ALTER TABLE orders ADD COLUMN often INT NOT NULL DEFAULT {value}")
        for edge in (pair.there, pair.back):
            with pytest.raises(TablesStoppedError, match="often has another default at the other"):
                edge.catch_up()


class TestOneTable(OneTable):
    """MySQL and MySQL."""


class TestOneTableWithConflicts(OneTable):
    """MySQL and MySQL, with changes of one row at both nodes settled."""

    winner = "one"
