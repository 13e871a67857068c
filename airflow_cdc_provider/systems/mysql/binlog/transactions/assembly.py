"""Batches are put together here: how far the log is decoded, and where a batch may end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_cdc_provider.columns.changes import ChangeBatch, Statement
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import GtidColumns, GtidProgress
from airflow_cdc_provider.systems.mysql.binlog.transactions.known_positions import (
    KnownText,
    Move,
    known_of,
)
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import (
    AnyPiece,
    PendingChanges,
    table_changes,
)
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_points import (
    TransactionPoints,
)
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition


@dataclass(slots=True)
class Commits:
    """Transactions that ended, in log order, as columns."""

    number: IntArray
    """The decoder's own count of transactions."""
    ordinal_after: IntArray
    """The place among all changes behind each one's last."""
    bytes_after: IntArray
    """Bytes of log read up to its end."""
    captured: BoolArray
    """Whether it has rows, or had rows handed on, of captured tables."""
    points: TransactionPoints

    def __len__(self) -> int:
        return len(self.number)


class BatchAssembly:
    """Collects changes and ended transactions, and cuts them into batches."""

    def __init__(
        self,
        start: MySqlPosition,
        server_uuid: str,
        limits: BatchLimits,
        *,
        origins: Callable[[IntArray], frozenset[str]] = lambda _numbers: frozenset(),
        moves: Callable[[IntArray], Sequence[Move]] = lambda _numbers: (),
    ) -> None:
        """Begin at a position; `origins` says where transactions of these numbers were written.

        `moves` are those of them by which the source came to know more of the sink's log.
        """
        self.server_uuid = server_uuid
        self._origins = origins
        self._moves = moves
        self._knew: KnownText | None = None
        self._binlog = start.binlog if start.server_uuid == server_uuid else None
        self._file = self._binlog
        self.pending = PendingChanges()
        self._limits = limits
        self._gtids = GtidProgress(start.gtids)
        self._start = start
        self._moved = False
        self._points: list[TransactionPoints] = []
        self._numbers: list[IntArray] = []
        self._first_ordinal = 0
        self._committed_ordinal = 0
        self._first_byte = 0
        self._committed_byte = 0
        self._others_at = 0

    @property
    def position(self) -> MySqlPosition:
        """Return the last boundary that was decoded, with its GTIDs."""
        if not self._moved:
            return self._start
        return MySqlPosition(self.server_uuid, self._binlog, self._gtids.current())

    @property
    def has_changes(self) -> bool:
        """Tell whether transactions with captured changes wait for their batch to end."""
        return bool(self._points)

    @property
    def committed_ordinal(self) -> int:
        """Return the ordinal after the last committed change."""
        return self._committed_ordinal

    def at(self, offset: int) -> BinlogPosition:
        """Return the binlog position of an offset in the current log file."""
        if self._file is None:
            raise IntegrityError(
                "events came before the log told its file's name",
                risk="the position would be unknown",
                remedy="give the decoder a start position with a file, or the events from a dump",
            )
        return self._file.at(offset)

    def note_others(self, byte: int) -> None:
        """Note that the log up to a byte holds changes of other tables than pipelines' ledgers."""
        self._others_at = max(self._others_at, byte)

    def move_to(self, place: BinlogPosition) -> None:
        """Move the boundary past events outside transactions; never back."""
        if self._binlog is None or place > self._binlog:
            self._binlog = place
            self._moved = True

    def begin_file(self, place: BinlogPosition) -> None:
        """Go on in another log file."""
        self._file = place
        self.move_to(place)

    def add_commits(self, commits: Commits) -> Iterator[ChangeBatch]:
        """Add ended transactions; yield the batches that are full."""
        done = 0
        for number, knew in self._moves(commits.number):
            place = int(np.searchsorted(commits.number, number))
            yield from self._add(commits, done, place)
            if self.has_changes:  # they were made before
                yield self.emit()
            self._knew, done = knew, place
        yield from self._add(commits, done, len(commits))

    def _add(self, commits: Commits, done: int, last: int) -> Iterator[ChangeBatch]:
        """Add the ended transactions from `done` to before `last`; yield the full batches."""
        if last == done:
            return
        if self._fits(commits, last):
            self._advance(commits, done, last)
            return
        while done < last:
            by_changes = np.searchsorted(
                commits.ordinal_after, self._first_ordinal + self._limits.changes
            )
            by_bytes = np.searchsorted(commits.bytes_after, self._first_byte + self._limits.bytes)
            stop = max(int(min(by_changes, by_bytes)), done) + 1
            if stop > last:
                break
            self._advance(commits, done, stop)
            yield self.emit()
            done = stop
        self._advance(commits, done, last)

    def _fits(self, commits: Commits, last: int) -> bool:
        """Tell whether a batch has room for the transactions before `last`."""
        changes = int(commits.ordinal_after[last - 1]) - self._first_ordinal
        size = int(commits.bytes_after[last - 1]) - self._first_byte
        return changes < self._limits.changes and size < self._limits.bytes

    def _advance(self, commits: Commits, first: int, last: int) -> None:
        """Add the transactions from `first` to before `last` to the batch."""
        if first == last:
            return
        gtids = commits.points.gtids
        if last - first < len(commits):
            gtids = GtidColumns(
                gtids.origins,
                gtids.origin[first:last],
                gtids.number[first:last],
                gtids.committed_us[first:last],
            )
        self._gtids.add(gtids, last - first)
        self.move_to(self.at(int(commits.points.end[last - 1])))
        self._moved = True
        self._committed_ordinal = int(commits.ordinal_after[last - 1])
        self._committed_byte = int(commits.bytes_after[last - 1])
        kept = np.flatnonzero(commits.captured[first:last]) + first
        if len(kept):
            every = len(kept) == len(commits)
            self._points.append(commits.points if every else commits.points.chosen(kept))
            self._numbers.append(commits.number[kept])

    def emit(self, barrier: Statement | None = None) -> ChangeBatch:
        """Return all committed changes as a batch, ended by `barrier` if there is one."""
        pieces = self.pending.before(self._committed_ordinal)
        batch = self._batch(pieces, self.position, self._committed_byte, barrier)
        self._first_ordinal = self._committed_ordinal
        return batch

    def flush(self) -> ChangeBatch | None:
        """Return all committed changes as a batch; None if the position did not move."""
        if not self._points and self.position == self._start:
            return None
        return self.emit()

    def overflow(
        self, number: int, point: TransactionPoints, ordinal: int, byte: int
    ) -> Iterator[ChangeBatch]:
        """Yield an open transaction's changes so far if they alone exceed the batch limits.

        Yields what is committed first, in a batch of its own; the part has no end.
        """
        changes, size = ordinal - self._committed_ordinal, byte - self._committed_byte
        large = changes > self._limits.changes or size > self._limits.bytes
        if not large or not changes:
            return
        committed = self.flush()
        if committed is not None:
            yield committed
        self._points.append(point)
        self._numbers.append(np.array([number], np.int64))
        pieces = self.pending.before(ordinal)
        yield self._batch(pieces, None, byte, None)
        self._first_ordinal = self._committed_ordinal = ordinal
        self._committed_byte = byte

    def _batch(
        self,
        pieces: list[AnyPiece],
        end: MySqlPosition | None,
        byte: int,
        barrier: Statement | None,
    ) -> ChangeBatch:
        """Return a batch of these pieces, up to `end`, and begin the next batch."""
        numbers = np.concatenate([*self._numbers, np.zeros(0, np.int64)])
        batch = ChangeBatch(
            start=self._start,
            end=end,
            transactions=TransactionPoints.joined(self._points) if self._points else (),
            tables=table_changes(pieces, numbers, self._first_ordinal),
            barrier=barrier,
            bytes=byte - self._first_byte,
            only_ledgers=self._others_at <= self._first_byte,
            origins=self._origins(numbers),
            knew=None if self._knew is None else known_of(self._knew),
        )
        self._points, self._numbers = [], []
        self._first_byte = byte
        if end is not None:
            self._start = end
            self._moved = False
        return batch
