"""Rows that both nodes of a pair change at once: the winner's change stays, on both nodes."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable

import pytest

from airflow_cdc_provider.cli.main import main
from airflow_cdc_provider.core.errors import RowRefusedError, SinkTableChangedError
from airflow_cdc_provider.engine.sink.selection import TableBatch
from airflow_cdc_provider.systems.mysql.sink.slot_store import MySqlSlotStore
from tests.pipeline.pairs import MakePair, Pair, change_in_any_order, conflicts_of
from tests.servers.given import SqlServer

ROWS = 50
WAYS: list[tuple[str, str, list[tuple[str, int]]]] = [
    ("DELETE FROM items WHERE id = {n}", "UPDATE items SET n = 7 WHERE id = {n}", []),
    ("UPDATE items SET n = 7 WHERE id = {n}", "DELETE FROM items WHERE id = {n}", [("{n}", 7)]),
    ("DELETE FROM items WHERE id = {n}", "DELETE FROM items WHERE id = {n}", []),
    (
        "INSERT INTO items VALUES ({new}, 'one', 1)",
        "INSERT INTO items VALUES ({new}, 'two', 2)",
        [("{n}", 0), ("{new}", 1)],
    ),
    (
        "UPDATE items SET n = 5 WHERE id = {n}",
        "UPDATE items SET id = {new} WHERE id = {n}",
        [("{n}", 5), ("{new}", 0)],
    ),
    (
        "UPDATE items SET id = {new} WHERE id = {n}",
        "UPDATE items SET n = 5 WHERE id = {n}",
        [("{new}", 0)],
    ),
    (
        "UPDATE items SET id = {new} WHERE id = {n}",
        "UPDATE items SET id = {other} WHERE id = {n}",
        [("{new}", 0), ("{other}", 0)],
    ),
]
"""What node one does, what node two does, and which rows there are then, with their `n`."""


def at_first_write(
    patched: pytest.MonkeyPatch, around: Callable[[Callable[[], None]], None]
) -> None:
    """Have the first write of a batch's rows done by `around`, which is given it."""
    write, done = MySqlSlotStore.write, threading.Event()

    def first(store: MySqlSlotStore, work: TableBatch) -> None:
        if done.is_set():
            write(store, work)
        else:
            done.set()
            around(lambda: write(store, work))

    patched.setattr(MySqlSlotStore, "write", first)


