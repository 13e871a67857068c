"""Keys of many rows at once: which are the same, and which lie in a range.

**The same.** Keys become codes: small integers, equal for equal keys. With codes, "the last
change of each key" is one numpy assignment and no sort. Keys are equal here if their values of
the value model are: texts byte by byte, whatever their collation.

**In a range.** Only for kinds whose order Arrow and MySQL share (`core.keys.comparable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.keys import Key, KeyRange

KeyColumns = Sequence[pa.Array]
"""One array for each key column, all of the same length."""

_SPARSE = 4
"""An integer range may be this many times wider than it has values to be used as codes."""


@dataclass(frozen=True, slots=True)
class KeyCodes:
    """Codes for keys in some groups: equal keys have equal codes, from 0 to below `count`."""

    groups: tuple[IntArray, ...]
    count: int


def key_codes(groups: Sequence[KeyColumns]) -> KeyCodes:
    """Return a code for each key of all groups, equal for equal keys."""
    return _codes(groups, _column_codes)


def row_codes(groups: Sequence[KeyColumns]) -> KeyCodes:
    """Return a code for each row of all groups; equal for rows equal in every bit, also NULL."""
    return _codes(groups, _value_codes)


def _codes(
    groups: Sequence[KeyColumns], of_column: Callable[[pa.Array], tuple[IntArray, int]]
) -> KeyCodes:
    """Return codes for rows of several columns, from each column's codes."""
    sizes = [len(group[0]) for group in groups]
    columns = [
        of_column(pa.concat_arrays([group[i] for group in groups])) for i in range(len(groups[0]))
    ]
    codes, count = reduce(_paired, columns)
    if count > _SPARSE * len(codes) + 1024:
        codes, count = _dense(codes)
    return KeyCodes(tuple(np.split(codes, np.cumsum(sizes)[:-1])), count)


def _column_codes(values: pa.Array) -> tuple[IntArray, int]:
    """Return codes for one key column's values; `ValueRefusedError` if one is NULL."""
    if values.null_count:
        raise ValueRefusedError(
            "a key column holds NULL, which no key does",
            risk="rows could not be told apart",
            remedy="if it is a zero date, set source.zero_dates to text or fail",
        )
    if pa.types.is_integer(values.type) and len(values):
        numbers = as_numpy(values)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _SPARSE * len(numbers) + 1024:
            wide = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
            return (wide - wide.dtype.type(low)).astype(np.int64), high - low + 1
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # -0.0 and 0.0 are one key
    if pa.types.is_decimal(values.type) or pa.types.is_temporal(values.type):
        values = _bytes_of(values)
    encoded = values.dictionary_encode()
    return as_numpy(encoded.indices).astype(np.int64), max(1, len(encoded.dictionary))


def _value_codes(values: pa.Array) -> tuple[IntArray, int]:
    """Return an integer for each value, the same where all bits are the same; NULL has one too."""
    if pa.types.is_floating(values.type):
        values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
    encoded = values.dictionary_encode(null_encoding="encode")
    return as_numpy(encoded.indices).astype(np.int64), max(1, len(encoded.dictionary))


def _bytes_of(values: pa.Array) -> pa.Array:
    """Return fixed-width values as bytes or integers, which hash faster."""
    width = values.type.bit_width // 8
    kind = {4: pa.int32(), 8: pa.int64()}.get(width, pa.binary(width))
    return pa.Array.from_buffers(kind, len(values), [None, values.buffers()[1]], 0, values.offset)


def _paired(left: tuple[IntArray, int], right: tuple[IntArray, int]) -> tuple[IntArray, int]:
    """Combine two columns' codes to one; made dense first where the product could overflow."""
    if left[1] * right[1] >= 1 << 62:
        left, right = _dense(left[0]), _dense(right[0])
    return left[0] * right[1] + right[0], left[1] * right[1]


def _dense(codes: IntArray) -> tuple[IntArray, int]:
    """Renumber codes so that none is unused."""
    encoded = numbers_of(codes).dictionary_encode()
    return as_numpy(encoded.indices).astype(np.int64), max(1, len(encoded.dictionary))


def in_range(columns: KeyColumns, keys: KeyRange) -> BoolArray:
    """Return a mask of the keys in the range; a bound may be a prefix of the key."""
    inside = np.ones(len(columns[0]), np.bool_)
    if keys.start is not None:
        inside &= ~_before(columns, keys.start)
    if keys.end is not None:
        inside &= _before(columns, keys.end)
    return inside


def _before(columns: KeyColumns, bound: Key) -> BoolArray:
    """Return a mask of the keys that are less than a bound."""
    before = np.zeros(len(columns[0]), np.bool_)
    level = np.ones(len(columns[0]), np.bool_)
    for values, part in zip(columns, bound, strict=False):
        limit = key_column([part], values.type)[0]
        before |= level & as_numpy(pc.less(values, limit))
        level &= as_numpy(pc.equal(values, limit))
    return before
