"""Law 3 with XA: a prepared transaction's rows are in the log before anyone may see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.given import SqlServer
from tests.servers.prepared import finish_prepared
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.splits import Hooks, numbered, reader_of, schema_of, split_of, tuples

TABLE = TableId("d", "t")


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with MySqlServer() as started:
        yield started


@pytest.fixture
def table(server: SqlServer) -> TableId:
    for (xid,) in [(row[3],) for row in server.execute("XA RECOVER")]:
        finish_prepared(server, "ROLLBACK", f"'{xid}'")
    server.execute("CREATE DATABASE IF NOT EXISTS d")
    server.execute("DROP TABLE IF EXISTS d.t")
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.execute(f"INSERT INTO d.t VALUES {numbered([1, 2])}")
    return TABLE


def prepare(server: SqlServer, name: str, key: int) -> None:
    with closing(server.connect("d")) as session, session.cursor() as cursor:
        cursor.execute(f"XA START '{name}'")
        cursor.execute(f"INSERT INTO t VALUES ({key}, 'xa')")
        cursor.execute(f"XA END '{name}'")
        cursor.execute(f"XA PREPARE '{name}'")


def test_law_3_a_transaction_prepared_and_committed_between_the_watermarks_is_in_the_split(
    server: SqlServer, table: TableId
) -> None:
    schema = schema_of(server, table)

    def after_low() -> None:
        prepare(server, "a", 5)

    hooks = Hooks(
        after_low=after_low, before_high=partial(finish_prepared, server, "COMMIT", "'a'")
    )
    with reader_of(server, schema, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema))
    assert tuples(rows) == [(1, "v1"), (2, "v2"), (5, "xa")]


def test_law_3_a_transaction_only_prepared_between_the_watermarks_is_not_in_the_split(
    server: SqlServer, table: TableId
) -> None:
    schema = schema_of(server, table)

    def after_low() -> None:
        prepare(server, "b", 6)

    hooks = Hooks(after_low=after_low)
    with reader_of(server, schema, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema))
        assert tuples(rows) == [(1, "v1"), (2, "v2")]
        hooks.actions = {"before_high": partial(finish_prepared, server, "COMMIT", "'b'")}
        rows, _ = reader.read(split_of(schema))
        assert tuples(rows) == [(1, "v1"), (2, "v2"), (6, "xa")]


def test_law_3_a_transaction_prepared_before_l_and_committed_after_it_is_in_the_split(
    server: SqlServer, table: TableId
) -> None:
    schema = schema_of(server, table)
    prepare(server, "c", 7)
    server.execute("FLUSH BINARY LOGS")
    hooks = Hooks(before_high=partial(finish_prepared, server, "COMMIT", "'c'"))
    with reader_of(server, schema, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema))
    assert tuples(rows) == [(1, "v1"), (2, "v2"), (7, "xa")]
