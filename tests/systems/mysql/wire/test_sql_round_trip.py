"""Rows written as SQL text and as LOAD DATA arrive in a copy of the table byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.wire.load_text import load_chunk, load_rows
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_chunks, select_rows
from tests.systems.mysql.wire.round_trips import different, insert, load
from tests.systems.mysql.wire.selected_rows import fill_every_type
from tests.systems.mysql.wire.type_cases import (
    MARIADB,
    MYSQL,
    create_statement,
    every_type_schema,
)


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
