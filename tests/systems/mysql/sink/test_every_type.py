"""Every column type, from a source's rows and log into a sink, by every way of writing."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, own
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.sink import row_writer
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.round_trips import different
from tests.systems.mysql.wire.type_cases import create_statement, insert_statements

WAYS = {
    "load": {},
    "insert": {"local_files": False},
    "prepared": {"local_files": False},
    "merged": {"apply": ApplyMode.MERGED, "writers": 2},
}


@pytest.mark.parametrize("way", WAYS)
@FAMILIES
def test_rows_and_changes_of_every_type_arrive_unchanged(
    family: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "prepared":
        monkeypatch.setattr(row_writer, "_PREPARE_FROM_ROWS", 1)
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    server.execute(create_statement(table, family))
    inserts = insert_statements(table, family)
    for statement in inserts[::2]:
        _run(server, statement)
    _copy_and_follow(server, table, copy, inserts[1::2], way)
    _assert_equal(server, table, copy, rows=len(inserts))


@pytest.mark.parametrize("way", WAYS)
@FAMILIES
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT(7,3)"])
def test_rows_whose_key_is_an_inexact_number_are_found_again_by_it(
    kind: str,
    family: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    """0.1 as FLOAT is no literal 0.1: a row must be deleted, changed and moved by its exact key."""
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    name = f"`{table.database}`.t"
    _run(server, f"CREATE TABLE {name} (id {kind} PRIMARY KEY, v INT)")
    keys = "(0.1, 1), (16.777217, 2), (0.001, 3), (-0.0, 4), (1000.7, 5), (-3.3, 6)"
    _run(server, f"INSERT INTO {name} VALUES {keys}")
    changes = (
        f"DELETE FROM {name} WHERE v IN (1, 5)",
        f"UPDATE {name} SET v = v + 10",
        f"UPDATE {name} SET id = id * 3.1 WHERE v <> 14",
        f"INSERT INTO {name} VALUES (0.1, 1), (0.3, 7)",
    )
    _copy_and_follow(server, table, copy, changes, way)
    _assert_equal(server, table, copy, rows=6)


@pytest.mark.parametrize("way", WAYS)
@FAMILIES
@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german2_ci", ("€", "it's", "ä")),
        ("VARCHAR(9) CHARACTER SET sjis", ("ソ", "a", "表")),
        ("VARCHAR(9) CHARACTER SET ucs2 COLLATE ucs2_unicode_ci", ("x", "", "€")),
        ("ENUM('é','b','ü') CHARACTER SET latin1", ("é", "b", "ü")),
        ("VARCHAR(9) CHARACTER SET utf8mb3", ("€", "a", "ß")),
    ],
)
def test_rows_are_found_again_by_a_key_of_several_columns_with_a_charset_of_its_own(
    kind: str,
    texts: tuple[str, ...],
    family: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    """MariaDB's `(k1, k2) IN (..)` finds no text that is given in another charset."""
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    name = f"`{table.database}`.t"
    _run(server, f"CREATE TABLE {name} (id INT, k {kind}, v INT, PRIMARY KEY (id, k))")
    quoted = [text.replace("'", "''") for text in texts]
    rows = [f"({number}, '{text}', 0)" for number in range(3) for text in quoted]
    _run(server, f"INSERT INTO {name} VALUES {', '.join(rows)}")
    changes = (
        f"DELETE FROM {name} WHERE id = 0",
        f"UPDATE {name} SET v = 1 WHERE id = 1",
        f"UPDATE {name} SET id = 5 WHERE id = 2",
    )
    _copy_and_follow(server, table, copy, changes, way)
    _assert_equal(server, table, copy, rows=6)


