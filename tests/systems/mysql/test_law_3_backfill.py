"""Law 3: after backfill a split is its table at H.

Statements run on another connection at the moments around the watermarks. The split must then be
what the server had when H was taken, whichever of them the read itself has seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition, own
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.splits import (
    MOMENTS,
    Hooks,
    numbered,
    reader_of,
    runs,
    schema_of,
    selected,
    split_of,
    tuples,
)

START, END = 10, 20

Rows = list[tuple[Any, ...]]
Action = Callable[[], None]


@pytest.fixture
def table(mysql_server: SqlServer, mysql_database: str) -> TableId:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v VARCHAR(40))")
    mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES {numbered(range(5, 25))}")
    return TableId(mysql_database, "t")


STATEMENTS = {
    "a row is inserted": ("DELETE FROM t WHERE id = 12", "INSERT INTO t VALUES (12, 'new')"),
    "a row is updated": ("UPDATE t SET v = 'new' WHERE id = 13",),
    "a row is deleted": ("DELETE FROM t WHERE id = 14",),
    "a key moves out": ("UPDATE t SET id = 105 WHERE id = 15",),
    "a key moves in": ("DELETE FROM t WHERE id = 16", "UPDATE t SET id = 16 WHERE id = 7"),
    "a key moves within": ("DELETE FROM t WHERE id = 17", "UPDATE t SET id = 17 WHERE id = 18"),
    "two rows swap keys": (
        "UPDATE t SET id = 99 WHERE id = 11",
        "UPDATE t SET id = 11 WHERE id = 12",
        "UPDATE t SET id = 12 WHERE id = 99",
    ),
    "a row comes and goes": (
        "DELETE FROM t WHERE id = 10",
        "INSERT INTO t VALUES (10, 'short')",
        "DELETE FROM t WHERE id = 10",
    ),
    "a row is replaced": ("REPLACE INTO t VALUES (19, 'replaced')",),
    "a row at the open end of the range is inserted": (
        "DELETE FROM t WHERE id = 20",
        "INSERT INTO t VALUES (20, 'not ours')",
    ),
    "many rows change in one transaction": ("UPDATE t SET v = CONCAT(v, '+') WHERE id > 8",),
    "all rows of the range go": ("DELETE FROM t WHERE id BETWEEN 10 AND 19",),
}


def in_database(statements: tuple[str, ...], database: str) -> tuple[str, ...]:
    """Name the table with its database."""
    return tuple(s.replace(" t ", f" {database}.t ", 1) for s in statements)


def range_at_once(server: SqlServer, table: TableId) -> Rows:
    where = f"id >= {START} AND id < {END}"
    return selected(server, f"SELECT * FROM {table.database}.t WHERE {where}")


@pytest.mark.parametrize("moment", MOMENTS)
def test_law_3_a_split_is_its_table_at_h_whatever_happens(
    mysql_server: SqlServer, table: TableId, moment: str
) -> None:
    """Each kind of change, made at one moment, over one reader."""
    schema = schema_of(mysql_server, table)
    fresh = (
        f"DELETE FROM {table.database}.t",
        f"INSERT INTO {table.database}.t VALUES {numbered(range(5, 25))}",
    )
    hooks = Hooks()
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        for number, (name, statements) in enumerate(STATEMENTS.items()):
            runs(mysql_server, *fresh)()
            at_high: list[Rows] = []
            change = runs(mysql_server, *in_database(statements, table.database))

            def after_high(held: list[Rows] = at_high, change: Action = change) -> None:
                held.append(range_at_once(mysql_server, table))
                if moment == "after_high":
                    change()

            hooks.actions.clear()
            hooks.actions.update({moment: change})
            hooks.actions.update({"after_high": after_high})
            rows, _ = reader.read(split_of(schema, (START,), (END,), number=number))
            assert tuples(rows) == at_high[0], f"when {name} {moment}"


def applied(
    server: SqlServer, schema: TableSchema, rows: Rows, since: MySqlPosition, keys: KeyRange
) -> Rows:
    """Apply the log after `since` to rows of a range, one change after the other."""
    held: dict[Key, tuple[Any, ...]] = {row[:1]: row for row in rows}
    end = server.execute("SHOW BINARY LOG STATUS")[0]
    reader = LogReader(
        Endpoint.parse(server.dsn()), server_id=7109, start=since, captured={schema.table}
    )
    with closing(reader):
        assert since.binlog is not None
        for batch in reader.read_to(type(since.binlog).of(end[0], end[1])):
            for changes in batch.tables:
                before, after = changes.before.to_pylist(), changes.after.to_pylist()
                for op, old, new in zip(changes.op.to_pylist(), before, after, strict=True):
                    if op != Op.INSERT:
                        held.pop((old["id"],), None)
                    if op != Op.DELETE and keys.contains((new["id"],)):
                        held[(new["id"],)] = tuple(new.values())
    return sorted(held.values())


def random_statement(chosen: random.Random, database: str, turn: int) -> str:
    """Write one statement that succeeds whatever the table holds."""
    key, other = chosen.randrange(5, 25), chosen.randrange(5, 25)
    return chosen.choice(
        [
            f"REPLACE INTO {database}.t VALUES ({key}, 'r{turn}')",
            f"INSERT IGNORE INTO {database}.t VALUES ({key}, 'i{turn}')",
            f"UPDATE {database}.t SET v = 'u{turn}' WHERE id = {key}",
            f"DELETE FROM {database}.t WHERE id = {key}",
            f"UPDATE IGNORE {database}.t SET id = {other}, v = 'm{turn}' WHERE id = {key}",
            f"INSERT INTO {database}.t VALUES ({key}, 'd{turn}') "
            f"ON DUPLICATE KEY UPDATE v = 'o{turn}'",
        ]
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_law_3_any_statements_at_any_moments_leave_each_split_its_table_at_h(
    mysql_server: SqlServer, table: TableId, seed: int
) -> None:
    print(f"seed {seed}")
    chosen = random.Random(seed)
    schema = schema_of(mysql_server, table)
    at_high: list[Rows] = []
    keys = KeyRange((START,), (END,))

    def some() -> None:
        for _ in range(chosen.randrange(4)):
            statement = random_statement(chosen, table.database, chosen.randrange(1000))
            mysql_server.execute(statement)

    def after_high() -> None:
        at_high.append(range_at_once(mysql_server, table))
        some()

    hooks = Hooks(before_low=some, after_low=some, before_high=some, after_high=after_high)
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        rows, report = reader.read(split_of(schema, keys.start, keys.end))
        for turn in range(1, 12):
            rows, report = reader.read(split_of(schema, keys.start, keys.end, number=turn))
            assert tuples(rows) == at_high[-1]
        assert reader.tail.dumps == 1
    # Law 5's other half: the stream from H on brings the split to its table now.
    now = applied(mysql_server, schema, tuples(rows), own(report.high), keys)
    assert now == range_at_once(mysql_server, table)


def test_law_3_changes_seen_by_the_tail_of_another_table_are_not_lost_to_their_own_split(
    mysql_server: SqlServer, mysql_database: str, table: TableId
) -> None:
    other = TableId(mysql_database, "u")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.u (id INT PRIMARY KEY, v VARCHAR(40))")
    mysql_server.execute(f"INSERT INTO {mysql_database}.u VALUES {numbered(range(5))}")
    first, second = schema_of(mysql_server, table), schema_of(mysql_server, other)
    hooks = Hooks(
        after_low=runs(
            mysql_server,
            f"UPDATE {mysql_database}.t SET v = CONCAT(v, '.') WHERE id = 6",
            f"UPDATE {mysql_database}.u SET v = CONCAT(v, '.') WHERE id = 3",
        )
    )
    with reader_of(mysql_server, first, second, listener=hooks) as reader:
        for turn in range(3):
            rows, _ = reader.read(split_of(first, number=turn))
            assert dict(tuples(rows))[6] == "v6" + "." * (2 * turn + 1)
            rows, _ = reader.read(split_of(second, number=turn))
            assert dict(tuples(rows))[3] == "v3" + "." * (2 * turn + 2)


def test_law_3_a_composite_key_is_judged_by_the_whole_range(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = TableId(mysql_database, "c")
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.c (b INT, a INT, v INT, PRIMARY KEY (a, b))"
    )
    values = ", ".join(f"({b}, {a}, 0)" for a in range(3) for b in range(3))
    mysql_server.execute(f"INSERT INTO {mysql_database}.c VALUES {values}")
    schema = schema_of(mysql_server, table)
    at_high: list[Rows] = []
    where = "(a > 0 OR (a = 0 AND b >= 1)) AND (a < 2 OR (a = 2 AND b < 1))"
    query = f"SELECT * FROM {mysql_database}.c WHERE {where}"
    hooks = Hooks(
        after_low=runs(mysql_server, f"UPDATE {mysql_database}.c SET v = v + 1"),
        before_high=runs(
            mysql_server,
            f"UPDATE {mysql_database}.c SET b = b + 10 WHERE a = 2 AND b = 0",
            f"UPDATE {mysql_database}.c SET b = b + 10 WHERE a = 0 AND b = 0",
            f"DELETE FROM {mysql_database}.c WHERE a = 1 AND b = 1",
        ),
        after_high=lambda: at_high.append(selected(mysql_server, query)),
    )
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        rows, report = reader.read(split_of(schema, (0, 1), (2, 1)))
    assert tuples(rows) == at_high[0]
    assert report.changes == 12


def test_law_3_rows_from_before_a_truncate_in_the_same_log_file_do_not_come_back() -> None:
    """Where L is the start of the log file, the log after it holds what was long gone."""
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute(f"INSERT INTO d.t VALUES {numbered(range(5))}")
        server.execute("TRUNCATE d.t")
        server.execute("INSERT INTO d.t VALUES (7, 'v7')")
        server.execute("CREATE USER plain IDENTIFIED BY 'plain_secret'")
        server.execute(
            "GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE, XA_RECOVER_ADMIN ON *.* TO plain"
        )
        schema = schema_of(server, TableId("d", "t"))
        plain = Endpoint.parse(server.dsn("plain", "plain_secret"))
        hooks = Hooks(after_low=runs(server, "INSERT INTO d.t VALUES (8, 'v8')"))
        with reader_of(server, schema, endpoint=plain, listener=hooks) as reader:
            rows, report = reader.read(split_of(schema))
        assert tuples(rows) == [(7, "v7"), (8, "v8")]
        low = own(report.low).binlog
        assert low is not None
        assert low.offset == 4
