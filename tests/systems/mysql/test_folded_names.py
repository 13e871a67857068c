"""A server that does not tell names apart by case logs a statement as it was typed."""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementKind
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.server.catalogue import triggers
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.throwaway import MariaDbServer
from tests.systems.mysql.read_logs import insert, position_of, reading, rows_of


def barriers(batches: list[ChangeBatch]) -> list[str]:
    return [batch.barrier.sql for batch in batches if batch.barrier is not None]


def test_a_statement_is_a_barrier_however_its_table_was_spelt() -> None:
    with MariaDbServer({"lower_case_table_names": 1}) as server:
        server.execute("CREATE DATABASE shop")
        server.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute("CREATE TABLE shop.other (id INT PRIMARY KEY)")
        table = TableId("shop", "orders")
        start = position_of(server)
        insert(server, table, 1)
        server.execute("TRUNCATE TABLE Shop.OTHER")
        server.execute("TRUNCATE TABLE Shop.Orders")
        until = position_of(server)
        assert until.binlog is not None
        with reading(server, start, table) as reader:
            batches = list(reader.read_to(until.binlog))
    assert sum(len(changes) for batch in batches for changes in batch.tables) == 1
    found = [effect_of(sql) for sql in barriers(batches)]
    concerned = [each for each in found if each.concerns(table, ignore_case=True)]
    assert [each.kind for each in concerned] == [StatementKind.TRUNCATE]


def test_a_database_that_is_dropped_elsewhere_leaves_the_rows_behind_it_readable() -> None:
    with MariaDbServer({"lower_case_table_names": 1}) as server:
        server.execute("CREATE DATABASE shop")
        server.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute("CREATE DATABASE Elsewhere")
        table = TableId("shop", "orders")
        start = position_of(server)
        insert(server, table, 1)
        server.execute("DROP DATABASE Elsewhere")
        insert(server, table, 2)
        until = position_of(server)
        with reading(server, start, table) as reader:
            batches = list(reader.read_to(until.binlog))
    assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2)]
    assert barriers(batches) == ["DROP DATABASE Elsewhere"]


def test_a_table_of_the_sink_is_found_under_the_name_it_was_asked_by() -> None:
    with MariaDbServer({"lower_case_table_names": 1}) as server:
        server.execute("CREATE DATABASE Shop")
        server.execute("CREATE TABLE Shop.Orders (Id INT PRIMARY KEY, v INT UNIQUE)")
        server.execute(
            "CREATE TRIGGER Shop.tr BEFORE INSERT ON Shop.Orders FOR EACH ROW SET NEW.v = 1"
        )
        tables = [TableId("Shop", "Orders"), TableId("shop", "missing")]
        endpoint = Endpoint.parse(server.dsn())
        with closing(connect(endpoint, purpose="tests", role=Role.SINK)) as connection:
            found = read_schemas(connection, tables, role=Role.SINK)
            firing = triggers(connection, tables, role=Role.SINK)
    assert {table: schema.table for table, schema in found.items()} == {tables[0]: tables[0]}
    assert found[tables[0]].primary_key == ("Id",)
    assert firing == {tables[0]: ("tr",)}
