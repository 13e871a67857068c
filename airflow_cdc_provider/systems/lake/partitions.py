"""Rows are parted by the fields of a layout, so that each file has those of one partition.

The values are Iceberg's: https://iceberg.apache.org/spec/#partition-transforms
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.table_layout import PartitionField, Transform
from airflow_cdc_provider.systems.lake.murmur3 import hashes_of_numbers, hashes_of_texts

Value = int | str | bool | None
Partition = tuple[Value, ...]
"""The values that the rows of a file share, in the order of the fields. A date is its days since
1970; a time is years, months, days or hours since then."""


class UnfitLayoutError(Exception):
    """A column's values have no such partitions."""


def parted(
    rows: pa.Table, fields: Sequence[PartitionField]
) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield the rows of each partition; within one they stay in their order.

    `UnfitLayoutError` for a column whose type has no such values.
    """
    if not fields or not rows.num_rows:
        yield (), rows
        return
    values = _values(rows, fields)
    codes = _codes(values)
    places = np.argsort(codes, kind="stable")
    ordered = codes[places]
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    is_one = len(begins) == 1
    there = rows if is_one else rows.take(numbers_of(places))
    for begin, end in zip(begins.tolist(), [*begins.tolist()[1:], len(codes)], strict=True):
        place = int(places[begin])
        yield tuple(each[place].as_py() for each in values), there.slice(begin, end - begin)


def numbered(
    batches: Iterable[pa.Table], fields: Sequence[PartitionField]
) -> tuple[IntArray, dict[Partition, int]]:
    """Return the number of each row's partition, and the numbers of the partitions."""
    known: dict[Partition, int] = {}
    found: list[IntArray] = [np.zeros(0, np.int64)]
    for rows in batches:
        if not fields or not rows.num_rows:
            known.setdefault((), 0)
            found.append(np.zeros(rows.num_rows, np.int64))
            continue
        values = _values(rows, fields)
        _, first, codes = np.unique(_codes(values), return_index=True, return_inverse=True)
        own = [tuple(each[place].as_py() for each in values) for place in first.tolist()]
        numbers = [known.setdefault(partition, len(known)) for partition in own]
        found.append(np.array(numbers, np.int64)[codes])
    return np.concatenate(found), known


def can_be_of(kind: pa.DataType, transform: Transform) -> bool:
    """Tell whether values of a type have a transform."""
    is_number = kind in (pa.int32(), pa.int64())
    is_moment = bool(pa.types.is_timestamp(kind))
    is_time = is_moment or kind == pa.date32()
    match transform:
        case Transform.IDENTITY:
            return is_number or kind in (pa.string(), pa.bool_(), pa.date32())
        case Transform.HOUR:
            return is_moment
        case Transform.YEAR | Transform.MONTH | Transform.DAY:
            return is_time
        case Transform.BUCKET:
            return is_number or is_time or kind == pa.string()
        case _:
            return is_number or kind == pa.string()


def _values(rows: pa.Table, fields: Sequence[PartitionField]) -> list[pa.Array]:
    """Return the fields' values of all rows."""
    return [_value(rows, each) for each in fields]


def _value(rows: pa.Table, field: PartitionField) -> pa.Array:
    """Return one field's values."""
    if field.column not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.int32())
    column = rows.column(field.column).combine_chunks()
    if not can_be_of(column.type, field.transform):
        raise UnfitLayoutError(f"{field}, and {field.column} is {column.type}")
    return _TRANSFORMS[field.transform](column, field.number)


def _identity(column: pa.Array, _: int) -> pa.Array:
    """Return the values; dates as days."""
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _since_1970(unit: str) -> Callable[[pa.Array, int], pa.Array]:
    """Return what makes times numbers of a unit of NumPy's since 1970."""

    def numbers(column: pa.Array, _: int) -> pa.Array:
        own = "D" if pa.types.is_date32(column.type) else "us"
        whole = _filled(column).astype(f"datetime64[{own}]")
        found = whole.astype(f"datetime64[{unit}]").astype(np.int64)
        return pa.array(found.astype(np.int32), mask=_nulls(column))

    return numbers


def _bucket(column: pa.Array, number: int) -> pa.Array:
    """Return a number below `number` for each value, by its hash."""
    is_text = pa.types.is_string(column.type)
    hashes = hashes_of_texts(column) if is_text else hashes_of_numbers(_filled(column))
    found = (hashes & 0x7FFFFFFF).astype(np.int64) % number
    return pa.array(found.astype(np.int32), mask=_nulls(column))


def _truncate(column: pa.Array, number: int) -> pa.Array:
    """Return whole numbers rounded down, and the beginnings of texts."""
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, number)
    numbers = _filled(column)
    least = np.iinfo(column.type.to_pandas_dtype()).min
    if (numbers < least + numbers % number).any():
        raise UnfitLayoutError(f"{numbers.min()} cannot be rounded down by truncate({number})")
    return pa.array(numbers - numbers % number, mask=_nulls(column)).cast(column.type)


_TRANSFORMS: dict[Transform, Callable[[pa.Array, int], pa.Array]] = {
    Transform.IDENTITY: _identity,
    Transform.YEAR: _since_1970("Y"),
    Transform.MONTH: _since_1970("M"),
    Transform.DAY: _since_1970("D"),
    Transform.HOUR: _since_1970("h"),
    Transform.BUCKET: _bucket,
    Transform.TRUNCATE: _truncate,
}


def _filled(column: pa.Array) -> IntArray:
    """Return whole numbers, or times as such; where there is none, 0."""
    kind = pa.int32() if column.type in (pa.int32(), pa.date32()) else pa.int64()
    numbers: IntArray = as_numpy(column.cast(kind).fill_null(0)).astype(np.int64)
    return numbers


def _nulls(column: pa.Array) -> pa.Array:
    """Return which values are NULL."""
    return as_numpy(column.is_null())


def _codes(values: Sequence[pa.Array]) -> IntArray:
    """Return a number for each row, the same for those with the same values."""
    codes = np.zeros(len(values[0]), np.int64)
    for each in values:
        encoded = each.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + as_numpy(encoded.indices)
        _, codes = np.unique(codes, return_inverse=True)  # so that they stay small
    found: IntArray = codes
    return found
