"""Between Arrow's arrays and what NumPy and Python hold, by their buffers.

Where pandas is installed, the first `pa.array`, `pa.scalar` or `to_numpy` of a process imports it,
only to know its objects: a second of CPU and 50 MB in each of Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray

_BINARY = pa.binary()
_LARGE = frozenset({pa.large_binary(), pa.large_string()})
_MOST_BYTES = (1 << 31) - 1


def as_arrow(values: npt.NDArray[Any], nulls: BoolArray | None, wanted: pa.DataType) -> pa.Array:
    """Return an Arrow array that shares the memory of a NumPy array; `nulls` marks the NULLs."""
    validity, count = validity_of(nulls)
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(wanted, len(values), buffers, count)


def validity_of(nulls: BoolArray | None) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap and the number of nulls."""
    if nulls is None:
        return None, 0
    bits = np.packbits(~nulls, bitorder="little")
    return pa.py_buffer(bits), int(nulls.sum())


def as_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return an Arrow array without NULLs as NumPy numbers or booleans; numbers are not copied."""
    if array.null_count:
        raise ValueError(f"{array.null_count} NULLs are no {array.type}")
    first, behind, buffer = array.offset, array.offset + len(array), array.buffers()[1]
    if pa.types.is_boolean(array.type):
        data = np.frombuffer(buffer, np.uint8) if len(array) else np.zeros(0, np.uint8)
        bits = np.unpackbits(data, count=behind if len(array) else 0, bitorder="little")
        return bits[first:].view(np.bool_)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise TypeError(f"{array.type} is no machine number")
    kind = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(buffer, kind, behind)[first:] if len(array) else np.zeros(0, kind)


def numbers_of(values: IntArray | Sequence[int]) -> pa.Array:
    """Return whole numbers as a 64-bit Arrow array, such as the row numbers for `take`."""
    return as_arrow(np.asarray(values, np.int64), None, pa.int64())


def mask_of(chosen: BoolArray | Sequence[bool]) -> pa.BooleanArray:
    """Return booleans as an Arrow mask for `filter`."""
    bits = pa.py_buffer(np.packbits(np.asarray(chosen, np.bool_), bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, bits], 0)


def texts_of(values: Sequence[str | None]) -> pa.StringArray:
    """Return texts as an Arrow array of strings."""
    data = [None if value is None else value.encode() for value in values]
    return binaries_of(data, pa.string())


def binaries_of(values: Sequence[bytes | None], kind: pa.DataType = _BINARY) -> pa.Array:
    """Return bytes as an Arrow array of a binary or string type; strings must be UTF-8."""
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    if kind not in _LARGE:
        if int(offsets[-1]) > _MOST_BYTES:
            raise OverflowError(f"{int(offsets[-1])} bytes do not fit into one array of {kind}")
        offsets = offsets.astype(np.int32)
    joined = b"".join([value for value in values if value is not None])
    nulls = np.array([value is None for value in values], np.bool_)
    validity, count = validity_of(nulls if nulls.any() else None)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(values), buffers, count)


def binary_scalar(value: bytes, kind: pa.DataType = _BINARY) -> pa.Scalar:
    """Return bytes as an Arrow scalar of a binary or string type."""
    return binaries_of([value], kind)[0]


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return a table's rows as one record batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