class Conflicts:
    @pytest.fixture
    def pair(
        self,
        mysql_server: SqlServer,
        mysql_sink: SqlServer,
        make_pair: MakePair,
    ) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner="one")
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

    def test_each_way_to_change_one_row_twice_ends_as_the_winner_has_it(self, pair: Pair) -> None:
        """Each way has a row of its own, with key n, and new keys of its own: 100 n and on."""
        for n, (at_one, at_two, _) in enumerate(WAYS, 1):
            for node, sql in ((pair.one, at_one), (pair.two, at_two)):
                node.execute(sql.format(n=n, new=100 * n, other=100 * n + 1))
        pair.catch_up()
        assert pair.is_equal
        for n, (at_one, at_two, left) in enumerate(WAYS, 1):
            rows = pair.one.execute(
                f"SELECT id, n FROM items WHERE id = {n} OR id DIV 100 = {n} ORDER BY id"
            )
            expected = [(key.format(n=n, new=100 * n, other=100 * n + 1), v) for key, v in left]
            assert [(str(key), v) for key, v in rows] == expected, (at_one, at_two)
        for edge in (pair.there, pair.back):
            keys = {json.loads(str(row[0]))["id"] for row in conflicts_of(edge)}
            of_ways = {key // 100 or key for key in keys}
            assert of_ways == set(range(1, len(WAYS) + 1))

    def test_changed_and_changed_back_is_a_change(self, pair: Pair) -> None:
        pair.one.execute("UPDATE items SET n = 1 WHERE id = 1")
        pair.one.execute("UPDATE items SET n = 0 WHERE id = 1")
        pair.two.execute("UPDATE items SET n = 9 WHERE id = 1")
        pair.catch_up()
        assert pair.one.execute("SELECT n FROM items WHERE id = 1") == [(0,)]
        assert pair.is_equal

    def test_a_column_that_both_nodes_add_is_followed(self, pair: Pair) -> None:
        pair.two.execute("UPDATE items SET v = 'before' WHERE id = 1")
        for node in (pair.one, pair.two):
            node.execute("ALTER TABLE items ADD COLUMN note VARCHAR(20)")
        pair.one.execute("UPDATE items SET note = 'one' WHERE id <= 3")
        pair.two.execute("UPDATE items SET note = 'two' WHERE id BETWEEN 3 AND 5")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT id, note FROM items WHERE id BETWEEN 2 AND 4") == [
            (2, "one"),
            (3, "one"),
            (4, "two"),
        ]

    def test_a_change_that_comes_before_the_edge_has_the_rows_lock_is_seen(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def change_first(write: Callable[[], None]) -> None:
            pair.one.execute("UPDATE items SET v = 'by one' WHERE id = 1")
            write()

        pair.two.execute("UPDATE items SET v = 'by two' WHERE id = 1")
        with monkeypatch.context() as patched:
            at_first_write(patched, change_first)
            pair.back.catch_up()
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT v FROM items WHERE id = 1") == [("by one",)]

    def test_a_deleted_key_cannot_come_between_the_edges_delete_and_its_commit(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the winner's node would leave the new row out, and the loser's would keep it."""
        insert = threading.Thread(
            target=pair.two.execute, args=("INSERT INTO items VALUES (1, 'new', 1)",)
        )

        def insert_behind(write: Callable[[], None]) -> None:
            write()
            insert.start()
            insert.join(1.0)

        for node in (pair.one, pair.two):
            node.execute("DELETE FROM items WHERE id = 1")
        with monkeypatch.context() as patched:
            at_first_write(patched, insert_behind)
            pair.there.catch_up()
        insert.join(30)
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT v FROM items WHERE id = 1") == [("new",)]

    def test_a_trigger_that_is_made_while_an_edge_writes_changes_no_row(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def with_trigger(write: Callable[[], None]) -> None:
            pair.two.execute(
                "CREATE TRIGGER own BEFORE UPDATE ON items FOR EACH ROW SET NEW.v = 'x'"
            )
            write()

        pair.one.execute("UPDATE items SET n = 1 WHERE id = 1")
        with monkeypatch.context() as patched:
            at_first_write(patched, with_trigger)
            with pytest.raises(SinkTableChangedError, match=r"items: it has a trigger own"):
                pair.there.catch_up()
        assert pair.two.execute("SELECT v, n FROM items WHERE id = 1") == [("first", 0)]
        pair.two.execute("DROP TRIGGER own")
        pair.catch_up()
        assert pair.is_equal
        assert pair.two.execute("SELECT v, n FROM items WHERE id = 1") == [("first", 1)]

    def test_a_transaction_in_parts_is_settled_part_by_part(self, pair: Pair) -> None:
        for edge in (pair.there, pair.back):
            edge.path.write_text(edge.path.read_text() + "stream: {max_batch: {changes: 10}}\n")
        pair.one.execute("UPDATE items SET v = 'by one' WHERE id IN (5, 45)")
        pair.two.execute("UPDATE items SET v = 'by two'")
        pair.one.execute("UPDATE items SET v = 'by one' WHERE id = 25")
        pair.catch_up()
        assert pair.is_equal
        rows = pair.one.execute("SELECT id FROM items WHERE v = 'by one' ORDER BY id")
        assert rows == [(5,), (25,), (45,)]

    def test_conflicts_are_listed_and_counted(
        self, pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pair.one.execute("UPDATE items SET n = 1 WHERE id <= 3")
        pair.two.execute("UPDATE items SET n = 2 WHERE id <= 3")
        pair.catch_up()
        for name, value in pair.there.environment.items():
            monkeypatch.setenv(name, value)
        file = str(pair.there.path)
        assert main(["conflicts", file, "--most", "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert 'items {"id": 2}: one wins' in lines[1]
        assert lines[2].startswith("  at the source: updated (")
        assert lines[-2] == "2 of 3"
        assert "items: one won 3 conflicts of 3 rows, last 20" in lines[-1]
        assert main(["conflicts", file, "--most", "1", "--values"]) == 0
        shown = capsys.readouterr().out.splitlines()
        before, after = (f'{{"id": 3, "v": "first", "n": {n}}}' for n in (0, 2))
        assert f"  at the sink: {before} -> {after} (" in shown[3]
        assert main(["conflicts", file, "--json"]) == 0
        form = json.loads(capsys.readouterr().out)
        (first, *_), (table,) = form["conflicts"], form["tables"]
        assert (table["kept"], table["conflicts"], table["rows"]) == ("one", 3, 3)
        assert (first["key"], first["kept"], first["sink"]["did"]) == ({"id": 1}, "one", "updated")
        assert "after" not in first["sink"]
        assert main(["conflicts", file, "--since", "2999-01-01"]) == 0
        assert "0 of 3" in capsys.readouterr().out
        assert main(["conflicts", file, "--since", "yesterday"]) == 2
        assert main(["status", file]) == 0
        assert "3 conflicts were settled" in capsys.readouterr().out

    def test_any_changes_of_the_same_rows_end_equal(self, pair: Pair) -> None:
        change_in_any_order(pair, change)
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


def test_a_unique_value_of_two_rows_ends_both_edges_until_one_gives_it_up(
    mysql_server: SqlServer,
    mariadb_server: SqlServer,
    make_pair: MakePair,
) -> None:
    pair = make_pair(mysql_server, mariadb_server, winner="two")
    pair.one.execute("CREATE TABLE codes (id INT PRIMARY KEY, code INT UNIQUE)")
    pair.one.execute("INSERT INTO codes VALUES (1, 1), (2, 2)")
    pair.begin()
    pair.one.execute("INSERT INTO codes VALUES (3, 30)")
    pair.two.execute("INSERT INTO codes VALUES (4, 30)")
    for edge in (pair.there, pair.back):
        with pytest.raises(RowRefusedError, match="30"):
            edge.catch_up()
    pair.two.execute("UPDATE codes SET code = 40 WHERE id = 4")
    pair.catch_up()
    assert pair.is_equal
    assert pair.one.execute("SELECT * FROM codes WHERE id > 2") == [(3, 30), (4, 40)]


TEXT_KEYS = [
    ("utf8mb4_general_ci", "\U0001f600", "\U0001f60e"),
    ("utf8mb4_unicode_ci", "c\u0153ur", "COEUR"),
    ("utf8mb4_unicode_520_ci", "J\u00f8rgen", "Jorgen"),
    ("utf8mb4_general_ci", "ma\u00df", "mas "),
    ("latin1_swedish_ci", "M\u00fcller", "Myller"),
    ("utf8mb4_bin", "a", "a "),
]
"""Collations, and two ways to write one key by each."""


@pytest.mark.parametrize("winner", ["one", "two"])
def test_keys_that_a_collation_takes_for_one_are_one_row_however_they_are_written(
    mariadb_server: SqlServer,
    mysql_server: SqlServer,
    make_pair: MakePair,
    winner: str,
) -> None:
    pair = make_pair(mariadb_server, mysql_server, winner=winner)
    for number, (collation, *_) in enumerate(TEXT_KEYS):
        charset = collation.split("_")[0]
        pair.one.execute(
            f"CREATE TABLE t{number} (k VARCHAR(20) CHARACTER SET {charset} COLLATE {collation} "
            "PRIMARY KEY, v VARCHAR(10))"
        )
        pair.one.execute(f"INSERT INTO t{number} VALUES ('was', 'first'), ('gone', 'first')")
    pair.begin()
    for number, (_, *texts) in enumerate(TEXT_KEYS):
        one, other = (f"_utf8mb4 x'{text.encode().hex()}'" for text in texts)
        pair.one.execute(f"INSERT INTO t{number} VALUES ({one}, 'one')")
        pair.two.execute(f"INSERT INTO t{number} VALUES ({other}, 'two')")
        pair.one.execute(f"UPDATE t{number} SET k = 'was ', v = 'one' WHERE k = 'was'")
        pair.two.execute(f"DELETE FROM t{number} WHERE k IN ('was', 'gone')")
        pair.one.execute(f"UPDATE t{number} SET k = 'gone ' WHERE k = 'gone'")
    pair.catch_up()
    assert pair.is_equal
    for number in range(len(TEXT_KEYS)):
        values = sorted(pair.one.execute(f"SELECT v FROM t{number}"))
        assert values == ([("first",), ("one",), ("one",)] if winner == "one" else [("two",)])
    assert len(conflicts_of(pair.there)) == 3 * len(TEXT_KEYS)


def test_keys_that_a_collation_tells_apart_are_no_conflict(
    mariadb_server: SqlServer,
    mysql_server: SqlServer,
    make_pair: MakePair,
) -> None:
    pair = make_pair(mariadb_server, mysql_server, winner="one")
    pair.one.execute("CREATE TABLE t (k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v INT)")
    pair.one.execute("INSERT INTO t VALUES ('a', 1)")
    pair.begin()
    pair.one.execute("UPDATE t SET v = 2 WHERE k = 'a'")
    pair.two.execute("INSERT INTO t VALUES ('A', 3), ('\u00e1', 4)")
    pair.catch_up()
    assert pair.is_equal
    assert pair.one.execute("SELECT v FROM t ORDER BY v") == [(2,), (3,), (4,)]
    assert conflicts_of(pair.there) == []
