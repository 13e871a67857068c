"""A column's values as Debezium writes them.

Where Debezium leaves a choice, the one that loses nothing:

=====================  =================================  =======================================
option                 setting                            values
=====================  =================================  =======================================
decimal handling       string                             DECIMAL as digits, `"12.50"`
time precision         adaptive_time_microseconds         TIME in microseconds; DATE in days since
                                                          1970; DATETIME in milliseconds up to 3
                                                          digits of a fraction, else microseconds
unsigned BIGINT        long                               a number; above 2^63 it goes on, where
                                                          Debezium's turns negative
binary handling        bytes                              base64 in JSON, bytes in Parquet
=====================  =================================  =======================================

TIMESTAMP is text in UTC. BIT(1) is true or false, a longer BIT its bytes, the lowest first. A
GEOMETRY is its WKB and SRID, a POINT has x and y beside them; a VECTOR is a list of numbers. An
ENUM that is no member is the empty text, as long as that is no member. JSON is the server's own
text, whose blanks differ from Debezium's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy, texts_of, validity_of
from airflow_cdc_provider.columns.byte_views import string_bytes, string_offsets
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.columns.plain_text import decimal_text, timestamp_text
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.systems.file_log.tree import Many, Members, Value

_SRID_BYTES = 4
_POINT_BYTES = _SRID_BYTES + 1 + 4 + 8 + 8
_MILLIS = 3
"""Digits of a fraction up to which a DATETIME is in milliseconds."""
_MOST_DIGITS = 38
"""Of a decimal in Spark, DuckDB and Arrow's narrower type."""


def debezium_values(array: pa.Array, column_type: ColumnType) -> Value:
    """Return a column's values as Debezium writes them."""
    special = _BY_KIND.get(column_type.kind)
    if special is not None and not pa.types.is_string(array.type):
        return special(array, column_type)
    if column_type.kind is TypeKind.ENUM and "" not in column_type.members:
        return _members_only(array, column_type)
    kind = array.type
    if pa.types.is_decimal(kind):
        return decimal_text(array)
    if pa.types.is_date(kind):
        return array.cast(pa.int32())
    if pa.types.is_duration(kind):
        return array.cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return _moments(array, column_type)
    return array


def native_values(array: pa.Array, column_type: ColumnType) -> Value:
    """Return a column's values for Parquet, in Parquet's own types where readers know them.

    What readers know no type for stays as Debezium has it: a DECIMAL of more digits than theirs is
    text, a TIME, which may be a month long, is microseconds.
    """
    kind = array.type
    is_moment = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if is_moment or (pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS):
        return array
    return debezium_values(array, column_type)


def _members_only(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return ENUM texts with the empty text for the value that is no member."""
    none = texts_of([column_type.no_member])[0]
    return pc.if_else(pc.equal(array, none), texts_of([""])[0], array)


def _moments(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return DATETIME as milli- or microseconds since 1970, TIMESTAMP as text in UTC."""
    if array.type.tz is None:
        unit = "ms" if column_type.fraction <= _MILLIS else "us"
        return array.cast(pa.timestamp(unit)).cast(pa.int64())
    text = timestamp_text(array, column_type.fraction)
    date, time = pc.utf8_slice_codeunits(text, 0, 10), pc.utf8_slice_codeunits(text, 11)
    joined = pc.binary_join_element_wise(date, time, texts_of(["T"])[0])
    return pc.binary_join_element_wise(joined, texts_of(["Z"])[0], texts_of([""])[0])


def _bits(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return BIT(1) as booleans, a longer BIT as bytes, the lowest first."""
    bits = column_type.length or 1
    if bits == 1:
        return array.cast(pa.bool_())
    count = -(-bits // 8)
    numbers = as_numpy(array.fill_null(0)).astype("<u8")
    data = numbers.view(np.uint8).reshape(-1, 8)[:, :count]
    return _binaries(data, array)


def _binaries(rows: ByteArray, like: pa.Array) -> pa.Array:
    """Return rows of bytes of one length as an array, NULL where another array is NULL."""
    offsets = (np.arange(len(rows) + 1) * rows.shape[1]).astype(np.int32)
    validity, count = validity_of(as_numpy(like.is_null()) if like.null_count else None)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers, count)


def _geometry(array: pa.Array, column_type: ColumnType) -> Members:
    """Return GEOMETRY values as WKB and SRID, a POINT with x and y too."""
    nulls = as_numpy(array.is_null())
    starts = string_offsets(array)[:-1] - string_offsets(array)[0]
    data = string_bytes(array)
    srid = _numbers_at(data, np.where(nulls, -1, starts), "<u4").astype(np.int64)
    wkb = _without_srid(array, starts[~nulls])
    members: list[tuple[str, Value]] = [
        ("wkb", wkb),
        ("srid", as_arrow(srid.astype(np.int32), nulls | (srid == 0), pa.int32())),
    ]
    if column_type.kind is TypeKind.POINT:
        first = np.where(nulls, -1, starts + _SRID_BYTES + 5)
        x, y = _numbers_at(data, first, "<f8"), _numbers_at(data, first, "<f8", 8)
        members = [
            ("x", as_arrow(x, nulls, pa.float64())),
            ("y", as_arrow(y, nulls, pa.float64())),
            *members,
        ]
    return Members(tuple(members), nulls)


def _without_srid(array: pa.Array, starts: IntArray) -> pa.Array:
    """Return GEOMETRY values without their SRID; `starts` are the values' offsets."""
    data, offsets = string_bytes(array), string_offsets(array)
    kept = np.ones(len(data), np.bool_)
    kept[(starts[:, None] + np.arange(_SRID_BYTES)).ravel()] = False
    ends = np.concatenate([[0], np.cumsum(kept)])[offsets - offsets[0]].astype(np.int32)
    nulls = as_numpy(array.is_null()) if array.null_count else None
    validity, count = validity_of(nulls)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(data[kept])]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers, count)


def _numbers_at(
    data: ByteArray, places: IntArray, kind: str, behind: int = 0
) -> npt.NDArray[np.float64]:
    """Read numbers at offsets of bytes, 0 where an offset is negative."""
    size = np.dtype(kind).itemsize
    known = places >= 0
    wanted = (places[known] + behind)[:, None] + np.arange(size)
    found = np.zeros(len(places), kind)
    found[known] = np.ascontiguousarray(data[wanted]).view(kind).ravel()
    return found


def _vector(array: pa.Array, column_type: ColumnType) -> Many:  # noqa: ARG001 - as the others
    """Return VECTOR values as lists of numbers."""
    offsets = string_offsets(array)
    numbers = np.frombuffer(string_bytes(array).tobytes(), "<f4")
    ends = (offsets - offsets[0]) // 4
    nulls = as_numpy(array.is_null()) if array.null_count else None
    return Many(ends, as_arrow(numbers, None, pa.float32()), nulls)


_BY_KIND = {
    TypeKind.BITS: _bits,
    TypeKind.GEOMETRY: _geometry,
    TypeKind.POINT: _geometry,
    TypeKind.VECTOR: _vector,
}
