"""Rows that both nodes of a pair change at once: the winner's change stays, on both nodes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.pairs import Edge, Pair, pair_of
from tests.servers.given import SqlServer

ROWS = 50


def conflicts_of(edge: Edge) -> list[tuple[object, ...]]:
    """Return the rows that an edge has stored of its conflicts."""
    with edge.opened() as run:
        name = str(run.name)
    return edge.dst.server.execute(
        "SELECT row_key, kept, source_change, sink_change FROM airflow_cdc.conflict "
        f"WHERE pipeline = '{name}' ORDER BY number"
    )


class Conflicts:
    @pytest.fixture
    def pair(
        self,
        mysql_server: SqlServer,
        mysql_sink: SqlServer,
        fresh_database: Callable[[SqlServer], str],
        tmp_path: Path,
    ) -> Pair:
        made = pair_of(mysql_server, mysql_sink, fresh_database, tmp_path, winner="one")
        made.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), n INT)")
        rows = ", ".join(f"({n}, 'first', 0)" for n in range(1, ROWS + 1))
        made.one.execute(f"INSERT INTO items VALUES {rows}")
        made.begin()
        assert made.is_equal
        return made

    def test_the_winners_change_of_a_row_stays_on_both_nodes(self, pair: Pair) -> None:
        pair.one.execute("UPDATE items SET v = 'by one' WHERE id <= 10")
        pair.two.execute("UPDATE items SET v = 'by two' WHERE id BETWEEN 6 AND 20")
        pair.catch_up()
        assert pair.is_equal
        values = set(pair.one.execute("SELECT v, COUNT(*) FROM items GROUP BY v"))
        assert values == {("by one", 10), ("by two", 10), ("first", 30)}
        for edge in (pair.there, pair.back):
            found = conflicts_of(edge)
            assert [json.loads(str(row[0])) for row in found] == [{"id": n} for n in range(6, 11)]
            assert {row[1] for row in found} == {"one"}
        source, sink = (json.loads(str(text)) for text in conflicts_of(pair.there)[0][2:])
        assert source["after"] == {"id": 6, "v": "by one", "n": 0}
        assert sink == {
            "before": {"id": 6, "v": "first", "n": 0},
            "after": {"id": 6, "v": "by two", "n": 0},
        }

    def test_a_change_that_knew_the_others_is_no_conflict(self, pair: Pair) -> None:
        pair.two.execute("UPDATE items SET v = 'by two' WHERE id = 1")
        pair.back.catch_up()
        pair.one.execute("UPDATE items SET n = n + 1 WHERE id = 1")
        pair.catch_up()
        pair.two.execute("UPDATE items SET n = n + 1 WHERE id = 1")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT v, n FROM items WHERE id = 1") == [("by two", 2)]
        assert conflicts_of(pair.there) == conflicts_of(pair.back) == []

    def test_any_changes_of_the_same_rows_end_equal(self, pair: Pair) -> None:
        seed_of_test = random.randrange(1 << 30)
        print(f"seed {seed_of_test}")
        choose = random.Random(seed_of_test)
        for _ in range(25):
            for node in choose.sample([pair.one, pair.two], 2):
                for _ in range(choose.randrange(4)):
                    change(node.execute, choose, node.name)
            for edge in choose.sample([pair.there, pair.back], choose.randrange(3)):
                edge.catch_up()
        pair.catch_up()
        assert pair.is_equal
        assert conflicts_of(pair.there), "nothing was in conflict"


def change(execute: Callable[[str], object], choose: random.Random, by: str) -> None:
    """Change one of a few rows in one of all ways."""
    key, other = choose.randrange(1, 8), choose.randrange(1, 8)
    sql = choose.choice(
        [
            f"REPLACE INTO items VALUES ({key}, '{by} {choose.randrange(1000)}', 1)",
            f"UPDATE items SET v = '{by} {choose.randrange(1000)}' WHERE id = {key}",
            f"UPDATE items SET n = n + 1 WHERE id <= {key}",
            f"DELETE FROM items WHERE id = {key}",
            f"UPDATE IGNORE items SET id = {other} WHERE id = {key}",
        ]
    )
    execute(sql)


class TestMySqlToMySql(Conflicts):
    pass


class TestMySqlToMariaDb(Conflicts):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
