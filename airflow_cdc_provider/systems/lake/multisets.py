"""Tables without a key: a row is told from others by all that it holds, and may be there often.

Of such a table each change counts one row more, or one less. What is left of all of them is the
table as it is now, in whatever order they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy
from airflow_cdc_provider.columns.row_hashes import RowHashes, added_totals, row_hashes
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.lake.columns import OP, ORDER, SNAPSHOT_ORDER, free_name
from airflow_cdc_provider.systems.lake.last_changes import rows_left
from airflow_cdc_provider.systems.lake.stored_values import model_values

NONE_VOID = SNAPSHOT_ORDER - 1
"""What changes are behind where none says that all before it is void."""
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class Multisets:
    """The rows of a table without a key, as its changes tell them."""

    table: TableSchema
    """As the lake has it."""
    names: Sequence[str]
    """The columns by which rows are told apart."""

    @property
    def read(self) -> list[str]:
        """Return the columns that are read of changes."""
        return [*self.names, OP, ORDER]

    def rows(self, changes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left; `RowsLackingError` if more went than came."""
        one, other = (free_name(name, self.names) for name in ("_hash", "_other_hash"))
        told = (self._with_hashes(each, (one, other)) for each in changes)
        for batch in rows_left(told, (one, other)):
            yield batch.drop_columns([one, other])

    def total(self, changes: Iterable[pa.RecordBatch], void: int) -> int:
        """Return the sum of the hashes of the rows that are left of changes behind `void`."""
        total = 0
        for batch in changes:
            orders, op = batch.column(ORDER), batch.column(OP)
            counts = pc.and_(pc.greater(orders, void), pc.not_equal(op, "t")).fill_null(False)  # noqa: FBT003 - Arrow's own signature
            some = batch.filter(counts)
            gone = pc.equal(some.column(OP), "d")
            came, went = some.filter(pc.invert(gone)), some.filter(gone)
            total = added_totals(total, self.hashes(came).total)
            total = added_totals(total, _negative(self.hashes(went).total))
        return total

    def hashes(self, rows: pa.RecordBatch) -> RowHashes:
        """Return the hashes of rows, of what they hold in the value model."""
        columns = [
            model_values(rows.column(name), self.table.column(name).type) for name in self.names
        ]
        return row_hashes(columns)

    def _with_hashes(self, rows: pa.RecordBatch, names: tuple[str, str]) -> pa.RecordBatch:
        """Return rows with their hashes in two columns more."""
        hashes = self.hashes(rows)
        for name, words in zip(names, (hashes.one, hashes.other), strict=True):
            rows = rows.append_column(name, as_arrow(words, None, pa.uint64()))
        return rows


def last_void(changes: Iterable[pa.RecordBatch], void: int = NONE_VOID) -> int:
    """Return the order up to which changes are void, of those that say so and of `void`."""
    for batch in changes:
        last = pc.max(batch.column(ORDER).filter(pc.equal(batch.column(OP), "t"))).as_py()
        void = void if last is None else max(void, last)
    return void


def count_left(changes: Iterable[pa.RecordBatch]) -> int:
    """Return how many rows are left of changes, of which only operation and order are read."""
    orders: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    signs: list[np.ndarray[tuple[int], np.dtype[np.int8]]] = []
    void = NONE_VOID
    for batch in changes:
        void = last_void([batch], void)
        there = batch.filter(batch.column(ORDER).is_valid())
        orders.append(as_numpy(there.column(ORDER)))
        gone = as_numpy(pc.equal(there.column(OP), "d"))
        is_void = as_numpy(pc.equal(there.column(OP), "t"))
        signs.append(np.where(is_void, 0, np.where(gone, -1, 1)).astype(np.int8))
    return int(sum(each[at > void].sum() for at, each in zip(orders, signs, strict=True)))


def _negative(total: int) -> int:
    """Return what a total is added to for nothing to be left of it: both of its sums."""
    high, low = divmod(total, _WORD)
    return (-high % _WORD) * _WORD + -low % _WORD
