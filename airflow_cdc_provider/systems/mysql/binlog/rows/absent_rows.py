"""Rows that are not there: the before side of inserts, the after side of deletes.

They are record batches like others, all NULL. Their arrays share one buffer of zeros, which is
the bitmap of no values, the offsets of empty texts and any number at once; so they cost the same
for one row as for a hundred thousand, and take no memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_WIDEST = 32
"""Bytes of the widest value, `decimal256`."""
_SMALLEST = 1 << 16
_zeros: list[pa.Buffer] = [pa.py_buffer(bytes(_SMALLEST))]
"""The largest buffer of zeros made so far; never written to."""


def absent_rows(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return a record batch of `count` rows that are all NULL."""
    zeros = _zeros[-1]
    needed = (count + 1) * _WIDEST
    if zeros.size < needed:
        zeros = pa.py_buffer(bytes(2 * needed))
        _zeros[:] = [zeros]
    arrays = [
        pa.Array.from_buffers(kind, count, [zeros] * (3 if _has_offsets(kind) else 2), count)
        for kind in schema.types
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def are_absent(batches: Sequence[pa.RecordBatch]) -> bool:
    """Tell whether the batches hold no value at all."""
    return all(column.null_count == batch.num_rows for batch in batches for column in batch.columns)


def _has_offsets(kind: pa.DataType) -> bool:
    """Tell whether arrays of a type have a buffer of offsets."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
