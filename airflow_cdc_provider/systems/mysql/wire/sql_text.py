"""Rows become the `(..),(..)` of an INSERT, or the list of an IN, without Python objects.

A row's text must mean the same under every sql_mode (NO_BACKSLASH_ESCAPES included) and every
connection charset. So a text is quoted only if it is plain: printable ASCII without quote and
backslash. Any other is written in hexadecimal, `_utf8mb4 x'..'`, and binary always is, `x'..'`.
Whether a column is plain takes one look at its bytes through a table; of a column that is not,
only the rows concerned pay for it. Numbers are bare, floats are quoted (as literals, -0 and long
digits would be integers or decimals first), temporals are quoted.

All columns are joined in one C++ pass over the columns and the constant text between them; the
row's offsets in the result are the exact byte counts that fill a statement up to the server's
max_allowed_packet.

The sink's session needs `time_zone = '+00:00'`, and NO_AUTO_VALUE_ON_ZERO for tables that count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, binaries_of, binary_scalar, mask_of
from airflow_cdc_provider.columns.byte_views import string_bytes, string_offsets
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.charsets import UTF8_CHARSETS
from airflow_cdc_provider.systems.mysql.dialect.value_text import value_text

_PLAIN = np.zeros(256, np.bool_)
_PLAIN[0x20:0x7F] = True
_PLAIN[[ord("'"), ord("\\")]] = False
_NOT_ASCII = frozenset({"ucs2", "utf16", "utf16le", "utf32", "swe7"})
"""Charsets in which ASCII texts have other bytes."""
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_WIDE_FROM_BYTES = 1 << 30
"""Batches whose text may reach 2 GiB need 64-bit offsets."""


@dataclass(frozen=True, slots=True)
class RowsText:
    """Rows as SQL text; row i is `body[offsets[i] + 1 : offsets[i + 1]]`.

    The byte before each row is the comma that parts it from the one before, so any run of rows
    is one slice of `body`.
    """

    body: memoryview = field(repr=False)
    offsets: IntArray = field(repr=False)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    def run(self, first: int, end: int) -> memoryview:
        """Return the rows from `first` to before `end` as text, with commas between."""
        return self.body[int(self.offsets[first]) + 1 : int(self.offsets[end])]

    def runs(self, limit: int) -> Iterator[tuple[int, int]]:
        """Yield `first, end` of runs of rows whose text has at most `limit` bytes.

        A row that is longer by itself is a run of its own.
        """
        first = 0
        while first < self.rows:
            reach = int(self.offsets[first]) + 1 + limit
            end = int(np.searchsorted(self.offsets, reach, side="right")) - 1
            end = max(end, first + 1)
            yield first, end
            first = end


@dataclass(frozen=True, slots=True)
class _Piece:
    """A column's values as text, with the constant text before and after each."""

    text: pa.Array
    before: bytes = b""
    after: bytes = b""


def values_sql(rows: pa.RecordBatch, columns: Sequence[Column]) -> RowsText:
    """Return rows as the text `(..),(..)` of an INSERT, with `columns` in their order."""
    return _joined(rows, columns, b",(", b")")


def key_list(
    rows: pa.RecordBatch, columns: Sequence[Column], *, own_charset: bool = False
) -> RowsText:
    """Return keys as the text of a list for `key IN (..)` or `(k1, k2) IN (..)`.

    In `(k1, k2) IN (..)` MariaDB compares texts of different charsets byte by byte, and finds
    nothing. With `own_charset` each text is turned into the charset of its column there.
    """
    if len(columns) == 1:
        return _joined(rows, columns, b",", b"")
    return _joined(rows, columns, b",(", b")", own_charset=own_charset)


def column_text(array: pa.Array, column: Column) -> pa.Array:
    """Return a column's values as SQL text; NULL stays NULL."""
    piece = _piece(array, column, own_charset=False)
    text = _as_binary(piece.text, pa.large_binary())
    return _around(text, piece.before, piece.after)


