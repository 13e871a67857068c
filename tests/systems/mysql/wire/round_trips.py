"""Rows that go through statements and come back, compared byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_type
from airflow_cdc_provider.systems.mysql.wire.load_text import LoadText
from airflow_cdc_provider.systems.mysql.wire.sql_text import values_sql
from tests.servers.given import SqlServer

SINK_SESSION = (
    "SET NAMES utf8mb4",
    "SET time_zone = '+00:00'",
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
)
DECIMALS_OF_JSON = {(b"-1.50".hex().upper(), b"-1.5".hex().upper())}
"""A DECIMAL inside JSON has no text form of its own: read back, it is a DOUBLE."""


def hex_rows(server: SqlServer, schema: TableSchema) -> list[tuple[object, ...]]:
    """Read every column as the hexadecimal of its text and of its bytes."""
    expressions = []
    for column in schema.columns:
        name = quote_identifier(column.name)
        if column.type.name in {"float", "double"}:
            expressions.append(f"HEX(CONCAT(CAST({name} AS DOUBLE)))")
        elif column.type.name == "bit":
            expressions.append(f"HEX(CAST({name} AS UNSIGNED))")
        elif pa.types.is_binary(arrow_type(column.type)):
            expressions.append(f"HEX({name})")
        else:
            expressions.append(f"HEX(CONCAT({name}))")
    sql = f"SELECT {', '.join(expressions)} FROM {quote_table(schema.table)} ORDER BY id"
    return server.execute(sql)


def different(server: SqlServer, schema: TableSchema, copy: TableSchema) -> list[str]:
    """List the columns whose values differ between two tables."""
    left, right = hex_rows(server, schema), hex_rows(server, copy)
    if len(left) != len(right):
        return [f"{len(left)} rows and {len(right)}"]
    return [
        f"row {i} {column.name}: {a!r} became {b!r}"
        for i, (one, other) in enumerate(zip(left, right, strict=True))
        for column, a, b in zip(schema.columns, one, other, strict=True)
        if a != b and not (column.type.name == "json" and (a, b) in DECIMALS_OF_JSON)
    ]


def insert(
    server: SqlServer, schema: TableSchema, rows: pa.Table, session: Sequence[str] = SINK_SESSION
) -> None:
    """Insert rows by `values_sql`, a few in a statement."""
    names = ", ".join(quote_identifier(column.name) for column in schema.columns)
    head = f"INSERT INTO {quote_table(schema.table)} ({names}) VALUES ".encode()
    with closing(server.connect()) as connection:
        for statement in session:
            connection.query(statement)
        for batch in rows.to_batches():
            text = values_sql(batch, schema.columns)
            for first, end in text.runs(200_000):
                connection.query(head + text.run(first, end))


def load(server: SqlServer, schema: TableSchema, texts: Sequence[LoadText], folder: Path) -> None:
    """Load texts one by one from a file."""
    with closing(server.connect()) as connection:
        for statement in SINK_SESSION:
            connection.query(statement)
        for text in texts:
            path = folder / "rows"
            path.write_bytes(text.body)
            connection.query(
                f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {quote_table(schema.table)} "
                + text.clause
            )
            with connection.cursor() as cursor:
                cursor.execute("SHOW WARNINGS")
                warnings = [row for row in cursor.fetchall() if row[1] != 1265]
                assert warnings == []  # 1265: index 0 of an ENUM
