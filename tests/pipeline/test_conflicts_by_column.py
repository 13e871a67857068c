"""Rows that both nodes of a pair change at once: the one with the greater value stays on both."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from tests.pipeline.pairs import Edge, MakePair, Pair, change_in_any_order, conflicts_of
from tests.servers.given import SqlServer

ROWS = 20
WAYS: list[tuple[str, str, list[tuple[str, str, int]], str]] = [
    (
        "UPDATE items SET v = 'one', version = 12 WHERE id = {n}",
        "UPDATE items SET v = 'two', version = 13 WHERE id = {n}",
        [("{n}", "two", 13)],
        "two",
    ),
    (
        "UPDATE items SET v = 'one', version = 12 WHERE id = {n}",
        "UPDATE items SET v = 'two', version = 12 WHERE id = {n}",
        [("{n}", "one", 12)],
        "one",
    ),
    (
        "DELETE FROM items WHERE id = {n}",
        "UPDATE items SET v = 'two', version = 11 WHERE id = {n}",
        [("{n}", "two", 11)],
        "two",
    ),
    (
        "UPDATE items SET v = 'one' WHERE id = {n}",
        "DELETE FROM items WHERE id = {n}",
        [],
        "two",
    ),
    (
        "INSERT INTO items VALUES ({new}, 'one', NULL)",
        "INSERT INTO items VALUES ({new}, 'two', -5)",
        [("{n}", "first", 10), ("{new}", "two", -5)],
        "two",
    ),
    (
        "UPDATE items SET id = {new} WHERE id = {n}",
        "UPDATE items SET v = 'two', version = 11 WHERE id = {n}",
        [("{n}", "two", 11), ("{new}", "first", 10)],
        "two",
    ),
]
"""What node one does, what node two does, which rows there are then, and whose change was kept."""


class ByColumn:
    @pytest.fixture
    def pair(
        self,
        mysql_server: SqlServer,
        mysql_sink: SqlServer,
        make_pair: MakePair,
    ) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner="one", column="version")
        made.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), version INT)")
        rows = ", ".join(f"({n}, 'first', 10)" for n in range(1, ROWS + 1))
        made.one.execute(f"INSERT INTO items VALUES {rows}")
        made.begin()
        assert made.is_equal
        return made

    def test_the_row_with_the_greater_value_stays_on_both_nodes(self, pair: Pair) -> None:
        """Each way has a row of its own, with key n, and a new key of its own: 100 n."""
        for n, (at_one, at_two, *_) in enumerate(WAYS, 1):
            for node, sql in ((pair.one, at_one), (pair.two, at_two)):
                node.execute(sql.format(n=n, new=100 * n))
        pair.catch_up()
        assert pair.is_equal
        for n, (at_one, at_two, left, kept) in enumerate(WAYS, 1):
            keys = f"({n}, {100 * n})"
            rows = pair.one.execute(f"SELECT * FROM items WHERE id IN {keys} ORDER BY id")
            expected = [(key.format(n=n, new=100 * n), *values) for key, *values in left]
            assert [(str(key), *values) for key, *values in rows] == expected, (at_one, at_two)
            for edge in (pair.there, pair.back):
                noted = ((json.loads(str(row[0]))["id"], row[1]) for row in conflicts_of(edge))
                assert {node for key, node in noted if key in {n, 100 * n}} == {kept}

    def test_each_row_of_a_batch_is_settled_for_itself(self, pair: Pair) -> None:
        pair.one.execute("UPDATE items SET v = 'one', version = 10 + id")
        pair.two.execute("UPDATE items SET v = 'two', version = 20")
        pair.catch_up()
        assert pair.is_equal
        values = pair.two.execute("SELECT v, COUNT(*), MIN(id) FROM items GROUP BY v ORDER BY v")
        assert values == [("one", ROWS - 9, 10), ("two", 9, 1)]
        for edge in (pair.there, pair.back):
            kept = {json.loads(str(row[0]))["id"]: row[1] for row in conflicts_of(edge)}
            assert kept == {n: "one" if n >= 10 else "two" for n in range(1, ROWS + 1)}

    def test_once_a_change_has_won_those_behind_it_do_whatever_their_value(
        self, pair: Pair
    ) -> None:
        """The way back sees all of them at once, and takes the greatest.

        Clocks are not asked: that of a session may be anywhere.
        """
        with closing(pair.two.server.connect(pair.two.database)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET SESSION timestamp = 2100000000")
            cursor.execute("UPDATE items SET v = 'two', version = 15 WHERE id = 1")
            connection.commit()
        pair.one.execute("UPDATE items SET v = 'wins', version = 17 WHERE id = 1")
        pair.there.catch_up()  # a process of its own, so what has won is read from the ledger
        pair.one.execute("UPDATE items SET v = 'falls', version = 13 WHERE id = 1")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT v, version FROM items WHERE id = 1") == [("falls", 13)]

    def test_any_changes_of_the_same_rows_end_equal(self, pair: Pair) -> None:
        change_in_any_order(pair, change)
        assert pair.is_equal
        # whatever came before, each node wins a row that nothing else has changed
        for key, versions in ((ROWS, (21, 22)), (ROWS - 1, (22, 21))):
            for node, version in zip((pair.one, pair.two), versions, strict=True):
                node.execute(f"UPDATE items SET version = {version} WHERE id = {key}")
        pair.catch_up()
        assert pair.is_equal
        for edge in (pair.there, pair.back):
            assert {row[1] for row in conflicts_of(edge)} == {"one", "two"}


def change(execute: Callable[[str], object], choose: random.Random, by: str) -> None:
    """Change one of a few rows in one of all ways; the column need not grow."""
    key, other, version = (choose.randrange(1, 8) for _ in range(3))
    text = f"'{by} {choose.randrange(1000)}'"
    execute(
        choose.choice(
            [
                f"REPLACE INTO items VALUES ({key}, {text}, {version})",
                f"UPDATE items SET v = {text}, version = {version} WHERE id = {key}",
                f"UPDATE items SET version = version + 1 WHERE id <= {key}",
                f"UPDATE items SET version = NULL WHERE id = {key}",
                f"DELETE FROM items WHERE id = {key}",
                f"UPDATE IGNORE items SET id = {other} WHERE id = {key}",
            ]
        )
    )


class TestMySqlToMySql(ByColumn):
    pass


class TestMySqlToMariaDb(ByColumn):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def with_rules(edge: Edge, rules: str) -> None:
    """Give an edge's file rules for tables."""
    text = edge.path.read_text()
    edge.path.write_text(text.replace("winner: one", f"winner: one, tables: {rules}"))