def _joined(
    rows: pa.RecordBatch,
    columns: Sequence[Column],
    opening: bytes,
    closing: bytes,
    *,
    own_charset: bool = False,
) -> RowsText:
    """Return rows as text, each between `opening` and `closing`."""
    if rows.num_rows == 0:
        return RowsText(memoryview(b""), np.zeros(1, np.int64))
    wide = rows.nbytes * 3 + rows.num_rows * len(columns) * 32 > _WIDE_FROM_BYTES
    binary = pa.large_binary() if wide else pa.binary()
    parts: list[pa.Array | pa.Scalar] = []
    between = opening
    for column in columns:
        piece = _piece(rows.column(column.name), column, own_charset=own_charset)
        parts += [binary_scalar(between + piece.before, binary), _as_binary(piece.text, binary)]
        between = piece.after + b","
    parts += [binary_scalar(between[:-1] + closing, binary)]
    text = pc.binary_join_element_wise(
        *parts, binary_scalar(b"", binary), null_handling="replace", null_replacement="NULL"
    )
    return RowsText(memoryview(text.buffers()[2]), string_offsets(text))


def _as_binary(text: pa.Array, binary: pa.DataType) -> pa.Array:
    """Return a text array as a binary array of this type."""
    if pa.types.is_string(text.type):
        text = text.cast(pa.binary())
    return text.cast(binary)


def _piece(array: pa.Array, column: Column, *, own_charset: bool) -> _Piece:
    """Return a column's values as SQL text by their type."""
    kind = array.type
    if pa.types.is_integer(kind) and column.type.name != "year":
        return _Piece(array.cast(pa.string()))
    text = value_text(array, column.type)
    if pa.types.is_decimal(kind):
        return _Piece(text)
    if pa.types.is_binary(kind):
        return _surrounded(hexadecimal(text), b"x'")
    if pa.types.is_string(kind):
        return _text_piece(text.cast(pa.binary()), column if own_charset else None)
    return _surrounded(text.cast(pa.binary()), b"'")


def _surrounded(text: pa.Array, before: bytes) -> _Piece:
    """Return values in quotes; a NULL gets none."""
    if text.null_count == 0:
        return _Piece(text, before, b"'")
    return _Piece(_around(text, before))


def _around(text: pa.Array, before: bytes, after: bytes = b"'") -> pa.Array:
    """Return texts with constant text before and after each."""
    binary = text.type
    parts = (binary_scalar(before, binary), text, binary_scalar(after, binary))
    return pc.binary_join_element_wise(*parts, binary_scalar(b"", binary))


def _text_piece(text: pa.Array, own: Column | None) -> _Piece:
    """Return texts quoted, or in hexadecimal unless plain; converted to the charset of `own`."""
    charset = (own.type.charset or "") if own is not None else ""
    data = string_bytes(text)
    plain = _PLAIN[data]
    if plain.all() and charset not in _NOT_ASCII:
        return _surrounded(text, b"'")
    mask = rows_of(np.flatnonzero(~plain), string_offsets(text))
    if charset in _NOT_ASCII:
        mask[:] = True
    before, after = b"_utf8mb4 x'", b"'"
    if own is not None and charset and charset not in UTF8_CHARSETS:
        before, after = b"CONVERT(_utf8mb4 x'", f"' USING {charset})".encode()
        if own.type.collation:  # else it has the charset's own, which may be another
            after += f" COLLATE {own.type.collation}".encode()
    in_hex = _around(hexadecimal(text.filter(mask_of(mask))), before, after)
    return _Piece(pc.replace_with_mask(_around(text, b"'"), mask_of(mask), in_hex))


def rows_of(places: IntArray, offsets: IntArray) -> BoolArray:
    """Return a mask of the rows that hold the bytes at `places`, counted from the first row."""
    mask = np.zeros(len(offsets) - 1, np.bool_)
    mask[np.searchsorted(offsets, places + offsets[0], side="right") - 1] = True
    return mask


def hexadecimal(binary: pa.Array) -> pa.Array:
    """Return each value as hexadecimal digits."""
    offsets = string_offsets(binary)
    digits = _HEX[string_bytes(binary)]
    wide = (offsets - offsets[0]) * 2
    small = len(wide) == 1 or int(wide[-1]) < 1 << 31
    kind, width = (pa.binary(), np.int32) if small else (pa.large_binary(), np.int64)
    if len(binary) == 0:
        return binaries_of([], kind)
    buffers = [_validity(binary), pa.py_buffer(wide.astype(width)), pa.py_buffer(digits)]
    return pa.Array.from_buffers(kind, len(binary), buffers)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Return an array's validity bitmap, None if nothing is NULL."""
    if array.null_count == 0:
        return None
    valid = as_numpy(array.is_valid())
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
