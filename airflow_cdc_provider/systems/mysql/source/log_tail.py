"""The recent end of the log, kept by a snapshot reader over all its splits.

For each split, the changes in (L, H] are needed. Opening a dump at each L would have the server
search its log for a GTID every time, so one dump stays open and only moves on. But the next L may
lie before the last H: `gtid_executed` lacks the transactions whose commit is still under way, and
their bytes were read already. Hence what has been read is kept until an L contains it:

- batches that the new L contains whole are dropped, and the **floor** rises to the end of the last
  of them. Later Ls of the same server contain it as well, so they are never needed again;
- batches beyond are offered again. From the first transaction that L lacks on, all of them are
  (law 3): none may be skipped while an earlier one of the same row is applied;
- too much kept is dropped in spite of that, oldest first, and the floor rises too. An L that does
  not contain the floor then has the dump opened anew at L, which is always right, only slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of
from airflow_cdc_provider.columns.changes import ChangeBatch, Statement, TableChanges
from airflow_cdc_provider.core.errors import SplitOutdatedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import TransactionPoint
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition, own

KEEP_BYTES = 64 * 1024 * 1024
"""Bytes of log behind the batches that are kept."""


class Reader(Protocol):
    """What the log tail needs of a log reader."""

    @property
    def position(self) -> MySqlPosition: ...

    def read_to(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]: ...

    def close(self) -> None: ...


class LogTail:
    """Yields a table's changes between two positions, from one dump that serves many splits.

    The dump lasts as long as each place covers the one before, as Ls do.
    """

    def __init__(
        self, open_reader: Callable[[MySqlPosition], Reader], *, keep_bytes: int = KEEP_BYTES
    ) -> None:
        """Open no dump yet; at most `keep_bytes` of a table's changes are kept for later splits."""
        self._open_reader = open_reader
        self._keep_bytes = keep_bytes
        self._reader: Reader | None = None
        self._floor: MySqlPosition | None = None
        self._kept: deque[ChangeBatch] = deque()
        self.dumps = 0
        """How many dumps were opened."""

    @property
    def position(self) -> MySqlPosition | None:
        """Return the last boundary that was read, None before the first split."""
        return None if self._reader is None else self._reader.position

    def changes(
        self,
        table: TableId,
        low: MySqlPosition,
        until: BinlogPosition,
        *,
        up_to: MySqlPosition | None = None,
    ) -> Iterator[TableChanges | Statement]:
        """Yield a table's changes, and statements of any table, in (low, until] in log order.

        Nothing beyond `up_to` is among them, though more may have been read.
        """
        reader = self._reader_from(low)
        between = _Between(table, low, up_to)
        for batch in tuple(self._kept):
            yield from between.part_of(batch)
        for batch in reader.read_to(until):
            self._keep(batch)
            yield from between.part_of(batch)

    def forget(self, low: MySqlPosition) -> bool:
        """Drop the kept batches that the next split's L contains whole; True if there were any.

        A batch without an end is a part of a transaction and goes with the batch that ends it. A
        statement may lie behind its batch's end, in the transaction that follows.
        """
        contained = 0
        for number, batch in enumerate(self._kept, start=1):
            if batch.end is None:
                continue
            if not low.covers(batch.end):
                break
            if batch.barrier is not None and not low.contains(batch.barrier.point):
                break
            contained, self._floor = number, own(batch.end)
        for _ in range(contained):
            self._kept.popleft()
        return contained > 0

    def close(self) -> None:
        """Close the dump and drop the kept batches."""
        reader, self._reader = self._reader, None
        self._kept.clear()
        if reader is not None:
            reader.close()

    def _reader_from(self, low: MySqlPosition) -> Reader:
        """Return the open reader if the kept batches reach back to `low`, else a new one."""
        self.forget(low)
        if self._reader is not None and self._floor is not None and low.covers(self._floor):
            return self._reader
        self.close()
        self._reader = self._open_reader(low)
        self._floor = low
        self.dumps += 1
        return self._reader

    def _keep(self, batch: ChangeBatch) -> None:
        """Keep a batch; drop the oldest ones beyond the limit of bytes, and raise the floor."""
        self._kept.append(batch)
        if self._floor is None and batch.end is not None:  # the rest of a torn transaction
            self._floor = own(batch.end)
        total = sum(each.bytes for each in self._kept)
        is_torn = False
        while total > self._keep_bytes and len(self._kept) > 1:
            dropped = self._kept.popleft()
            total -= dropped.bytes
            is_torn = dropped.end is None
            self._floor = None if dropped.end is None else own(dropped.end)
        if is_torn:
            # Half a transaction is no place to go on from: its end is, once it has come.
            ends = (own(each.end) for each in self._kept if each.end is not None)
            self._floor = next(ends, None)


class _Between:
    """Picks the changes of one table between an L and an upper bound, from batches in log order.

    From the first transaction that L lacks on, everything is picked.
    With an upper bound: everything before the first that it lacks, which must be all that it has.
    """

    def __init__(self, table: TableId, low: MySqlPosition, up_to: MySqlPosition | None) -> None:
        self._table = table
        self._low = low
        self._up_to = up_to
        self._open = False
        self._over = False

    def part_of(self, batch: ChangeBatch) -> Iterator[TableChanges | Statement]:
        """Yield a batch's changes of the table, and its statement, that are between the bounds."""
        first, end = self._first_of(batch), self._end_of(batch)
        if first is not None and first < end:
            for changes in batch.tables:
                if changes.table == self._table:
                    part = _of_transactions(changes, first, end, len(batch.transactions))
                    if len(part):
                        yield part
        statement = batch.barrier
        if statement is None or self._is_beyond(statement.point):
            return
        if self._open or not self._low.contains(statement.point):
            self._open = True
            yield statement

    def _first_of(self, batch: ChangeBatch) -> int | None:
        """Return the index of the first transaction that L lacks, None if there is none."""
        if self._open:
            return 0
        for number, point in enumerate(batch.transactions):
            if not self._low.contains(point):
                self._open = True
                return number
        return None

    def _end_of(self, batch: ChangeBatch) -> int:
        """Return the index after the last transaction that is within the upper bound."""
        whole = len(batch.transactions)
        if self._up_to is None:
            return whole
        if not self._over and batch.end is not None and self._up_to.covers(batch.end):
            return whole
        return sum(not self._is_beyond(point) for point in batch.transactions)

    def _is_beyond(self, point: TransactionPoint) -> bool:
        """Tell whether a transaction is beyond the upper bound; to be called in log order."""
        if self._up_to is None:
            return False
        is_contained = self._up_to.contains(point)
        if is_contained and self._over:
            raise SplitOutdatedError(
                f"the stream's position {self._up_to} has gaps before {point.name}",
                point.where,
                "none: the rows read so far are dropped",
                "the split is read again",
            )
        self._over = not is_contained
        return self._over


def _of_transactions(changes: TableChanges, first: int, end: int, count: int) -> TableChanges:
    """Return the changes of transactions with numbers from `first` to before `end`."""
    if first == 0 and end == count:
        return changes
    number = as_numpy(changes.transaction)
    return changes.take(numbers_of(np.flatnonzero((number >= first) & (number < end))))
