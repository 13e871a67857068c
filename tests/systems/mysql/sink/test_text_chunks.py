"""Splits as a reader gives them, the server's own bytes, published by every way there is."""

from __future__ import annotations

import secrets
from collections.abc import Callable
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
    source: SqlServer, database: str, sink: SqlServer, target: str, **options: object
) -> tuple[int, int]:
    """Copy table t; returns how many chunks there were, and how many could be sent as they are."""
    table = TableId(database, "t")
    endpoint = Endpoint.parse(source.dsn())
    with closing(connect(endpoint, purpose="tests")) as connection:
        schema = read_schema(connection, table, with_statement=True)
    plan = TablePlan.alike(schema, TableId(target, "t"), 0)
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    settings = SinkSettings(**options)  # type: ignore[arg-type]
    zero_dates = MySqlOptions.of(settings.source_options).zero_dates
    opened = open_sink("mysql", Endpoint.parse(sink.dsn()), owner, [plan], settings)
    with closing(opened.open_ledger()) as ledger, closing(opened.open_tables()) as builder:
        ledger.take_over(1)
        builder.create_missing([plan])
    split = SnapshotSplit(table, 0, ("id",), schema.key_kinds, KeyRange())
    reader = SnapshotReader(
        endpoint,
        {table: schema},
        server_id=9101,
        backfill=False,
        zero_dates=zero_dates,
    )
    with closing(reader), closing(opened.open_splits()) as splits:
        rows, report = reader.read(split)
        chunks = rows.native_chunks()
        assert chunks is not None
        splits.publish(split, rows, report)
    sent = [chunk for chunk in chunks if isinstance(chunk, TextChunk)]
    as_they_are = [load_chunk(chunk, schema.copied_columns) is not None for chunk in sent]
    return len(chunks), sum(as_they_are)


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
