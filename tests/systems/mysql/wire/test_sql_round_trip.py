"""Rows written as SQL text and as LOAD DATA arrive in a copy of the table byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_type
from airflow_cdc_provider.systems.mysql.wire.load_text import LoadText, load_chunk, load_rows
from airflow_cdc_provider.systems.mysql.wire.sql_text import values_sql
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_chunks, select_rows
from tests.systems.mysql.wire.test_select_decoding import fill_every_type
from tests.systems.mysql.wire.type_cases import (
    MARIADB,
    MYSQL,
    create_statement,
    every_type_schema,
)

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


@pytest.fixture(params=[MYSQL, MARIADB])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(f"{kind}_server")
    return found


REWRITTEN = {
    *("c_bit64", "c_year", "c_float", "c_double", "c_decimal_65", "c_timestamp6", "c_time6"),
    *("c_char", "c_varchar", "c_latin1", "c_gbk", "c_text_long", "c_enum", "c_set", "c_json"),
    *("c_binary", "c_varbinary", "c_blob", "c_geometry", "c_vector", "c_uuid", "c_inet6"),
}
"""Every kind of text the protocol has."""

Tables = tuple[TableSchema, TableSchema]


@pytest.fixture
def tables(server: SqlServer, kind: str, fresh_database: Callable[[SqlServer], str]) -> Tables:
    """A filled table of every type and an empty copy."""
    database = fresh_database(server)
    source = fill_every_type(server, database, kind)
    copy = TableId(database, "copied")
    server.execute(create_statement(copy, kind))
    return every_type_schema(source, kind), every_type_schema(copy, kind)


def test_inserted_values_of_every_type_arrive_unchanged(server: SqlServer, tables: Tables) -> None:
    source, copy = tables
    insert(server, copy, select_rows(server, source))
    assert different(server, source, copy) == []


def test_inserted_values_mean_the_same_without_backslash_escapes(
    server: SqlServer, tables: Tables
) -> None:
    source, copy = tables
    modes = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"
    session = ("SET NAMES gbk", "SET time_zone = '+00:00'", modes)
    insert(server, copy, select_rows(server, source), session)
    assert different(server, source, copy) == []


def test_loaded_rows_of_every_type_arrive_unchanged(
    server: SqlServer, tables: Tables, tmp_path: Path
) -> None:
    source, copy = tables
    rows = select_rows(server, source)
    load(server, copy, [load_rows(batch, copy.columns) for batch in rows.to_batches()], tmp_path)
    assert different(server, source, copy) == []


@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
def test_chunks_rewritten_where_they_stand_arrive_unchanged(
    server: SqlServer, tables: Tables, tmp_path: Path, chunk_bytes: int
) -> None:
    source, copy = tables
    ways, clauses = set(), set()
    for column in source.columns:
        if column.name not in REWRITTEN:
            continue
        part = TableSchema(source.table, (source.columns[0], column), ("id",))
        copied = TableSchema(copy.table, part.columns, ("id",))
        decoder = TextDecoder(part)
        sql = f"SELECT {decoder.select_list} FROM {quote_table(source.table)}"
        texts = []
        for chunk in select_chunks(server, sql, chunk_bytes=chunk_bytes):
            text = load_chunk(chunk, decoder.columns)
            ways.add(text is not None)
            clauses.add("NULL" in text.clause if text else None)
            texts.append(text or load_rows(decoder.to_arrow(chunk), decoder.columns))
        server.execute(f"DELETE FROM {quote_table(copy.table)}")
        load(server, copied, texts, tmp_path)
        assert different(server, part, copied) == [], column.name
    assert ways == {True, False}
    assert clauses >= {True, None}
