"""The sink's tables are what the source's own definition says, made for the sink's family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import (
    DeferredKind,
    deferred_keys,
    sink_create_statement,
)
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import foreign_keys
from airflow_cdc_provider.systems.mysql.server.catalogue import table_facts
from airflow_cdc_provider.systems.mysql.server.connection import Role, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import sink, source

EVERYTHING = """
    id INT UNSIGNED ZEROFILL NOT NULL AUTO_INCREMENT,
    b VARCHAR(30) COLLATE utf8mb4_unicode_ci COMMENT 'x, (y',
    c ENUM('a','it''s','b\\\\c','x"y') CHARACTER SET latin1 DEFAULT 'a', d SET('p','q'),
    e DECIMAL(10,3) DEFAULT -1.5, f BIT(5) DEFAULT b'101',
    g DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), h JSON,
    i BINARY(5), j FLOAT(7,3), k DOUBLE, l BIGINT UNSIGNED, m INT AS (t + 1) VIRTUAL,
    n INT AS (t + 2) STORED, o INT DEFAULT 3 INVISIBLE, p TEXT, q BLOB, r YEAR, s TIME(6),
    t TINYINT(1), u INT DEFAULT (1 + 2), v GEOMETRY NOT NULL, w TIMESTAMP(2) NULL,
    x TIMESTAMP DEFAULT '2000-01-01', z VARCHAR(10) CHARACTER SET utf8mb3 DEFAULT 'q', parent INT,
    PRIMARY KEY (b, r), KEY (l), KEY pre (p(10)), FULLTEXT KEY full (p), SPATIAL KEY (v),
    UNIQUE u1 (e, g), UNIQUE u2 (id), CHECK (l > 5 OR l IS NULL),
    CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE
"""
ROUTES = pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param("mysql_server", "mysql_sink", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", "mariadb_server", marks=pytest.mark.mariadb),
        pytest.param("mysql_server", "mariadb_server", marks=pytest.mark.mariadb),
        pytest.param("mariadb_server", "mysql_sink", marks=pytest.mark.mysql),
    ],
)


def flavour_of(server: SqlServer) -> str:
    return "mariadb" if "MariaDB" in server.version else "mysql"


def schema_of(server: SqlServer, table: TableId, definition: str) -> TableSchema:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {table} ({definition})")
        return read_schema(connection, table, with_statement=True)


@ROUTES
def test_every_definition_has_its_like_at_the_sink(
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    here: str,
    there: str,
) -> None:
    left, right = request.getfixturevalue(here), request.getfixturevalue(there)
    table = TableId(fresh_database(left), "t")
    target = TableId(fresh_database(right), "copy")
    left.execute(f"CREATE TABLE {table.database}.parents (id INT PRIMARY KEY)")
    right.execute(f"CREATE TABLE {target.database}.elders (id INT PRIMARY KEY)")
    schema = schema_of(left, table, EVERYTHING)
    flavour = flavour_of(right)

    def route(other: TableId) -> TableId:
        assert other == TableId(table.database, "parents")
        return TableId(target.database, "elders")

    with sink(right) as connection:
        query(connection, sink_create_statement(schema, target, sink_flavour=flavour))
        early = read_schema(connection, target, role=Role.SINK)
        keys = deferred_keys(schema, target, sink_flavour=flavour, route=route)
        for key in keys:
            query(connection, key.statement)
        made = read_schema(connection, target, role=Role.SINK)
        (foreign,) = foreign_keys(connection, [target])
    assert early.unique_keys == ()
    assert not any(column.auto_increment for column in early.columns)
    assert [key.kind for key in keys][-1] is DeferredKind.FOREIGN
    assert (foreign.name, foreign.referenced.table) == ("fk", "elders")
    assert made.primary_key == ("b", "r")
    assert {key.name for key in made.unique_keys} == {"u1", "u2"}
    assert [column.name for column in made.columns if column.auto_increment] == ["id"]
    assert [c.name for c in made.copied_columns] == [c.name for c in schema.copied_columns]
    if flavour == flavour_of(left):
        assert replace(made, table=table).fingerprint == schema.fingerprint


def test_what_belongs_to_one_server_is_left_out(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = TableId(mysql_database, "t")
    with source(mysql_server) as connection:
        query(
            connection,
            f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT=77 "
            "STATS_PERSISTENT=0 COMMENT='AUTO_INCREMENT=5' ROW_FORMAT=COMPACT "
            "PARTITION BY HASH (id) PARTITIONS 4",
        )
        schema = read_schema(connection, table, with_statement=True)
    text = sink_create_statement(schema, TableId("x", "y"), sink_flavour="mysql")
    assert text.startswith("CREATE TABLE `x`.`y` (")
    assert text.endswith(
        "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci "
        "ROW_FORMAT=COMPACT COMMENT='AUTO_INCREMENT=5'"
    )


def test_a_column_counts_from_the_start_where_its_key_is_there(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    schema = schema_of(
        mysql_server, TableId(mysql_database, "t"), "id INT AUTO_INCREMENT PRIMARY KEY"
    )
    text = sink_create_statement(schema, TableId("x", "y"), sink_flavour="mysql")
    assert "`id` int NOT NULL AUTO_INCREMENT" in text


def test_a_key_collation_that_the_sink_lacks_is_refused(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    schema = schema_of(
        mysql_server,
        TableId(mysql_database, "t"),
        "k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY",
    )
    with pytest.raises(UnsupportedTableError, match="utf8mb4_0900_ai_ci"):
        sink_create_statement(schema, TableId("x", "y"), sink_flavour="mariadb")


def test_a_type_that_the_sink_lacks_is_refused(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    schema = schema_of(mariadb_server, TableId(mariadb_database, "t"), "id INT PRIMARY KEY, u UUID")
    with pytest.raises(UnsupportedTableError, match="uuid"):
        sink_create_statement(schema, TableId("x", "y"), sink_flavour="mysql")


def test_a_table_with_history_is_refused(mariadb_server: SqlServer, mariadb_database: str) -> None:
    table = TableId(mariadb_database, "t")
    mariadb_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    with source(mariadb_server) as connection:
        schema = read_schema(connection, table, with_statement=True)
        assert table in table_facts(connection, [table])
    with pytest.raises(UnsupportedTableError, match="VERSIONING"):
        sink_create_statement(schema, TableId("x", "y"), sink_flavour="mariadb")


def test_a_foreign_key_to_a_table_that_is_not_copied_is_left_out(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.parents (id INT PRIMARY KEY)")
    schema = schema_of(
        mysql_server,
        TableId(mysql_database, "t"),
        "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parents (id)",
    )
    assert (
        deferred_keys(schema, TableId("x", "y"), sink_flavour="mysql", route=lambda _: None) == ()
    )


def test_a_definition_that_is_not_understood_is_refused() -> None:
    schema = TableSchema(
        TableId("a", "b"), (), (), create_statement="CREATE TABLE `b` (`x` int FROBNICATED)"
    )
    with pytest.raises(UnsupportedTableError, match="FROBNICATED"):
        sink_create_statement(schema, TableId("x", "y"), sink_flavour="mysql")
