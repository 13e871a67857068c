"""Rows selected from real servers decode to the value model's canonical values."""

from __future__ import annotations

import math
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from tests.columnar.raw_select import select_rows
from tests.columnar.type_cases import (
    MARIADB,
    MYSQL,
    create_statement,
    every_type_schema,
    expected_rows,
    insert_statements,
)
from tests.servers.given import SqlServer

LENIENT = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"


def fill_every_type(
    server: SqlServer, database: str, kind: str, table: str = "every_type"
) -> TableId:
    """Make the table of every type and put its rows in."""
    table_id = TableId(database, table)
    connection = server.connect(database)
    try:
        with connection.cursor() as cursor:
            cursor.execute(LENIENT)
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(create_statement(table_id, kind))
            for statement in insert_statements(table_id, kind):
                cursor.execute(statement)
    finally:
        connection.close()
    return table_id


def same(left: Any, right: Any) -> bool:
    """Compare two values so that -0.0 is not 0.0 and a type is never another."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """List the values that differ."""
    if len(found) != len(expected):
        return [f"{len(found)} rows instead of {len(expected)}"]
    return [
        f"row {row['id']} {name}: {str(got[name])[:80]!r} instead of {str(row[name])[:80]!r}"
        for got, row in zip(found, expected, strict=True)
        for name in row
        if not same(got[name], row[name])
    ]


def test_every_mysql_type_decodes_to_its_canonical_value(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = fill_every_type(mysql_server, mysql_database, MYSQL)
    rows = select_rows(mysql_server, every_type_schema(table, MYSQL), order_by="id")
    assert differences(rows.to_pylist(), expected_rows(MYSQL)) == []


def test_every_mariadb_type_decodes_to_its_canonical_value(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = fill_every_type(mariadb_server, mariadb_database, MARIADB)
    rows = select_rows(mariadb_server, every_type_schema(table, MARIADB), order_by="id")
    assert differences(rows.to_pylist(), expected_rows(MARIADB)) == []
