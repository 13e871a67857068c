"""One table of an edge with conflicts stops, the others flow on, and both nodes end equal."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from airflow_cdc_provider.core.errors import RefusedError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.pairs import STOP, Edge, MakePair, Pair, conflicts_of, with_winner
from tests.servers.given import SqlServer

TABLES = ("items", "others")
ROWS = 20


def made(pair: Pair) -> Pair:
    for table in TABLES:
        pair.one.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))")
        rows = ", ".join(f"({n}, 'first')" for n in range(1, ROWS + 1))
        pair.one.execute(f"INSERT INTO {table} VALUES {rows}")
    pair.begin()
    return pair


def name_of(edge: Edge) -> str:
    with edge.opened() as run:
        return str(run.name)


def pause(edge: Edge, table: str) -> None:
    with edge.opened() as run:
        pause_tables(run, [TableId(edge.src.database, table)])


def resume(edge: Edge, table: str) -> None:
    with edge.opened() as run:
        resume_tables(run, [TableId(edge.src.database, table)])


def stands_still(edge: Edge) -> str:
    """Have an edge catch up, and return the error of the table that stands still."""
    with pytest.raises(TablesStoppedError) as raised:
        edge.catch_up()
    return raised.value.what


def change(pair: Pair, choose: random.Random, number: int) -> None:
    """Change some rows at one of the nodes."""
    node = choose.choice([pair.one, pair.two])
    table, key = choose.choice(TABLES), choose.randrange(1, ROWS + 4)
    value = f"'{node.name} {number}'"
    statements = (
        f"REPLACE INTO {table} VALUES ({key}, {value})",
        f"UPDATE {table} SET v = {value} WHERE id BETWEEN {key} AND {key + 2}",
        f"DELETE FROM {table} WHERE id = {key}",
    )
    node.execute(choose.choice(statements))


class TestTablesStop:
    @pytest.fixture
    def pair(self, mysql_server: SqlServer, mariadb_server: SqlServer, make_pair: MakePair) -> Pair:
        return made(make_pair(mysql_server, mariadb_server, winner="one"))

    def test_a_table_that_stands_still_there_hides_nothing_from_the_edge_back(
        self, pair: Pair
    ) -> None:
        pause(pair.there, "items")
        pair.one.execute("UPDATE items SET v = 'by one' WHERE id <= 3")
        pair.one.execute("UPDATE others SET v = 'by one' WHERE id <= 3")
        pair.there.catch_up()
        assert pair.two.execute("SELECT COUNT(*) FROM others WHERE v = 'by one'") == [(3,)]
        assert pair.two.execute("SELECT COUNT(*) FROM items WHERE v = 'by one'") == [(0,)]
        pair.two.execute("UPDATE others SET v = 'knows' WHERE id = 1")
        pair.two.execute("UPDATE items SET v = 'does not know' WHERE id = 1")
        pair.two.execute("UPDATE items SET v = 'no conflict' WHERE id = 9")
        pair.back.catch_up()
        assert pair.one.execute("SELECT v FROM others WHERE id = 1") == [("knows",)]
        assert pair.one.execute("SELECT v FROM items WHERE id = 1") == [("by one",)]
        assert pair.one.execute("SELECT v FROM items WHERE id = 9") == [("no conflict",)]
        with pair.back.opened() as run:
            report = verify(run)
        assert [str(each) for each in report.stopped] == [f"{pair.two.database}.items"]
        resume(pair.there, "items")
        pair.catch_up()
        pair.two.execute("UPDATE items SET v = 'knows' WHERE id = 2")
        pair.catch_up()
        assert pair.is_equal
        for edge in (pair.there, pair.back):
            assert [json.loads(str(row[0])) for row in conflicts_of(edge)] == [{"id": 1}]
        its_row = f"airflow_cdc.stream WHERE pipeline = '{name_of(pair.there)}'"
        pair.two.server.execute(
            "INSERT INTO airflow_cdc.stream (pipeline, slot, position, split, edge) "
            f"SELECT 'another', 0, '', '', edge FROM {its_row}"
        )
        with pytest.raises(RefusedError, match="pipeline another is the edge from one to two"):
            pair.there.catch_up()

    def test_tables_stop_and_come_back_on_both_edges_in_any_order(self, pair: Pair) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        choose = random.Random(seed)
        for number in range(10):
            for each in range(choose.randrange(5)):
                change(pair, choose, 10 * number + each)
            for edge in choose.sample([pair.there, pair.back], choose.randrange(3)):
                asks = choose.choice([pause, pause, resume, None])
                if asks is not None:
                    with suppress(RefusedError):  # it is so already
                        asks(edge, choose.choice(TABLES))
                with suppress(TablesStoppedError):
                    edge.catch_up()
        for edge in (pair.there, pair.back):
            for table in TABLES:
                with suppress(RefusedError):
                    resume(edge, table)
        pair.catch_up()
        assert pair.is_equal


def test_a_conflict_that_a_person_decides_stops_its_table_on_both_edges_and_no_other(
    mysql_server: SqlServer, mariadb_server: SqlServer, make_pair: MakePair
) -> None:
    pair = made(make_pair(mariadb_server, mysql_server, winner=STOP))
    for node in (pair.one, pair.two):
        node.execute(f"UPDATE items SET v = 'by {node.name}' WHERE id = 3")
    for edge in (pair.there, pair.back):
        told = stands_still(edge)
        assert told == stands_still(edge)  # and again, at each try
        assert '{"id": 3}, by one at' in told or '{"id": 3}, by two at' in told
        with edge.opened() as run:
            phases = {each.table.table: each.phase for each in run.store.tables(run.name)}
        assert phases == {"items": TablePhase.FAILED, "others": TablePhase.CONSISTENT}
    for node in (pair.one, pair.two):
        node.execute(
            f"UPDATE others SET v = 'by {node.name}' WHERE id = {1 if node is pair.one else 2}"
        )
        node.execute(f"UPDATE items SET v = 'later' WHERE id = {10 if node is pair.one else 11}")
    pair.one.execute("UPDATE others SET v = 'flows' WHERE id = 7")
    pair.two.execute("UPDATE others SET v = 'flows back' WHERE id = 8")
    stands_still(pair.there)
    stands_still(pair.back)
    assert pair.two.execute("SELECT v FROM others WHERE id = 7") == [("flows",)]
    assert pair.one.execute("SELECT v FROM others WHERE id = 8") == [("flows back",)]
    with_winner(pair, "two")
    pair.catch_up()
    assert pair.is_equal
    assert pair.one.execute("SELECT v FROM items WHERE id = 3") == [("by two",)]
    assert pair.one.execute("SELECT COUNT(*) FROM items WHERE v = 'later'") == [(2,)]