def test_tables_have_rules_of_their_own_and_the_column_may_be_a_time(
    mysql_server: SqlServer,
    mariadb_server: SqlServer,
    make_pair: MakePair,
) -> None:
    pair = make_pair(mysql_server, mariadb_server, winner="one", column="t")
    for edge in (pair.there, pair.back):
        name = edge.src.database
        rules = f"{name}.priced: {{policy: column, column: price}}, {name}.p*: {{policy: priority"
        with_rules(edge, f"{{{rules}, winner: two}}}}")
    for table in ("timed", "priced", "plain"):
        pair.one.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, price DECIMAL(40,3), "
            "t TIMESTAMP(6) NULL DEFAULT NULL)"
        )
        pair.one.execute(f"INSERT INTO {table} VALUES (1, 0, 1.5, NULL)")
    pair.begin()
    for node, late, high in ((pair.one, "2026-01-02", "9.5"), (pair.two, "2026-01-01", "10.5")):
        for table in ("timed", "priced", "plain"):
            v = 1 if node is pair.one else 2
            node.execute(
                f"UPDATE {table} SET v = {v}, price = {high}, t = '{late} 10:00:00.000001'"
            )
    pair.catch_up()
    assert pair.is_equal
    values = [pair.two.execute(f"SELECT v FROM {name}") for name in ("timed", "priced", "plain")]
    assert values == [[(1,)], [(2,)], [(2,)]]


@pytest.mark.parametrize(
    ("column", "rules", "what"),
    [
        ("version", "", "it has no column version"),
        ("v", "", "v is varchar"),
        ("n", "{x.y: {policy: priority}}", "x.y is none of the tables"),
    ],
)
def test_a_rule_that_does_not_fit_a_table_is_refused_before_anything_begins(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    make_pair: MakePair,
    column: str,
    rules: str,
    what: str,
) -> None:
    pair = make_pair(mysql_server, mysql_sink, winner="one", column=column)
    pair.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
    if rules:
        with_rules(pair.there, rules)
    with pytest.raises(RefusedError, match=what):
        pair.there.catch_up()
    assert pair.two.dump() == {}


@pytest.mark.parametrize("falls", ["UPDATE t SET k = 'X', version = 2", "delete and insert"])
def test_what_has_won_is_known_however_its_key_is_written(
    mariadb_server: SqlServer,
    mysql_server: SqlServer,
    make_pair: MakePair,
    falls: str,
) -> None:
    pair = make_pair(mariadb_server, mysql_server, winner="one", column="version")
    pair.one.execute(
        "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_unicode_ci PRIMARY KEY, version INT)"
    )
    pair.one.execute("INSERT INTO t VALUES ('x', 1)")
    pair.begin()
    pair.two.execute("UPDATE t SET version = 3")
    pair.one.execute("UPDATE t SET version = 5")
    pair.there.catch_up()
    if falls == "delete and insert":
        pair.one.execute("DELETE FROM t")
        pair.one.execute("INSERT INTO t VALUES ('X', 2)")
    else:
        pair.one.execute(falls)
    pair.catch_up()
    assert pair.is_equal
    assert pair.two.execute("SELECT k, version FROM t") == [("X", 2)]
