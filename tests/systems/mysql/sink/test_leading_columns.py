"""Tables whose key can be cut by its first columns only: each split replaces its own rows."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.key_bounds import boundaries
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer

KEYS = {
    "ENUM": ("a INT, b ENUM('x','y','z') NOT NULL, PRIMARY KEY (a, b)", "({a}, {n}, 0)"),
    "FLOAT": ("a VARBINARY(9), b FLOAT, PRIMARY KEY (a, b)", "('k{a}', {n}.1, 0)"),
    "TIME behind a text": (
        "a VARCHAR(9) COLLATE utf8mb4_unicode_ci, b TIME, PRIMARY KEY (a, b)",
        "('{letter}{a}', {n}, 0)",
    ),
    "a prefix": ("a DATE, b VARCHAR(9), PRIMARY KEY (a, b(3))", "('20240{m}11', '{n}', 0)"),
}


@pytest.mark.parametrize("key", KEYS)
@FAMILIES
def test_splits_by_leading_columns_read_again_replace_their_own_rows_only(
    key: str,
    family: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    table, copy = (TableId(fresh_database(server), "t") for _ in range(2))
    definition, row = KEYS[key]
    rows = [
        row.format(a=i // 3 + 10, n=i % 3 + 1, m=i // 3 % 9 + 1, letter="kK"[i % 2])
        for i in range(27 if key == "a prefix" else 90)
    ]
    server.execute(f"CREATE TABLE t (v INT, {definition})", database=table.database)
    names = "(a, b, v)"
    server.execute(f"INSERT INTO t {names} VALUES {', '.join(rows)}", database=table.database)
    endpoint = Endpoint.parse(server.dsn())
    with closing(connect(endpoint, purpose="tests")) as connection:
        schema = read_schema(connection, table, with_statement=True)
        cuts = list(boundaries(connection, schema, 5))
    splits = list(splits_between(table, schema.primary_key, schema.key_kinds, cuts))
    assert len(splits) > 4
    plan = TablePlan.alike(schema, copy, 0)
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    sink = open_sink("mysql", endpoint, owner, [plan])
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    random.Random(seed).shuffle(splits)
    with closing(sink.open_ledger()) as ledger, closing(sink.open_tables()) as builder:
        ledger.take_over(1)
        builder.create_missing([plan])
        reader = SnapshotReader(endpoint, {table: schema}, server_id=9203)
        with closing(reader), closing(sink.open_splits()) as publisher:
            for split in splits:
                publisher.publish(split, *reader.read(split))
            assert verify(MySqlSource(endpoint), sink, [plan]).equal
            server.execute("DELETE FROM t ORDER BY a, b LIMIT 4", database=table.database)
            server.execute("UPDATE t SET v = 1 ORDER BY a DESC LIMIT 4", database=table.database)
            for split in splits:
                publisher.publish(split, *reader.read(split))
    report = verify(MySqlSource(endpoint), sink, [plan])
    assert report.equal
    assert report.tables[0].rows_sink == len(rows) - 4
