"""Rows that both nodes of a pair change at once, and whose conflict is left to a person."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import TablesStoppedError, UndecidedConflictError
from tests.pipeline.pairs import STOP, Edge, MakePair, Pair, conflicts_of, with_winner
from tests.servers.given import SqlServer

ROWS = 20


def stop_for_all(pair: Pair) -> None:
    """Have an error of one table end both edges for all tables."""
    for edge in (pair.there, pair.back):
        with edge.path.open("a") as file:
            file.write("stream: {table_errors: stop}\n")


def ended(edge: Edge) -> UndecidedConflictError:
    """Have an edge catch up, and return the conflict that it ends with."""
    with pytest.raises(UndecidedConflictError) as raised:
        edge.catch_up()
    return raised.value


class Undecided:
    @pytest.fixture
    def pair(self, mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner=STOP)
        stop_for_all(made)
        for table in ("items", "others"):
            made.one.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))")
            rows = ", ".join(f"({n}, 'first')" for n in range(1, ROWS + 1))
            made.one.execute(f"INSERT INTO {table} VALUES {rows}")
        made.begin()
        assert made.is_equal
        return made

    @pytest.mark.parametrize("winner", ["one", "two"])
    def test_both_edges_stop_before_it_until_a_rule_decides(self, pair: Pair, winner: str) -> None:
        pair.one.execute("UPDATE items SET v = 'no conflict' WHERE id = 10")
        pair.two.execute("UPDATE items SET v = 'no conflict' WHERE id = 11")
        pair.catch_up()
        pair.two.execute("UPDATE items SET v = 'known' WHERE id = 10")
        pair.catch_up()
        assert pair.is_equal
        # its other rows are not written either: a transaction is all or nothing
        with closing(pair.one.server.connect(pair.one.database)) as session:
            with session.cursor() as cursor:
                session.begin()
                cursor.execute("UPDATE items SET v = 'by one' WHERE id <= 3")
                cursor.execute("UPDATE others SET v = 'beside' WHERE id = 2")
            session.commit()
        pair.two.execute("UPDATE items SET v = 'by two' WHERE id BETWEEN 3 AND 8")
        by_one, by_two = pair.one.dump()["items"], pair.two.dump()["items"]
        ended(pair.there)
        there, back = ended(pair.there), ended(pair.back)  # and again, at each try
        assert there.tables == (f"{pair.one.database}.items",)
        assert back.tables == (f"{pair.two.database}.items",)
        for error in (there, back):
            assert error.what.count('{"id": ') == 1
            assert '{"id": 3}, by ' in error.what
        assert "by one at" in there.what
        assert "by two at" in there.what
        assert (pair.one.dump()["items"], pair.two.dump()["items"]) == (by_one, by_two)
        assert pair.two.execute("SELECT v FROM others WHERE id = 2") == [("first",)]
        assert conflicts_of(pair.there) == conflicts_of(pair.back) == []
        pair.one.execute("UPDATE items SET v = 'by one, later' WHERE id = 3")
        pair.two.execute("DELETE FROM items WHERE id = 8")
        with_winner(pair, winner)
        pair.catch_up()
        assert pair.is_equal
        left = "by one, later" if winner == "one" else "by two"
        assert pair.one.execute("SELECT v FROM items WHERE id = 3") == [(left,)]
        assert pair.two.execute("SELECT COUNT(*) FROM items WHERE v = 'by one'") == [(2,)]
        assert pair.two.execute("SELECT v FROM others WHERE id = 2") == [("beside",)]

    def test_any_changes_end_equal_once_each_conflict_is_decided(self, pair: Pair) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        choose = random.Random(seed)
        for number in range(12):
            for node in choose.sample([pair.one, pair.two], 2):
                key, v = choose.randrange(1, ROWS + 4), f"'{node.name} {number}'"
                statements = (
                    f"REPLACE INTO items VALUES ({key}, {v})",
                    f"UPDATE items SET v = {v} WHERE id BETWEEN {key} AND {key + 2}",
                    f"DELETE FROM items WHERE id = {key}",
                    f"UPDATE IGNORE items SET id = {choose.randrange(1, ROWS)} WHERE id = {key}",
                )
                node.execute(choose.choice(statements))
            for edge in choose.sample([pair.there, pair.back], choose.randrange(3)):
                try:
                    edge.catch_up()
                except UndecidedConflictError as error:
                    print(f"round {number}: {error.what}")
        with_winner(pair, "one")
        pair.catch_up()
        assert pair.is_equal


class TestMySql(Undecided):
    """Both nodes are MySQL."""


class TestMySqlToMariaDb(Undecided):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def test_one_table_may_stop_while_another_ones_conflicts_are_settled(
    mysql_server: SqlServer, mariadb_server: SqlServer, make_pair: MakePair
) -> None:
    pair = make_pair(mariadb_server, mysql_server, winner="one")
    for edge in (pair.there, pair.back):
        text = edge.path.read_text()
        rule = f"winner: one, tables: {{{edge.src.database}.accounts: {{policy: stop}}}}"
        edge.path.write_text(text.replace("winner: one", rule))
    for table in ("items", "accounts"):
        pair.one.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))")
        pair.one.execute(f"INSERT INTO {table} VALUES (1, 'first'), (2, 'first')")
    pair.begin()
    for node in (pair.one, pair.two):
        node.execute(f"UPDATE items SET v = 'by {node.name}' WHERE id = 1")
    pair.catch_up()
    assert pair.is_equal
    assert len(conflicts_of(pair.there)) == len(conflicts_of(pair.back)) == 1
    for node in (pair.one, pair.two):
        node.execute(f"DELETE FROM accounts WHERE id = {1 if node is pair.one else 2}")
    pair.catch_up()
    assert pair.is_equal
    for node in (pair.one, pair.two):
        node.execute(f"INSERT INTO accounts VALUES (7, 'by {node.name}')")
    for edge in (pair.there, pair.back):
        with pytest.raises(TablesStoppedError, match=r'accounts: CDC-INT-011 .*"id": 7'):
            edge.catch_up()
