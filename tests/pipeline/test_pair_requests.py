"""Rows that are read again on an edge: what the sink's node has changed by itself stays."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.requests.reads import Read
from airflow_cdc_provider.engine.requests.resync import Resync
from airflow_cdc_provider.engine.sink.guarded_joins import JoinLook
from airflow_cdc_provider.engine.sink.port import JoinSink
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import range_requests
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.requests_both_ways import require_not_read_there
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.pairs import Edge, MakePair, Node, Pair, conflicts_of, edge_between
from tests.servers.given import SqlServer

TABLES = (
    "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), n INT, code INT UNIQUE)",
    "CREATE TABLE names (name VARCHAR(40) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
)
ROWS = 200


def quietly(node: Node, *statements: str) -> None:
    """Change rows without a word in the log: what a repair is for."""
    with closing(node.server.connect(node.database)) as connection, connection.cursor() as cursor:
        for statement in ("SET SESSION sql_log_bin = 0", *statements):
            cursor.execute(statement)


def read_again(edge: Edge, table: str, *, condition: str | None = None) -> Request:
    """Ask for a table's rows at the edge's sink, and have it done by a bounded run."""
    with edge.opened() as run:
        scope = resync_scope(run, [f"{edge.src.database}.{table}"], where=condition)
        asked = ask_resync(run, scope)
    edge.catch_up()
    with edge.opened() as run:
        return known(run, asked.request_id)


class PairRequests:
    @pytest.fixture
    def pair(self, mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner="one")
        for table in TABLES:
            made.one.execute(table)
        rows = ", ".join(f"({n}, 'first', 0, {1000 + n})" for n in range(1, ROWS + 1))
        made.one.execute(f"INSERT INTO items VALUES {rows}")
        names = ", ".join(f"('n{n}', 0)" for n in range(1, ROWS + 1))
        made.one.execute(f"INSERT INTO names VALUES {names}")
        made.begin()
        assert made.is_equal
        return made

    def test_rows_that_differ_are_the_sources_again_and_nothing_comes_back(
        self, pair: Pair
    ) -> None:
        quietly(
            pair.two,
            "UPDATE items SET v = 'drifted' WHERE id = 1",
            "DELETE FROM items WHERE id = 2",
            "INSERT INTO items VALUES (9001, 'drifted', 0, 9001)",
            "UPDATE items SET code = code + 100000 WHERE id IN (8, 9)",  # two rows that swap values
            "UPDATE items SET code = 1008 WHERE id = 9",
            "UPDATE items SET code = 1009 WHERE id = 8",
            "UPDATE names SET n = 5 WHERE name = 'n1'",
            "DELETE FROM names WHERE name = 'n2'",
            "INSERT INTO names VALUES ('other', 1)",
        )
        for table in ("items", "names"):
            done = read_again(pair.there, table)
            assert (done.status, done.rows, done.left) == (RequestStatus.DONE, ROWS, 0)
        assert pair.is_equal
        before = pair.one.dump()
        pair.catch_up()
        assert pair.one.dump() == pair.two.dump() == before
        assert not conflicts_of(pair.there)
        assert not conflicts_of(pair.back)

    def test_what_the_sinks_node_has_changed_stays_and_comes_to_the_source(
        self, pair: Pair
    ) -> None:
        quietly(pair.two, "UPDATE items SET v = 'drifted' WHERE id = 6")
        for change in (
            "UPDATE items SET v = 'by two' WHERE id = 3",
            "DELETE FROM items WHERE id = 4",
            "INSERT INTO items VALUES (9002, 'by two', 2, 9002)",
            "UPDATE items SET id = 9005 WHERE id = 5",
            "UPDATE items SET v = 'there' WHERE id = 7",
            "UPDATE items SET v = 'first' WHERE id = 7",  # and back again
            "UPDATE names SET n = 2 WHERE name = 'N1'",
            "UPDATE names SET name = 'N2' WHERE name = 'n2'",  # another spelling of the same key
            "DELETE FROM names WHERE name = 'n3'",
            "INSERT INTO names VALUES ('n9000', 2)",
        ):
            pair.two.execute(change)
        expected = pair.two.dump()
        items = pair.two.execute("SELECT * FROM items ORDER BY id")
        expected["items"] = [(6, "first", 0, 1006) if row[0] == 6 else row for row in items]
        found = [read_again(pair.there, table) for table in ("items", "names")]
        assert [each.left for each in found] == [5, 4]
        assert pair.two.dump() == expected
        pair.catch_up()
        assert pair.one.dump() == pair.two.dump() == expected
        again = [read_again(pair.there, table) for table in ("items", "names")]
        assert [each.left for each in again] == [0, 0]
        assert pair.is_equal

    def test_keys_that_the_source_spells_anew_meanwhile_are_there_as_it_spells_them(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        join, changes = (
            Resync._join,
            [
                "DELETE FROM names WHERE name = 'n1'",
                "INSERT INTO names VALUES ('N1', 1)",
                "UPDATE names SET name = 'N2' WHERE name = 'n2'",
                "UPDATE names SET n = 9 WHERE name = 'n4'",
                "DELETE FROM names WHERE name = 'n5'",
                "INSERT INTO names VALUES ('last', 1)",
            ],
        )

        def later(self: Resync, sink: JoinSink, schema: TableSchema, read: Read) -> None:
            while changes:
                pair.one.execute(changes.pop(0))
            while not pair.two.execute("SELECT 1 FROM names WHERE name = 'last'"):
                time.sleep(0.05)
            join(self, sink, schema, read)

        monkeypatch.setattr(Resync, "_join", later)
        assert read_again(pair.there, "names").status is RequestStatus.DONE
        assert pair.is_equal
        assert pair.two.execute("SELECT COUNT(*) FROM names") == [(ROWS,)]

    def test_a_row_that_is_changed_while_it_joins_stays_as_it_was_changed(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quietly(pair.two, "UPDATE items SET v = 'drifted' WHERE id IN (7, 8)")
        looked, late = JoinLook.without_theirs, ["UPDATE items SET v = 'late' WHERE id = 7"]

        def look(self: JoinLook, wanted: MergedChanges) -> tuple[MergedChanges, int]:
            found = looked(self, wanted)
            while late:
                pair.two.execute(late.pop())
            return found

        monkeypatch.setattr(JoinLook, "without_theirs", look)
        assert read_again(pair.there, "items").left == 1
        rows = "SELECT id, v FROM items WHERE id IN (7, 8) ORDER BY id"
        assert pair.two.execute(rows) == [(7, "late"), (8, "first")]
        pair.catch_up()
        assert pair.one.execute(rows) == [(7, "late"), (8, "first")]
        assert pair.is_equal

    def test_rows_read_again_undo_nothing_while_both_nodes_write(self, pair: Pair) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        load = Load()
        for number, node in enumerate((pair.one, pair.two)):
            load.begin(Writer(node, random.Random(seed + number), number).write)
            load.begin(Watcher(node).watch)
        for edge, table in ((pair.there, "items"), (pair.back, "names")):
            load.begin(partial(read_table_again, edge, table))
        load.end_after(5)
        pair.catch_up()
        assert pair.is_equal


class Load:
    """Threads that do something again and again until one of them fails, or for a while."""

    def __init__(self) -> None:
        self._ends, self._errors = threading.Event(), list[BaseException]()
        self._threads: list[threading.Thread] = []

    def begin(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, act: Callable[[], None]) -> None:
        try:
            while not self._ends.is_set():
                act()
        except BaseException as error:  # noqa: BLE001 - of any kind, and raised by `end_after`
            self._errors.append(error)
            self._ends.set()

    def end_after(self, seconds: float) -> None:
        self._ends.wait(seconds)
        self._ends.set()
        for thread in self._threads:
            thread.join(60)
        for error in self._errors:
            raise error


@dataclass
class Writer:
    """Counts rows up that only its node writes, and changes some that both write."""

    node: Node
    choose: random.Random
    own: int
    """0 or 1: the rows with even or odd keys."""

    def write(self) -> None:
        row = 2 * self.choose.randrange(1, ROWS // 4) + self.own
        self.node.execute(f"UPDATE items SET n = n + 1 WHERE id = {row}")
        self.node.execute(f"UPDATE names SET n = n + 1 WHERE name = 'n{row}'")
        shared = ROWS - self.choose.randrange(20)
        self.node.execute(f"UPDATE items SET v = '{self.node.name}' WHERE id = {shared}")


@dataclass
class Watcher:
    """Sees to it that no count of a node goes back."""

    node: Node
    seen: dict[object, int] = field(default_factory=dict)

    def watch(self) -> None:
        for table, key in (("items", "id"), ("names", "name")):
            for row, count in self.node.execute(f"SELECT {key}, n FROM {table}"):
                assert isinstance(count, int)
                assert count >= self.seen.get(row, 0), f"{self.node.name}: {row} went back"
                self.seen[row] = count


def read_table_again(edge: Edge, table: str) -> None:
    assert read_again(edge, table).status is RequestStatus.DONE


class TestMySqlToMySql(PairRequests):
    """Between two MySQL servers."""


class TestMySqlToMariaDb(PairRequests):
    """Between a MySQL server and a MariaDB server."""

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_a_condition_reads_again_what_it_chooses_but_for_the_sinks_own_changes(
        self, pair: Pair
    ) -> None:
        quietly(
            pair.two,
            "UPDATE items SET v = 'drifted' WHERE id IN (6, 150)",
            "UPDATE items SET n = 50 WHERE id = 7",
        )
        pair.two.execute("UPDATE items SET v = 'by two' WHERE id = 8")
        done = read_again(pair.there, "items", condition="id < 100")
        assert (done.status, done.left) == (RequestStatus.DONE, 1)
        rows = "SELECT id, v, n FROM items WHERE id IN (6, 7, 8, 150) ORDER BY id"
        assert pair.two.execute(rows) == [
            (6, "first", 0),
            (7, "first", 0),
            (8, "by two", 0),
            (150, "drifted", 0),
        ]

    def test_what_only_one_way_pipelines_do_fails_whoever_has_stored_it(self, pair: Pair) -> None:
        table = TableId(pair.one.database, "items")
        kinds = (RequestKind.RESET, RequestKind.FOLLOW)
        with pair.there.opened() as run:
            for kind in kinds:
                asked = Request(run.name, kind.value, kind, Scope((table,)), "the page", 1)
                run.store.ask(asked)
        pair.one.execute("INSERT INTO items VALUES (9100, 'meanwhile', 0, 9100)")
        pair.catch_up()
        assert pair.is_equal
        with pair.there.opened() as run:
            for kind in kinds:
                failed = known(run, kind.value)
                assert failed.status is RequestStatus.FAILED, kind
                assert "an edge" in str(failed.error)
            assert run.store.requests(run.name, only_open=True) == ()

    def test_a_table_is_read_again_on_one_edge_at_a_time(self, pair: Pair) -> None:
        with pair.there.opened() as run, pair.back.opened() as back:
            asked = ask_resync(run, resync_scope(run, [f"{pair.one.database}.items"]))
            scope = resync_scope(back, [f"{pair.two.database}.items"])
            with pytest.raises(RefusedError, match=f"items again: request {asked.request_id}"):
                ask_resync(back, scope)
            ask_resync(back, resync_scope(back, [f"{pair.two.database}.names"]))
        pair.catch_up()
        with pair.back.opened() as back:
            assert ask_resync(back, scope).status is RequestStatus.ASKED

    def test_of_requests_that_come_at_the_same_moment_none_stays(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = Scope((TableId(pair.two.database, "items"),))
        theirs = Request(PipelineName("other"), "theirs", RequestKind.RESYNC, other, "a", 1)
        looks = 0

        def look(run: Run, planned: Sequence[TablePlan]) -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                with pair.back.opened() as back:
                    back.store.ask(replace(theirs, pipeline=back.name))
                require_not_read_there(run, planned)

        monkeypatch.setattr(range_requests, "require_not_read_there", look)
        with pair.there.opened() as run:
            scope = resync_scope(run, [f"{pair.one.database}.items"])
            with pytest.raises(RefusedError, match="items again: request theirs"):
                ask_resync(run, scope)
            assert [each.status for each in run.store.requests(run.name)] == [
                RequestStatus.CANCELLED
            ]

    def test_a_repair_reads_again_the_rows_that_verify_finds(self, pair: Pair) -> None:
        quietly(
            pair.two,
            "UPDATE items SET v = 'drifted' WHERE id = 6",
            "DELETE FROM names WHERE name = 'n7'",
            "INSERT INTO names VALUES ('more', 0)",
        )
        for expected in ([True, True], []):
            with pair.there.opened() as run:
                found = repairs(run, verify(run, settle_s=5))
                assert [bool(each.rows) for each in found] == expected
                ask_repairs(run, found)
            pair.there.catch_up()
        assert pair.is_equal


def test_the_middle_of_a_star_takes_no_rows_again_and_its_leaves_do(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    mariadb_server: SqlServer,
    make_pair: MakePair,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> None:
    pair = make_pair(mysql_server, mysql_sink, winner="one")
    pair.one.execute(TABLES[0])
    pair.one.execute("INSERT INTO items VALUES (1, 'first', 0, 1), (2, 'first', 0, 2)")
    pair.begin()
    third, topology = Node("three", mariadb_server, fresh_database(mariadb_server)), "t_"
    topology += pair.one.database
    there = edge_between(pair.one, third, tmp_path, topology, winner="one")
    back = edge_between(third, pair.one, tmp_path, topology, winner="one")
    there.catch_up()
    back.seed_from(there)
    quietly(third, "UPDATE items SET v = 'drifted' WHERE id = 1")
    assert read_again(there, "items").status is RequestStatus.DONE
    with back.opened() as run:
        scope = Scope((TableId(third.database, "items"),))
        with pytest.raises(RefusedError, match=f"other nodes, too: {topology}_two_one writes"):
            resync_scope(run, [str(table) for table in scope.tables])
        with pytest.raises(RefusedError, match=f"other nodes, too: {topology}_two_one writes"):
            ask_resync(run, scope)
    for edge in (there, back, pair.there, pair.back):
        edge.catch_up()
    assert third.dump() == pair.one.dump() == pair.two.dump()
