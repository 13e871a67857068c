"""Values as a lake has them, turned back into the value model's: the inverse of `lake.rows`.

Only where the type alone does not say the value: numbers, texts, dates and moments are compared by
value whatever their Arrow type is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    as_numpy,
    binaries_of,
    texts_of,
    validity_of,
)
from airflow_cdc_provider.columns.byte_views import string_bytes, string_offsets
from airflow_cdc_provider.columns.plain_text import decimal_text, timestamp_text
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind

_WORD = 8
_MOST_DIGITS = 76
_SECOND_US = 1_000_000


def model_values(stored: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a column's values in the value model."""
    known = _BY_KIND.get(column_type.kind)
    return stored if known is None else known(stored, column_type)


def plain_key(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a key's values as they are, dates as texts; `values` are of the value model."""
    return _moment_text(values, column_type) if pa.types.is_temporal(values.type) else values


def key_text(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a key's values as a server gives them (`mysql.verify`): texts, but for doubles."""
    kind = values.type
    if pa.types.is_temporal(kind):
        return _moment_text(values, column_type)
    if pa.types.is_decimal(kind):
        return decimal_text(values)
    if pa.types.is_floating(kind):
        return values
    if pa.types.is_binary(kind):
        return texts_of([each.hex().upper() for each in values.to_pylist()])
    if column_type.kind is TypeKind.ENUM:
        is_none = pc.equal(values, column_type.no_member) if column_type.no_member else None
        marked = pc.binary_join_element_wise("0", values, "")
        return marked if is_none is None else pc.if_else(is_none, "1", marked)
    return values.cast(pa.string())


def _bits(stored: pa.Array, _type: ColumnType) -> pa.Array:
    """Return the number of a BIT: of true and false, or of bytes, the lowest first."""
    if pa.types.is_boolean(stored.type):
        return stored.cast(pa.uint64())
    nulls = as_numpy(stored.is_null())
    offsets = string_offsets(stored)
    width = int(np.diff(offsets).max(initial=0))
    data = string_bytes(stored.drop_null()).reshape(-1, max(width, 1))
    words = np.zeros((len(stored), _WORD), np.uint8)
    words[~nulls, : data.shape[1]] = data
    return as_arrow(words.view("<u8").ravel(), nulls, pa.uint64())


def _decimals(stored: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return the decimals of texts, which those of more digits than readers know are."""
    if not pa.types.is_string(stored.type):
        return stored
    return stored.cast(pa.decimal256(_MOST_DIGITS, column_type.scale or 0))


def _times(stored: pa.Array, _type: ColumnType) -> pa.Array:
    """Return the durations of microseconds, which a TIME is; dates and moments are themselves."""
    return stored.cast(pa.duration("us")) if pa.types.is_integer(stored.type) else stored


def _members(stored: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return ENUM texts with the one of no member in the place of the empty text."""
    if "" in column_type.members:
        return stored
    return pc.if_else(pc.equal(stored, ""), column_type.no_member, stored)


def _geometry(stored: pa.Array, _type: ColumnType) -> pa.Array:
    """Return geometries as a server has them: the SRID in four bytes, then the WKB."""
    srids = np.asarray(as_numpy(stored.field("srid").fill_null(0))).astype("<u4")
    shapes = stored.field("wkb").to_pylist()
    is_there = as_numpy(stored.is_valid())
    return binaries_of(
        [
            srid.tobytes() + wkb if there and wkb is not None else None
            for srid, wkb, there in zip(srids, shapes, is_there, strict=True)
        ]
    )


def _vector(stored: pa.Array, _type: ColumnType) -> pa.Array:
    """Return vectors as a server has them: each number in four bytes."""
    numbers = as_numpy(stored.flatten().cast(pa.float32())).astype("<f4")
    ends = np.cumsum(as_numpy(pc.list_value_length(stored).fill_null(0)) * 4)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    validity, count = validity_of(as_numpy(stored.is_null()) if stored.null_count else None)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(stored), buffers, count)


def _moment_text(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return dates, moments and times as servers write them."""
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return timestamp_text(values, column_type.fraction)
    micros = as_numpy(values.cast(pa.int64()))
    whole, part = np.divmod(np.abs(micros), _SECOND_US)
    texts = [
        f"{'-' if micro < 0 else ''}{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        + (f".{rest:06d}"[: column_type.fraction + 1] if column_type.fraction else "")
        for micro, second, rest in zip(micros.tolist(), whole.tolist(), part.tolist(), strict=True)
    ]
    return texts_of(texts)


_BY_KIND: dict[TypeKind, Callable[[pa.Array, ColumnType], pa.Array]] = {
    TypeKind.BITS: _bits,
    TypeKind.DECIMAL: _decimals,
    TypeKind.TEMPORAL: _times,
    TypeKind.ENUM: _members,
    TypeKind.GEOMETRY: _geometry,
    TypeKind.POINT: _geometry,
    TypeKind.VECTOR: _vector,
}
