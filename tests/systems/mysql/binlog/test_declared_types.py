"""Columns as people declare them decode alike from SELECT and from the log.

The definitions come from the server's own catalogue here, as they do for a pipeline.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import CapturedLog, captured_log, replayed
from tests.systems.mysql.sessions import source
from tests.systems.mysql.wire.raw_select import select_rows

BOTH = (
    ("ENUM('a','B') CHARACTER SET binary", "'a'"),
    ("ENUM('a','B') BINARY", "'B'"),
    ("ENUM('a',x'c3a9') CHARACTER SET binary", "x'c3a9'"),
    ("SET('x','y') CHARACTER SET binary", "'x,y'"),
    ("ENUM('a','€') CHARACTER SET ucs2", "'€'"),
    ("CHAR(3) CHARACTER SET binary", "'a'"),
    ("TINYTEXT CHARACTER SET binary", "x'ff'"),
    ("VARCHAR(65) CHARACTER SET utf32", "'a€'"),
    ("NATIONAL CHAR(4)", "'a€'"),
    ("JSON", "'[1.50, {\"k\": -0.0}]'"),
    ("DOUBLE(10,2) ZEROFILL", "1.5"),
    ("FLOAT(53)", "1.5"),
    ("BOOLEAN", "TRUE"),
    ("BIT(64)", "18446744073709551615"),
    ("DECIMAL(65,30)", "-1.5"),
    ("YEAR", "'0000'"),
)
ONLY = {
    "mysql": (
        ("JSON", "CAST(-123456789.000000000123 AS JSON)"),
        ("JSON", f"CAST(CAST('{'9' * 35}.{'9' * 30}' AS DECIMAL(65,30)) AS JSON)"),
        ("JSON", "CAST(CAST('-0.5' AS DECIMAL(30,30)) AS JSON)"),
    ),
    "mariadb": (
        ("VARCHAR(300) COMPRESSED", "REPEAT('a€', 150)"),
        ("VARBINARY(20) COMPRESSED", "x'00ff'"),
        ("LONGTEXT COMPRESSED CHARACTER SET ucs2", "REPEAT('a€', 5000)"),
    ),
}


def logged(server: SqlServer, database: str, *statements: str) -> tuple[CapturedLog, TableSchema]:
    connection = server.connect(database)
    with captured_log(server) as log:
        with connection, connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4")
            for statement in statements:
                cursor.execute(statement)
        captured = log()
    table = TableId(database, "t")
    with source(server) as session:
        return captured, read_schemas(session, [table])[table]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_declared_columns_read_alike_from_select_and_from_the_log(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    declared = (*BOTH, *ONLY[kind])
    columns = ", ".join(f"c{number} {ddl}" for number, (ddl, _) in enumerate(declared))
    values = ", ".join(value for _, value in declared)
    log, schema = logged(
        server,
        fresh_database(server),
        f"CREATE TABLE t (id SERIAL, {columns}) DEFAULT CHARACTER SET utf8mb4",
        f"INSERT INTO t VALUES (1, {values}), (2, {values})",
        f"INSERT INTO t VALUES (3, {', '.join(['NULL'] * len(declared))})",
        "DELETE FROM t WHERE id = 2",
    )
    batches = log.batches(schemas=lambda _table: schema)
    selected = select_rows(server, schema, order_by="id")
    found = list(replayed(batches, "t").values())
    for number, (ddl, _) in enumerate(declared):
        name = f"c{number}"
        assert [row[name] for row in found] == selected[name].to_pylist(), ddl
    assert batches[-1].tables[0].after.schema.types == selected.schema.types


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_an_enum_member_that_is_no_text_is_refused_by_select_and_by_the_log(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    log, schema = logged(
        server,
        fresh_database(server),
        "CREATE TABLE t (id INT PRIMARY KEY, v ENUM(x'ff', 'b') CHARACTER SET binary)",
        "INSERT INTO t VALUES (1, x'ff')",
    )
    with pytest.raises(CdcError, match="column v"):
        log.batches(schemas=lambda _table: schema)
    with pytest.raises(CdcError):
        select_rows(server, schema)
