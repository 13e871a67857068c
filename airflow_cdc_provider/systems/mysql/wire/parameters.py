"""Rows become the values of a prepared statement, in the binary form the server takes as it is.

A prepared `INSERT .. VALUES (?,..),(?,..)` costs the server no parsing. Its values stand one after
the other, each as `[length][bytes]`, and which of them are NULL is told by a bit each. A row of
the text protocol has the very same form, but for its packet header and the single byte that
stands for a NULL:

**From the text protocol** (`chunk_parameters`) these bytes are left out in one vector step, and
what remains is sent. No field is looked at, however long it is and whatever it holds.

**From Arrow** (`row_parameters`) the values' texts get their lengths before them, and all columns
are joined in one C++ pass.

Every value is sent as text and the server turns it into the column's type, as it does for LOAD
DATA. Binary values are sent as BLOB, which keeps the server from taking them for UTF-8. BIT
arrives as digits and is cast, or its digits' bytes would be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, binary_scalar
from airflow_cdc_provider.columns.byte_views import string_offsets
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.dialect.value_text import value_text
from airflow_cdc_provider.systems.mysql.wire.load_text import has_zero_dates, is_bytes
from airflow_cdc_provider.systems.mysql.wire.packet_chain import HEADER_BYTES
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk
from airflow_cdc_provider.systems.mysql.wire.text_values import comes_as_bytes

_TEXT, _BLOB = b"\xfd\0", b"\xfc\0"
"""MYSQL_TYPE_VAR_STRING and MYSQL_TYPE_BLOB, both signed."""
_ONE_BYTE_BELOW = 251
_LENGTHS = ((1 << 16, 0xFC, 3), (1 << 24, 0xFD, 4), (1 << 63, 0xFE, 9))
"""Up to which length, the mark before it, and the bytes of both."""


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Rows encoded as parameters of a prepared statement; row i is in `body` by `offsets`."""

    body: memoryview = field(repr=False)
    offsets: IntArray = field(repr=False)
    nulls: BoolArray | None = field(repr=False)
    """Which values are NULL, rows by columns; None if none is."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    def run(self, first: int, end: int) -> memoryview:
        """Return the encoded rows from `first` to before `end`."""
        return self.body[int(self.offsets[first]) : int(self.offsets[end])]

    def reach(self, first: int, *, rows: int, size: int) -> int:
        """Return the end of a run of rows from `first`, of at most `rows` rows and `size` bytes."""
        limit = int(self.offsets[first]) + size
        end = int(np.searchsorted(self.offsets, limit, side="right")) - 1
        return min(end, first + rows, self.rows)


def placeholders(columns: Sequence[Column]) -> str:
    """Return the placeholders of one row in a prepared INSERT."""
    marks = ("CAST(? AS UNSIGNED)" if c.type.name == "bit" else "?" for c in columns)
    return f"({','.join(marks)})"


def parameter_types(columns: Sequence[Column]) -> bytes:
    """Return the type codes of one row's parameters."""
    return b"".join(_BLOB if is_bytes(column) else _TEXT for column in columns)


def chunk_parameters(
    chunk: TextChunk, columns: Sequence[Column], zero_dates: ZeroDates = ZeroDates.TEXT
) -> RowParameters | None:
    """Encode a chunk of the server's bytes as parameters; None if Arrow is needed.

    Arrow is needed for texts of another charset, and zero or partial dates unless they are
    to arrive as they are (`ZeroDates.TEXT`).
    """
    if any(comes_as_bytes(column.type) for column in columns):
        return None
    fields = chunk.fields()
    if zero_dates is not ZeroDates.TEXT and has_zero_dates(chunk, fields, columns):
        return None
    data = chunk.data()
    kept = np.ones(len(data), np.bool_)
    for i in range(HEADER_BYTES):
        kept[chunk.starts + i] = False
    left_out = np.arange(chunk.rows + 1, dtype=np.int64) * HEADER_BYTES
    nulls = None
    if any(located.null is not None for located in fields):
        nulls = np.zeros((chunk.rows, len(columns)), np.bool_)
        for number, located in enumerate(fields):
            if located.null is not None:
                nulls[:, number] = located.null
                kept[located.start[located.null] - 1] = False
        left_out[1:] += np.cumsum(nulls.sum(axis=1))
    body = data[kept]
    return RowParameters(body.data, chunk.edges - left_out, nulls)


def row_parameters(rows: pa.RecordBatch, columns: Sequence[Column]) -> RowParameters:
    """Encode Arrow rows as parameters of a prepared statement."""
    if rows.num_rows == 0:
        return RowParameters(memoryview(b""), np.zeros(1, np.int64), None)
    wide = rows.nbytes * 3 + rows.num_rows * len(columns) * 32 > 1 << 30
    binary = pa.large_binary() if wide else pa.binary()
    parts: list[pa.Array] = []
    nulls: BoolArray | None = None
    for number, column in enumerate(columns):
        array = rows.column(column.name)
        text = value_text(array, column.type)
        if pa.types.is_string(text.type):
            text = text.cast(pa.binary())
        parts += [_lengths(text).cast(binary), text.cast(binary)]
        if array.null_count:
            nulls = np.zeros((rows.num_rows, len(columns)), np.bool_) if nulls is None else nulls
            nulls[:, number] = as_numpy(array.is_null())
    joined = pc.binary_join_element_wise(
        *parts, binary_scalar(b"", binary), null_handling="replace", null_replacement=b""
    )
    offsets = string_offsets(joined)
    return RowParameters(memoryview(joined.buffers()[2]), offsets, nulls)


def _lengths(text: pa.Array) -> pa.Array:
    """Return each value's length as the protocol encodes it, empty for NULL."""
    sizes = np.diff(string_offsets(text))
    widths = np.ones(len(sizes), np.int64)
    if text.null_count:
        null = as_numpy(text.is_null())
        sizes[null] = widths[null] = 0
    low = _ONE_BYTE_BELOW
    for below, _, width in _LENGTHS:
        widths[(sizes >= low) & (sizes < below)] = width
        low = below
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    data = np.zeros(int(offsets[-1]), np.uint8)
    at = offsets[:-1]
    short = np.flatnonzero(widths == 1)
    data[at[short]] = sizes[short]
    for _, mark, width in _LENGTHS:
        rows = np.flatnonzero(widths == width)
        data[at[rows]] = mark
        for i in range(1, width):
            data[at[rows] + i] = (sizes[rows] >> (8 * (i - 1))) & 0xFF
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
