"""Rows of every type, and what the decoder makes of them against the client's own answer."""

from __future__ import annotations

import math
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.type_cases import (
    create_statement,
    insert_statements,
)

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
