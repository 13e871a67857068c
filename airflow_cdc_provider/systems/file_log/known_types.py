"""Types that every reader of Parquet knows, without unsigned numbers."""

from __future__ import annotations

import pyarrow as pa

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""The types that hold the same numbers for readers without unsigned ones, such as Spark."""


def known_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which readers without unsigned numbers get the same values."""
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, known_type(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(known_type(kind.value_type))
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    return _UNSIGNED.get(kind, kind)
