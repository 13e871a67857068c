"""Splits as a reader gives them, the server's own bytes, published by every way there is."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.mysql.wire.load_text import load_chunk
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer

COLUMNS = """id INT PRIMARY KEY, name VARCHAR(600), price DECIMAL(12,3), at DATETIME(3),
  flags BIT(9), ratio FLOAT, kind ENUM('a','b'), doubled INT AS (id * 2), body JSON"""


def copy(
    source: SqlServer,
    database: str,
    sink: SqlServer,
    target: str,
    tables: Sequence[str] = ("t",),
    **options: object,
) -> tuple[int, int]:
    """Copy tables over one session to the sink, in this order.

    Returns how many chunks there were, and how many could be sent as they are.
    """
    endpoint = Endpoint.parse(source.dsn())
    with closing(connect(endpoint, purpose="tests")) as connection:
        schemas = {
            name: read_schema(connection, TableId(database, name), with_statement=True)
            for name in tables
        }
    plans = [TablePlan.alike(each, TableId(target, name), 0) for name, each in schemas.items()]
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    settings = SinkSettings(**options)  # type: ignore[arg-type]
    zero_dates = MySqlOptions.of(settings.source_options).zero_dates
    opened = open_sink("mysql", Endpoint.parse(sink.dsn()), owner, plans, settings)
    with closing(opened.open_ledger()) as ledger, closing(opened.open_tables()) as builder:
        ledger.take_over(1)
        builder.create_missing(plans)
    reader = SnapshotReader(
        endpoint,
        {schema.table: schema for schema in schemas.values()},
        server_id=9101,
        backfill=False,
        zero_dates=zero_dates,
    )
    count = as_they_are = 0
    with closing(reader), closing(opened.open_splits()) as splits:
        for schema in schemas.values():
            split = SnapshotSplit(schema.table, 0, ("id",), schema.key_kinds, KeyRange())
            rows, report = reader.read(split)
            chunks = rows.native_chunks()
            assert chunks is not None
            splits.publish(split, rows, report)
            sent = [chunk for chunk in chunks if isinstance(chunk, TextChunk)]
            count += len(chunks)
            as_they_are += sum(load_chunk(each, schema.copied_columns) is not None for each in sent)
    return count, as_they_are


def content(server: SqlServer, database: str) -> list[tuple[object, ...]]:
    return server.execute(
        f"SELECT id, HEX(name), price, at, HEX(flags), HEX(ratio * 1e6), kind, doubled, "
        f"CAST(body AS CHAR) FROM `{database}`.t ORDER BY id"
    )


@pytest.mark.parametrize("by_load", [True, False])
def test_chunks_as_they_are_and_others_arrive_in_one_split(
    mysql_server: SqlServer,
    mysql_database: str,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    by_load: bool,
) -> None:
    mysql_server.execute(f"CREATE TABLE t ({COLUMNS})", database=mysql_database)
    numbers = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 40000)"
    connection = mysql_server.connect(mysql_database)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 100000")
        cursor.execute(
            "INSERT INTO t (id, name, price, at, flags, ratio, kind, body) "
            f"{numbers} SELECT i, IF(i BETWEEN 15000 AND 15050, "
            "REPEAT(_utf8mb4 x'096cc3b61e5c', 50), 'short'),"
            " IF(i = 30000, NULL, i / 7), '2024-05-06 07:08:09.123', i % 512, i / 3, "
            "IF(i % 2, 'a', 'b'), JSON_OBJECT('i', i) FROM n"
        )
    target = fresh_database(mysql_sink)
    chunks, as_they_are = copy(
        mysql_server, mysql_database, mysql_sink, target, local_files=by_load
    )
    assert 0 < as_they_are < chunks
    assert content(mysql_sink, target) == content(mysql_server, mysql_database)


@pytest.mark.parametrize("policy", list(ZeroDates))
def test_a_zero_date_among_the_servers_own_bytes_follows_the_policy(
    mysql_server: SqlServer,
    mysql_database: str,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    policy: ZeroDates,
) -> None:
    connection = mysql_server.connect(mysql_database)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, day DATE)")
        cursor.execute("INSERT INTO t VALUES (1, '2024-01-02'), (2, '0000-00-00')")
    target = fresh_database(mysql_sink)
    if policy is ZeroDates.FAIL:
        with pytest.raises(ValueRefusedError, match="id='2'"):
            copy(
                mysql_server,
                mysql_database,
                mysql_sink,
                target,
                source_options={"zero_dates": policy.value},
            )
        assert mysql_sink.execute(f"SELECT COUNT(*) FROM `{target}`.t") == [(0,)]
        return
    copy(
        mysql_server,
        mysql_database,
        mysql_sink,
        target,
        source_options={"zero_dates": policy.value},
    )
    days = mysql_sink.execute(f"SELECT CAST(day AS CHAR) FROM `{target}`.t ORDER BY id")
    second = None if policy is ZeroDates.NULL else "0000-00-00"
    assert days == [("2024-01-02",), (second,)]


NULLED = {
    "bytes": ("BLOB", "X'80ff00'", "HEX(v)"),
    "latin": ("VARCHAR(20) CHARACTER SET latin1", "'Müller'", "HEX(v)"),
    "cyrillic": ("VARCHAR(20) CHARACTER SET koi8r", "'Война'", "HEX(v)"),
    "document": ("JSON", """'{"a": "ö"}'""", "CAST(v AS CHAR)"),
}


@pytest.mark.parametrize("family", ["mysql", "mariadb"])
@pytest.mark.parametrize("order", list(itertools.permutations(NULLED, 3)))
def test_values_beside_nulls_are_the_same_whatever_the_session_loaded_before(
    request: pytest.FixtureRequest,
    mysql_server: SqlServer,
    mysql_database: str,
    fresh_database: Callable[[SqlServer], str],
    family: str,
    order: tuple[str, ...],
) -> None:
    """MySQL gives a variable of LOAD DATA the type of what it held before."""
    sink = request.getfixturevalue("mysql_sink" if family == "mysql" else "mariadb_server")
    for name in order:
        kind, value, _ = NULLED[name]
        for sql in (
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v {kind}) CHARACTER SET utf8mb4",
            f"INSERT INTO {name} VALUES (1, {value}), (2, NULL)",
        ):
            mysql_server.execute(sql, database=mysql_database)
    target = fresh_database(sink)
    chunks, as_they_are = copy(mysql_server, mysql_database, sink, target, order)
    assert as_they_are == chunks
    for name in order:
        sql = f"SELECT id, {NULLED[name][2]} FROM {{}}.{name} ORDER BY id"
        held = sink.execute(sql.format(target))
        assert held == mysql_server.execute(sql.format(mysql_database))


def test_vectors_beside_nulls_come_behind_texts(
    mysql_server: SqlServer,
    mysql_database: str,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    for sql in (
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 5), (2, NULL)",
        "CREATE TABLE b (id INT PRIMARY KEY, v VECTOR(3))",
        "INSERT INTO b VALUES (1, TO_VECTOR('[1,2,3]')), (2, NULL)",
    ):
        mysql_server.execute(sql, database=mysql_database)
    target = fresh_database(mysql_sink)
    copy(mysql_server, mysql_database, mysql_sink, target, ("a", "b"))
    held = mysql_sink.execute(f"SELECT id, HEX(v) FROM {target}.b ORDER BY id")
    assert held == [(1, "0000803F0000004000004040"), (2, None)]


@pytest.mark.parametrize("family", ["mysql", "mariadb"])
@pytest.mark.parametrize("counts_at", ["both", "sink"])
def test_a_row_whose_counted_key_is_0_keeps_it_beside_nulls(
    request: pytest.FixtureRequest,
    mysql_server: SqlServer,
    mysql_database: str,
    fresh_database: Callable[[SqlServer], str],
    family: str,
    counts_at: str,
) -> None:
    """MariaDB counts for a 0 that comes beside a SET, also with NO_AUTO_VALUE_ON_ZERO."""
    sink = request.getfixturevalue("mysql_sink" if family == "mysql" else "mariadb_server")
    counted = "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT)"
    plain = counted.replace("AUTO_INCREMENT ", "")
    rows = "(0, 1), (10, NULL), (50, 7), (18446744073709551614, 8)"
    connection = mysql_server.connect(mysql_database)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        cursor.execute(counted if counts_at == "both" else plain)
        cursor.execute(f"INSERT INTO t VALUES {rows}")
    target = fresh_database(sink)
    sink.execute(counted, database=target)
    copy(mysql_server, mysql_database, sink, target)
    held = sink.execute(f"SELECT id, v FROM {target}.t ORDER BY id")
    assert held == [(0, 1), (10, None), (50, 7), (18446744073709551614, 8)]
