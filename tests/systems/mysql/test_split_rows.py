"""Rows as they were read, decoded when asked for."""

from __future__ import annotations

import numpy as np

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.source.split_rows import TextRows
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk

_SCHEMA = TableSchema(TableId("d", "t"), (Column("id", mysql_type("int")),), ("id",))


def _chunk(digit: str) -> TextChunk:
    row = b"\x02\0\0\0\x01" + digit.encode()
    return TextChunk(bytearray(row), np.array([0, len(row)], np.int64), 1)


def test_draining_gives_all_rows_in_order_and_keeps_no_chunk() -> None:
    rows = TextRows((_chunk("3"), _chunk("1")), TextDecoder(_SCHEMA))
    batches = rows.drained()
    first = next(batches)
    assert rows.native_chunks() == ()
    assert [batch.to_pylist() for batch in (first, *batches)] == [[{"id": 3}], [{"id": 1}]]
