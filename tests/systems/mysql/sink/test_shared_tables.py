"""A table of the sink that several of the source share: made, extended, and cleared for one."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.engine.sink.port import DeletesShards
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.test_shaped_tables import World, world

__all__ = ["world"]
TARGET = "people"
FEW = """CREATE TABLE few (
  id INT NOT NULL, mail VARCHAR(200) CHARACTER SET utf8mb4, kind ENUM('a','b','c'), age SMALLINT
  UNSIGNED NOT NULL DEFAULT 7, place GEOMETRY NOT NULL, extra TEXT,
  PRIMARY KEY (id), SPATIAL KEY place (place), UNIQUE KEY mail (mail), KEY extra (extra(9), age))"""
LATER = "CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY, doc JSON, more DATETIME(6))"
OTHER = "CREATE TABLE other (id INT NOT NULL PRIMARY KEY, age VARCHAR(9), kind ENUM('b','a'))"


def shard_of(world: World, name: str) -> TablePlan:
    """Return the plan of a source table that goes to the shared one."""
    shape = TableShape((OutputColumn("shop", constant=name),), others=True, shard="shop")
    schema = definition(world.source, world.database, name)
    target = world.opened().target_of(schema, TableId(world.target, TARGET), shape)
    return TablePlan(schema, target, 0, shape)


def definition(server: SqlServer, database: str, name: str) -> TableSchema:
    table = TableId(database, name)
    with closing(connect(Endpoint.parse(server.dsn()), purpose="tests")) as connection:
        return read_schemas(connection, [table])[table]


def require_holds(world: World, *shards: TablePlan) -> TableSchema:
    """Require that the sink's table holds each shard's rows; return its definition."""
    made = world.made()
    for shard in shards:
        assert list(mismatches(shard.target, made, may_be_wider=True)) == []
    return made


def test_it_is_made_extended_and_cleared_for_one_shard(world: World) -> None:
    world.at_source(FEW, LATER, OTHER)
    people, few, later = (shard_of(world, name) for name in ("people", "few", "later"))
    sink = world.opened()
    with closing(sink.open_ledger()) as ledger:
        ledger.take_over(1)
    with closing(sink.open_tables()) as builder:
        assert builder.create_missing([people, few]) == {people.sink_table: True}
        assert builder.create_missing([people, few]) == {people.sink_table: False}
    made = require_holds(world, people, few)
    assert made.primary_key == ("shop", "id")
    assert {column.name for column in made.columns if not column.nullable} == {"shop", "id"}
    assert not any(column.generated or column.auto_increment for column in made.columns)
    assert made.unique_keys == ()
    assert "KEY `mail` (`mail`)" in made.create_statement
    assert "KEY `extra`" in made.create_statement
    for part in ("SPATIAL", "FOREIGN", "kept", "DEFAULT '"):
        assert part not in made.create_statement.replace("DEFAULT CHARSET", "")
    world.sink.execute(
        "INSERT INTO people (shop, id) VALUES ('people', 1), ('few', 1), ('few', 2)",
        database=world.target,
    )
    (row,) = world.sink.execute("SELECT * FROM people WHERE shop = 'people'", database=world.target)
    assert [value for value in row if value is not None] == [1, "people"]
    known = open_sink(
        "mysql", Endpoint.parse(world.sink.dsn()), world.owner, (people, few)
    ).open_tables()
    with closing(known) as builder:
        builder.require_fit([later])
        assert builder.create_missing([later]) == {later.sink_table: False}
        require_holds(world, people, few, later)
        assert world.made().column("id").type.name == "bigint"
        with pytest.raises(RefusedError, match=r"column age is .* it is varchar\(9\); .*kind"):
            builder.require_fit([shard_of(world, "other")])
        assert isinstance(builder, DeletesShards)
        builder.delete_shard(few)
    assert list(world.sink.execute("SELECT shop FROM people", database=world.target)) == [
        ("people",)
    ]
