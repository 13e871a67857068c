"""Splits read from real servers: values, bounds, limits and lost connections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    SchemaMovedError,
    SourceIdentityError,
    SourceUnreachableError,
    SplitTooBigError,
    TableChangedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import own
from tests.servers.given import SqlServer
from tests.servers.proxy import CuttingProxy, Fault
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.splits import (
    Hooks,
    numbered,
    reader_of,
    runs,
    schema_of,
    selected,
    split_of,
    tuples,
)


@pytest.fixture
def table(mysql_server: SqlServer, mysql_database: str) -> TableId:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v VARCHAR(2000))")
    mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES {numbered(range(20))}")
    return TableId(mysql_database, "t")


def test_a_split_holds_the_rows_of_its_half_open_range(
    mysql_server: SqlServer, table: TableId
) -> None:
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        rows, report = reader.read(split_of(schema, (5,), (8,)))
    assert tuples(rows) == [(5, "v5"), (6, "v6"), (7, "v7")]
    assert report.rows == 3
    assert report.changes == 0
    assert report.fingerprint == schema.fingerprint


def test_rows_keep_the_servers_bytes_while_nothing_was_replayed(
    mysql_server: SqlServer, table: TableId
) -> None:
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        rows, _ = reader.read(split_of(schema))
    assert rows.native_chunks() is not None
    assert rows.rows == 20


def test_many_splits_are_read_over_two_connections(mysql_server: SqlServer, table: TableId) -> None:
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        seen = [
            row
            for start in range(0, 20, 2)
            for row in tuples(reader.read(split_of(schema, (start,), (start + 2,)))[0])
        ]
        assert reader.tail.dumps == 1
    assert seen == [(value, f"v{value}") for value in range(20)]


def test_a_quiet_split_has_the_servers_own_gtids_at_h(
    mysql_server: SqlServer, table: TableId
) -> None:
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        _, report = reader.read(split_of(schema))
    executed = GtidSet.parse(mysql_server.execute("SELECT @@global.gtid_executed")[0][0])
    assert own(report.high).gtids == executed
    assert own(report.low).binlog is None
    assert own(report.low).gtids == executed


def test_without_backfill_one_connection_is_enough_and_h_covers_what_was_seen(
    mysql_server: SqlServer, table: TableId
) -> None:
    schema = schema_of(mysql_server, table)
    hooks = Hooks(
        after_low=runs(mysql_server, f"INSERT INTO {table.database}.t VALUES (50, 'seen')")
    )
    with reader_of(mysql_server, schema, backfill=False, listener=hooks) as reader:
        rows, report = reader.read(split_of(schema))
        assert reader.tail.dumps == 0
    assert (50, "seen") in tuples(rows)
    assert report.high.covers(report.low)
    assert not report.low.covers(report.high)


def test_a_split_with_a_text_key_is_read_and_not_backfilled(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = TableId(mysql_database, "named")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.named (k VARCHAR(20) PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO {mysql_database}.named VALUES ('a'), ('B'), ('c')")
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        rows, _ = reader.read(split_of(schema, ("b",), None))
        assert tuples(rows) == [("B",), ("c",)]
        assert reader.tail.dumps == 0


def test_an_empty_split_is_read(mysql_server: SqlServer, table: TableId) -> None:
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema) as reader:
        rows, report = reader.read(split_of(schema, (1000,), None))
    assert tuples(rows) == []
    assert report.rows == 0


def test_the_four_moments_come_in_order(mysql_server: SqlServer, table: TableId) -> None:
    schema = schema_of(mysql_server, table)
    hooks = Hooks()
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        reader.read(split_of(schema))
    assert hooks.told == ["before_low", "after_low", "before_high", "after_high"]


def test_a_split_larger_than_allowed_is_given_up_and_the_next_one_is_read(
    mysql_server: SqlServer, table: TableId
) -> None:
    mysql_server.execute(f"UPDATE {table.database}.t SET v = REPEAT('x', 2000)")
    schema = schema_of(mysql_server, table)
    with reader_of(mysql_server, schema, max_split_bytes=10_000) as reader:
        with pytest.raises(SplitTooBigError, match=r"t#0 \(-inf, \+inf\)"):
            reader.read(split_of(schema))
        rows, _ = reader.read(split_of(schema, (0,), (2,)))
        assert rows.rows == 2


def test_a_connection_lost_in_mid_result_is_never_the_end(
    mysql_server: SqlServer, table: TableId
) -> None:
    mysql_server.execute(
        f"INSERT INTO {table.database}.t SELECT 100 + a.id * 20 + b.id, REPEAT('y', 2000) "
        f"FROM {table.database}.t a, {table.database}.t b"
    )
    schema = schema_of(mysql_server, table)
    with CuttingProxy(mysql_server.port) as proxy:
        endpoint = replace(Endpoint.parse(mysql_server.dsn()), port=proxy.port)

        def cut_soon() -> None:
            proxy.fault = Fault(cut_after=300_000, reset=False)

        hooks = Hooks(after_low=cut_soon)
        with reader_of(mysql_server, schema, endpoint=endpoint, listener=hooks) as reader:
            with pytest.raises(SourceUnreachableError):
                reader.read(split_of(schema))
            hooks.actions.clear()
            proxy.fault = Fault()
            rows, _ = reader.read(split_of(schema))
            assert rows.rows == 420


@pytest.mark.parametrize("backfill", [True, False])
def test_a_definition_that_changes_while_a_split_is_read_has_it_read_again(
    mysql_server: SqlServer, table: TableId, backfill: bool
) -> None:
    schema = schema_of(mysql_server, table)
    hooks = Hooks(
        before_high=runs(mysql_server, f"ALTER TABLE {table.database}.t ADD COLUMN w INT")
    )
    with reader_of(mysql_server, schema, listener=hooks, backfill=backfill) as reader:
        with pytest.raises(SchemaMovedError):
            reader.read(split_of(schema))
        hooks.actions.clear()
        with pytest.raises(TableChangedError, match="reset"):
            reader.read(split_of(schema))


def test_a_truncate_between_the_watermarks_has_the_split_read_again(
    mysql_server: SqlServer, table: TableId
) -> None:
    schema = schema_of(mysql_server, table)
    hooks = Hooks(before_high=runs(mysql_server, f"TRUNCATE {table.database}.t"))
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        with pytest.raises(SchemaMovedError, match="TRUNCATE"):
            reader.read(split_of(schema))
        hooks.actions.clear()
        assert reader.read(split_of(schema))[0].rows == 0


def test_statements_on_other_tables_do_not_disturb(mysql_server: SqlServer, table: TableId) -> None:
    schema = schema_of(mysql_server, table)
    hooks = Hooks(
        after_low=runs(
            mysql_server,
            f"CREATE TABLE {table.database}.other (id INT PRIMARY KEY)",
            f"TRUNCATE {table.database}.other",
            f"UPDATE {table.database}.t SET v = 'new' WHERE id = 3",
            f"DROP TABLE {table.database}.other",
        )
    )
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema))
    assert tuples(rows) == selected(mysql_server, f"SELECT * FROM {table.database}.t")


def test_mariadb_reads_each_split_at_its_own_exact_place(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = TableId(mariadb_database, "t")
    mariadb_server.execute(f"CREATE TABLE {table.database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    mariadb_server.execute(f"INSERT INTO {table.database}.t VALUES {numbered(range(6))}")
    schema = schema_of(mariadb_server, table)
    hooks = Hooks(
        after_low=runs(mariadb_server, f"DELETE FROM {table.database}.t WHERE id IN (1, 4)")
    )
    with reader_of(mariadb_server, schema, listener=hooks) as reader:
        rows, first = reader.read(split_of(schema, None, (3,)))
        assert tuples(rows) == [(0, "v0"), (1, "v1"), (2, "v2")]
        rows, second = reader.read(split_of(schema, (3,), None))
        assert tuples(rows) == [(3, "v3"), (5, "v5")]
        assert reader.tail.dumps == 0
    assert first.low == first.high
    assert second.low == second.high
    assert second.low.covers(first.high)
    assert not first.high.covers(second.low)


def test_a_log_that_was_reset_between_two_splits_is_noticed() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        schema = schema_of(server, TableId("d", "t"))
        with reader_of(server, schema) as reader:
            reader.read(split_of(schema, None, (5,)))
            server.execute("RESET BINARY LOGS AND GTIDS")
            with pytest.raises(SourceIdentityError, match="went back"):
                reader.read(split_of(schema, (5,), None))


def test_a_server_that_restarts_between_two_splits_is_read_on() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute(f"INSERT INTO d.t VALUES {numbered([1, 8])}")
        schema = schema_of(server, TableId("d", "t"))
        with reader_of(server, schema) as reader:
            reader.read(split_of(schema, None, (5,)))
            server.restart()
            with pytest.raises(SourceUnreachableError):
                reader.read(split_of(schema, (5,), None))
            rows, _ = reader.read(split_of(schema, (5,), None))
            assert tuples(rows) == [(8, "v8")]


def test_a_killed_server_is_read_on_after_it_came_back() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute(f"INSERT INTO d.t VALUES {numbered([1, 8])}")
        schema = schema_of(server, TableId("d", "t"))
        hooks = Hooks(before_high=server.kill)
        with reader_of(server, schema, listener=hooks) as reader:
            with pytest.raises(SourceUnreachableError):
                reader.read(split_of(schema))
            hooks.actions.clear()
            server.start()
            server.execute("DELETE FROM d.t WHERE id = 1")
            rows, _ = reader.read(split_of(schema))
            assert tuples(rows) == [(8, "v8")]