@pytest.mark.parametrize("way", WAYS)
@FAMILIES
def test_a_value_that_is_no_member_of_its_enum_arrives_as_that(
    family: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "prepared":
        monkeypatch.setattr(row_writer, "_PREPARE_FROM_ROWS", 1)
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    name = f"`{table.database}`.t"
    _run(
        server,
        f"CREATE TABLE {name} (id INT PRIMARY KEY, e ENUM('a', '', '0') NOT NULL, "
        "f ENUM('b') CHARACTER SET ucs2, g ENUM('c', '\u0660') CHARACTER SET utf8mb4, n INT)",
    )
    kinds = ("0, 0, 0", "'', NULL, 'c'", "'a', 'b', '\u0660'", "'0', 'b', 0", "0, NULL, NULL")
    rows = [f"({i}, {kinds[i % 5]}, {i})" for i in range(400)]
    _run(server, f"INSERT INTO {name} VALUES {', '.join(rows)}")
    changes = (
        f"UPDATE {name} SET e = '' WHERE id BETWEEN 50 AND 54",
        f"UPDATE {name} SET e = 0 WHERE id BETWEEN 55 AND 59",
        f"UPDATE {name} SET n = 0 WHERE id < 10",
        f"DELETE FROM {name} WHERE id BETWEEN 10 AND 14",
        f"INSERT INTO {name} SELECT id + 1000, e, f, g, n FROM {name} WHERE id < 300",
        f"INSERT INTO {name} VALUES (9999, 0, 0, 0, 0)",
    )
    _copy_and_follow(server, table, copy, changes, way)
    indexes = "SELECT id, e + 0, f + 0, g + 0, n FROM `{}`.t ORDER BY id"
    stored, copied = (server.execute(indexes.format(t.database)) for t in (table, copy))
    assert copied == stored
    assert {row[1] for row in stored} == {0, 1, 2, 3}
    _assert_equal(server, table, copy, rows=len(stored))


@pytest.mark.parametrize("way", WAYS)
@FAMILIES
def test_rows_that_break_a_check_of_their_own_table_arrive(
    family: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    """MariaDB lets a session turn checks off, MySQL has checks that are not enforced."""
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    name = f"`{table.database}`.t"
    unchecked = "SET STATEMENT check_constraint_checks = 0 FOR " if family == "mariadb" else ""
    enforced = "" if family == "mariadb" else " NOT ENFORCED"
    _run(
        server,
        f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, CONSTRAINT c CHECK (n > 0){enforced})",
    )
    rows = ", ".join(f"({i}, {i - 200})" for i in range(400))
    _run(server, f"{unchecked}INSERT INTO {name} VALUES {rows}")
    changes = (
        f"{unchecked}UPDATE {name} SET n = -n WHERE id > 300",
        f"{unchecked}INSERT INTO {name} SELECT id + 1000, n FROM {name}",
    )
    _copy_and_follow(server, table, copy, changes, way)
    _assert_equal(server, table, copy, rows=800)
    definition = server.execute(f"SHOW CREATE TABLE `{copy.database}`.t")[0][1]
    assert "CHECK" in definition


@FAMILIES
def test_a_key_that_is_no_member_of_its_enum_is_refused_by_name(
    family: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> None:
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    name = f"`{table.database}`.t"
    _run(server, f"CREATE TABLE {name} (e ENUM('a', 'b'), i INT, PRIMARY KEY (i, e))")
    _run(server, f"INSERT INTO {name} VALUES ('a', 1)")
    with pytest.raises(RowRefusedError, match=r"key column e holds index 0.*key 7/0"):
        _copy_and_follow(server, table, copy, [f"INSERT INTO {name} VALUES (0, 7)"], "load")


def _assert_equal(server: SqlServer, table: TableId, copy: TableId, *, rows: int) -> None:
    assert _differences(server, table, copy) == []
    counts = [server.execute(f"SELECT COUNT(*) FROM `{t.database}`.t")[0][0] for t in (table, copy)]
    assert counts == [rows, rows]


def _copy_and_follow(
    server: SqlServer, table: TableId, copy: TableId, later: Sequence[str], way: str
) -> None:
    """Copy a table as one split, run what comes later, and apply it from the log, twice."""
    endpoint = Endpoint.parse(server.dsn())
    with closing(connect(endpoint, purpose="tests")) as connection:
        schema = read_schema(connection, table, with_statement=True)
        status = read_capabilities(connection).status_statement
    plan = TablePlan.alike(schema, copy, 0)
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    settings = SinkSettings(source_options={"zero_dates": "text"}, **WAYS[way])  # type: ignore[arg-type]
    sink = open_sink("mysql", endpoint, owner, [plan], settings)
    with closing(sink.open_ledger()) as ledger, closing(sink.open_tables()) as builder:
        ledger.take_over(1)
        builder.create_missing([plan])
        split = SnapshotSplit(table, 0, schema.primary_key, schema.key_kinds, KeyRange())
        reader = SnapshotReader(
            endpoint, {table: schema}, server_id=9201, zero_dates=ZeroDates.TEXT
        )
        with closing(reader), closing(sink.open_splits()) as splits:
            rows, report = reader.read(split)
            splits.publish(split, rows, report)
        stream = hand_off([FinishedSplit.of(split, report, backfilled=True)])
        ledger.store_stream(stream)
    for statement in later:
        _run(server, statement)
    file, offset = server.execute(status)[0][:2]
    log = LogReader(
        endpoint,
        server_id=9202,
        start=own(stream.start),
        captured={table},
        zero_dates=ZeroDates.TEXT,
        schemas={table: schema}.get,
    )
    columns = arrow_schemas([schema], ZeroDates.TEXT)
    with closing(log), closing(sink.open_changes(columns)) as changes:
        for batch in log.read_to(BinlogPosition.of(file, offset)):
            changes.apply(batch)
            changes.apply(batch)
        after = changes.stream()
    assert after is not None
    assert after.inconsistent == ()


def _differences(server: SqlServer, table: TableId, copy: TableId) -> Sequence[object]:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="tests")) as connection:
        schema, copied = (read_schema(connection, each) for each in (table, copy))
    return different(server, schema, copied)


def _run(server: SqlServer, statement: str) -> None:
    connection = server.connect()
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute(statement)
