"""Changes where there are few of them, kept value by value.

An Arrow array costs some microseconds however few values it has, and a change has two rows of
columns. So of a transaction of three rows a decoder may keep the plain values, and columns are made
of them when somebody asks: who asks for nothing but values pays for nothing else.

A value is what the value model's array holds of it: the number of an integer, a date (days) or a
time (microseconds); a float; the digits of a decimal without its point, as a number; the bytes of a
text (UTF-8) or a binary; None for NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, binaries_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.row_counts import RowCounts

Value = int | float | bytes | None
Row = tuple[Value, ...]

_INSERT, _DELETE = int(Op.INSERT), int(Op.DELETE)


class FewChange(NamedTuple):
    """One changed row as Python values, before and after the change."""

    op: int
    """A value of `Op`."""
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True)
class FewTable:
    """The few changes of one table in a batch, in log order."""

    table: TableId
    schema: pa.Schema
    changes: Sequence[FewChange]
    transactions: Sequence[int]
    """Of each change the index of its transaction in the batch."""

    @property
    def counts(self) -> RowCounts:
        """Return how many rows were inserted, updated and deleted."""
        kinds = [change.op for change in self.changes]
        return RowCounts(kinds.count(Op.INSERT), kinds.count(Op.UPDATE), kinds.count(Op.DELETE))


@dataclass(frozen=True, slots=True, eq=False)
class FewTables(Sequence[TableChanges]):
    """The few changes of a batch as Python values; they turn into columns where needed."""

    few: tuple[FewTable, ...]
    make_columns: Callable[[], tuple[TableChanges, ...]] = field(repr=False)
    _made: list[tuple[TableChanges, ...]] = field(default_factory=list, repr=False)

    @property
    def changes(self) -> int:
        """Return the number of row changes."""
        return sum(len(table.changes) for table in self.few)

    def columns(self) -> tuple[TableChanges, ...]:
        """Return the changes as columns, made on first use."""
        if not self._made:
            self._made.append(self.make_columns())
        return self._made[0]

    def __len__(self) -> int:
        return len(self.columns())

    @overload
    def __getitem__(self, index: int) -> TableChanges: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[TableChanges, ...]: ...

    def __getitem__(self, index: int | slice) -> TableChanges | tuple[TableChanges, ...]:
        return self.columns()[index]

    def __iter__(self) -> Iterator[TableChanges]:
        return iter(self.columns())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.columns() == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(table.table for table in self.few))

    def __reduce__(self) -> tuple[type, tuple[tuple[TableChanges, ...]]]:
        """Pickle the changes as columns."""
        return tuple, (self.columns(),)


class FewMerged(NamedTuple):
    """The last change of each key: keys to delete and rows to write."""

    deletes: list[Row]
    """The keys to delete, in index order."""
    upserts: list[Row]
    """Whole rows to write, in the order of their last change."""


def merge_few(changes: Sequence[FewChange], key: Sequence[int]) -> FewMerged | None:
    """Keep the last change of each key, as `merge` does; None if a key has a NULL.

    `key` has the places of the key's columns.
    """
    last: dict[Row, Row | None] = {}
    for op, before, after in changes:
        if op != _INSERT and before is not None:
            old = tuple([before[place] for place in key])
            last.pop(old, None)
            last[old] = None
        if op != _DELETE and after is not None:
            new = tuple([after[place] for place in key])
            last.pop(new, None)
            last[new] = after
    if any(None in found for found in last):
        return None
    return FewMerged(
        [found for found, row in last.items() if row is None],
        [row for row in last.values() if row is not None],
    )


def rows_of(rows: Sequence[Row | None], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of Python values as Arrow columns; a row that is None becomes NULLs."""
    absent = (None,) * len(schema)
    by_column = zip(*(absent if row is None else row for row in rows), strict=True)
    columns = list(by_column) if rows else [()] * len(schema)
    arrays = [_array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Return one column's values as an Arrow array."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return binaries_of(values, kind)  # type: ignore[arg-type]
    nulls = np.array([value is None for value in values], np.bool_)
    plain = [0 if value is None else value for value in values]
    return as_arrow(_numbers(plain, kind), nulls if nulls.any() else None, kind)


def _numbers(
    values: list[int | float | bytes], kind: pa.DataType
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return one column's values as NumPy numbers, as Arrow stores them."""
    if pa.types.is_decimal(kind):
        width = kind.bit_width // 8
        joined = b"".join([int(value).to_bytes(width, "little", signed=True) for value in values])
        return np.frombuffer(joined, np.int64).reshape(len(values), width // 8)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.array(values, kind.to_pandas_dtype())
    return np.array(values, np.int32 if pa.types.is_date32(kind) else np.int64)
