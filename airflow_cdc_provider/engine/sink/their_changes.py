"""What the sink's node has changed: kept as it came, as columns or as Python objects when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.changes import ChangeBatch, Op, TableChanges
from airflow_cdc_provider.columns.few_changes import FewTable, FewTables
from airflow_cdc_provider.columns.plain_changes import PlainChanges
from airflow_cdc_provider.columns.transactions import TransactionIndex, transactions_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint

_MOST_PLAIN = 20_000
"""More changes than these, out of one batch of the log, are compared as columns."""
_CELL_BYTES = 100
"""What a value takes as a Python object, about."""


@dataclass(frozen=True, slots=True)
class TheirChanges:
    """Changes of one table by the sink's node, out of one batch of its log."""

    changes: TableChanges
    points: Sequence[TransactionPoint]
    index: TransactionIndex

    def behind(self, known: LogPosition) -> TheirChanges | None:
        """Return those of the changes that a position does not contain, None if there are none."""
        every = np.arange(len(self.index))
        fresh = ~self.index.within(known, every)[as_numpy(self.changes.transaction)]
        if fresh.all():
            return self
        if not fresh.any():
            return None
        return replace(self, changes=self.changes.take(numbers_of(np.flatnonzero(fresh))))

    def keys(self, names: Sequence[str]) -> list[pa.RecordBatch]:
        """Return the keys that the changes touch: those before and those after them."""
        op = as_numpy(self.changes.op)
        taken = self.changes.before.select(names).filter(mask_of(op != Op.INSERT))
        put = self.changes.after.select(names).filter(mask_of(op != Op.DELETE))
        return [taken, put]


class KeptChanges:
    """Changes of one table out of one batch of the sink's log, as they came."""

    def __init__(
        self,
        given: FewTable | TableChanges,
        points: Sequence[TransactionPoint],
        system: str,
        as_columns: Callable[[], TableChanges],
    ) -> None:
        self.table: TableId = given.table
        self.points = points
        self._system = system
        self._as_columns = as_columns
        self._columns: TheirChanges | None = None
        size = len(given.changes) if isinstance(given, FewTable) else len(given)
        self.plain = PlainChanges(given) if size <= _MOST_PLAIN else None
        """The changes as Python objects; None if there are too many."""
        self._point_of: dict[int, TransactionPoint] = {}
        self._places: dict[int, str] = {}
        self._last_first = sorted({*self.plain.transactions}, reverse=True) if self.plain else []
        self._known: LogPosition | None = None
        self._is_known: dict[int, bool] = {}
        self.nbytes = _CELL_BYTES * 2 * size * len(self.plain.schema) if self.plain else 0
        """The memory that the rows take, in bytes."""
        if isinstance(given, TableChanges):
            self.nbytes += int(given.before.nbytes + given.after.nbytes)

    def columns(self) -> TheirChanges:
        """Return the changes as columns."""
        if self._columns is None:
            index = transactions_of(self._system).index_of(self.points)
            self._columns = TheirChanges(self._as_columns(), self.points, index)
        return self._columns

    def is_passed(self, known: LogPosition) -> bool:
        """Tell whether a position contains all of the changes."""
        if self.plain is None:
            return self.columns().behind(known) is None
        # the last one first: what is not passed is mostly behind what is
        return all(self.is_known(each, known) for each in self._last_first)

    def is_known(self, transaction: int, known: LogPosition) -> bool:
        """Tell whether a position contains one of the transactions."""
        if known is not self._known:
            self._known, self._is_known = known, {}
        found = self._is_known.get(transaction)
        if found is None:
            found = self._is_known[transaction] = known.contains(self._point(transaction))
        return found

    def place(self, transaction: int) -> str:
        """Return where one of the transactions is in the sink's log."""
        found = self._places.get(transaction)
        if found is None:
            found = self._places[transaction] = self._point(transaction).where
        return found

    def _point(self, transaction: int) -> TransactionPoint:
        """Return one of the transactions; it is made once."""
        found = self._point_of.get(transaction)
        if found is None:
            found = self._point_of[transaction] = self.points[transaction]
        return found


def kept_changes(batch: ChangeBatch) -> Iterator[KeptChanges]:
    """Yield what a batch of the sink's log changes, table by table."""
    tables, system = batch.tables, batch.start.system
    given = tables.few if isinstance(tables, FewTables) else tables
    for each in given:
        if isinstance(each, TableChanges) and len(each):
            yield KeptChanges(each, batch.transactions, system, partial(_itself, each))
        elif isinstance(each, FewTable):
            as_columns = partial(_columns_of, tables, each.table)
            yield KeptChanges(each, batch.transactions, system, as_columns)


def _itself(changes: TableChanges) -> TableChanges:
    """Return changes that are columns."""
    return changes


def _columns_of(tables: Sequence[TableChanges], table: TableId) -> TableChanges:
    """Return the few changes of a table as columns."""
    return next(each for each in tables if each.table == table)
