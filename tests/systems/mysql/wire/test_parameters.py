"""The values of a prepared statement: from Arrow and from the server's own bytes, read back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.wire.parameters import (
    RowParameters,
    chunk_parameters,
    parameter_types,
    placeholders,
    row_parameters,
)
from airflow_cdc_provider.systems.mysql.wire.text_protocol import RowFramer, TextChunk

COLUMNS = (
    Column("a", mysql_type("varchar", charset="utf8mb4")),
    Column("b", mysql_type("longblob")),
    Column("c", mysql_type("bit", length=9)),
)
LENGTHS = (0, 1, 249, 250, 251, 252, 65_535, 65_536, 70_000)
texts = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(LENGTHS).map(lambda n: "x" * n))
data = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from(LENGTHS).map(bytes))
rows = st.lists(st.tuples(texts, data, st.integers(0, 511)), min_size=1, max_size=12)
Row = tuple[bytes | None, ...]


def read(parameters: RowParameters) -> list[Row]:
    """Read values back as a server does: one after the other, NULLs told by the mask."""
    found: list[Row] = []
    for row in range(parameters.rows):
        body, at = bytes(parameters.run(row, row + 1)), 0
        values: list[bytes | None] = []
        for column in range(len(COLUMNS)):
            if parameters.nulls is not None and parameters.nulls[row, column]:
                values.append(None)
                continue
            first, width = body[at], 0
            if first > 250:
                width = {252: 2, 253: 3, 254: 8}[first]
                first = int.from_bytes(body[at + 1 : at + 1 + width], "little")
            at += 1 + width
            values.append(body[at : at + first])
            at += first
        assert at == len(body)
        found.append(tuple(values))
    return found


def expected(given_rows: list[tuple[str | None, bytes | None, int]]) -> list[Row]:
    return [(None if a is None else a.encode(), b, str(c).encode()) for a, b, c in given_rows]


def chunk_of(values: list[Row]) -> TextChunk:
    """The same rows as packets of the text protocol."""
    framer = RowFramer(len(COLUMNS))
    for number, row in enumerate(values):
        body = b"".join(b"\xfb" if v is None else _length(len(v)) + v for v in row)
        framer.feed(len(body).to_bytes(3, "little") + bytes([number % 256]) + body)
    framer.feed(b"\5\0\0\0\xfe\0\0\2\0")
    chunk = framer.chunk()
    assert chunk is not None
    return chunk


def _length(size: int) -> bytes:
    if size < 251:
        return bytes([size])
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little")
    return b"\xfd" + size.to_bytes(3, "little")


@given(rows)
def test_arrow_rows_are_the_values_a_server_reads(
    values: list[tuple[str | None, bytes | None, int]],
) -> None:
    kinds = (pa.string(), pa.binary(), pa.uint64())
    arrays = [pa.array(v, k) for v, k in zip(zip(*values, strict=True), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["a", "b", "c"])
    assert read(row_parameters(batch, COLUMNS)) == expected(values)
    assert read(row_parameters(batch.slice(1), COLUMNS)) == expected(values[1:])


@given(rows)
def test_the_servers_own_bytes_are_the_same_values(
    values: list[tuple[str | None, bytes | None, int]],
) -> None:
    wanted = expected(values)
    chunk = chunk_of(wanted)
    before = bytes(chunk.buffer)
    parameters = chunk_parameters(chunk, COLUMNS)
    assert parameters is not None
    assert read(parameters) == wanted
    assert bytes(chunk.buffer) == before


@given(rows, st.integers(0, 12), st.integers(1, 12), st.integers(-5, 200_000))
def test_a_run_reaches_as_far_as_both_limits_let_it(
    values: list[tuple[str | None, bytes | None, int]], first: int, most: int, size: int
) -> None:
    parameters = chunk_parameters(chunk_of(expected(values)), COLUMNS)
    assert parameters is not None
    first = min(first, parameters.rows - 1)
    end = max(first, parameters.reach(first, rows=most, size=size))
    assert end - first <= most
    assert end == first or len(parameters.run(first, end)) <= size
    if end < parameters.rows and end - first < most:
        assert len(parameters.run(first, end + 1)) > size


def test_bits_are_cast_and_bytes_are_no_text() -> None:
    assert placeholders(COLUMNS) == "(?,?,CAST(? AS UNSIGNED))"
    assert np.frombuffer(parameter_types(COLUMNS), "<u2").tolist() == [253, 252, 253]
