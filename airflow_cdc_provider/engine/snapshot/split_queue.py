"""Which splits wait, which are being read, and when all is done.

Readers pull. The queue gives the split with the open end of a table first, as soon as planning
has found it: that is where a busy table grows, and the sooner it is read the smaller it is. A
split that comes back from a dead reader goes before all others. A reader with nothing to claim
waits while splits may still come: while a table is being planned, or while another reader holds
a split that may come back.

Nothing here does I/O; every method may be called from any thread.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SnapshotSplit

_RETURNED, _OPEN_ENDED, _ORDINARY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Claim:
    """A split given to a reader; `attempt` counts from 1."""

    split: SnapshotSplit
    attempt: int


class NoClaim(Enum):
    """Why a reader gets no split: wait and ask again, or the end."""

    WAIT = "wait"
    END = "end"


@dataclass(slots=True)
class _Held:
    """A claim, and the reader that has it."""

    claim: Claim
    reader: int


@dataclass(slots=True)
class SplitQueue:
    """The splits of a job that are waiting or being read, and which tables are still planned."""

    _waiting: list[tuple[int, int, SnapshotSplit]] = field(default_factory=list)
    _held: dict[str, _Held] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)
    _planning: set[TableId] = field(default_factory=set)
    _failed: dict[TableId, CdcError] = field(default_factory=dict)
    _stopped: CdcError | bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, splits: Iterable[SnapshotSplit], *, attempts: int = 0) -> None:
        """Queue splits; `attempts` is how often each was tried before."""
        with self._changed:
            for split in splits:
                self._attempts.setdefault(split.split_id, attempts)
                self._push(split, _OPEN_ENDED if split.keys.end is None else _ORDINARY)
            self._changed.notify_all()

    def start_planning(self, tables: Iterable[TableId]) -> None:
        """Note that more splits of these tables will come."""
        with self._changed:
            self._planning.update(tables)

    def finish_planning(self, table: TableId) -> None:
        """Note that no more splits of this table will come."""
        with self._changed:
            self._planning.discard(table)
            self._changed.notify_all()

    def claim(self, reader: int, *, wait_s: float) -> Claim | NoClaim:
        """Give the reader a split, or wait for one up to `wait_s`."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not (self._waiting and not self._stopped):
                if self._is_over():
                    return NoClaim.END
                left = deadline - time.monotonic()
                if left <= 0:
                    return NoClaim.WAIT
                self._changed.wait(left)
            _, _, split = heapq.heappop(self._waiting)
            attempt = self._attempts[split.split_id] = self._attempts[split.split_id] + 1
            claim = Claim(split, attempt)
            self._held[split.split_id] = _Held(claim, reader)
            return claim

    def next_table(self) -> TableId | None:
        """Return the table of the split that is given out next; None if none waits."""
        with self._changed:
            return self._waiting[0][2].table if self._waiting else None

    def wait_until_over(self, wait_s: float) -> bool:
        """Wait up to `wait_s`; tell whether no reader will ever get a split again."""
        with self._changed:
            return self._changed.wait_for(self._is_over, max(0.0, wait_s))

    def finish(self, split_id: str) -> SnapshotSplit | None:
        """Note that a split is published; return the split, None if it is not being read."""
        with self._changed:
            held = self._held.pop(split_id, None)
            self._changed.notify_all()
            return None if held is None else held.claim.split

    def cut(self, split: SnapshotSplit, halves: Iterable[SnapshotSplit]) -> bool:
        """Replace a split that is being read by its halves; False if it is not."""
        with self._changed:
            if self._held.pop(split.split_id, None) is None:
                return False
            for half in halves:
                self._attempts[half.split_id] = 0
                self._push(half, _RETURNED)
            self._changed.notify_all()
            return True

    def fail_table(self, table: TableId, error: CdcError) -> None:
        """Note a table's error, and give out no more of its splits."""
        with self._changed:
            self._failed.setdefault(table, error)
            self._planning.discard(table)
            self._waiting = [entry for entry in self._waiting if entry[2].table != table]
            heapq.heapify(self._waiting)
            self._changed.notify_all()

    def give_back(self, reader: int) -> tuple[Claim, ...]:
        """Queue again the splits that a dead reader had; return its claims."""
        with self._changed:
            lost = tuple(held.claim for held in self._held.values() if held.reader == reader)
            for claim in lost:
                del self._held[claim.split.split_id]
                self._push(claim.split, _RETURNED)
            self._changed.notify_all()
            return lost

    def stop(self, reason: CdcError | None = None) -> None:
        """Give out no more splits, for an error or because the job is to stop."""
        with self._changed:
            self._stopped = self._stopped or reason or True
            self._changed.notify_all()

    def is_read(self, table: TableId) -> bool:
        """Tell whether no split of a table is left to plan or to read."""
        with self._changed:
            waiting = any(entry[2].table == table for entry in self._waiting)
            held = any(held.claim.split.table == table for held in self._held.values())
            return not (waiting or held or table in self._planning or table in self._failed)

    @property
    def stopped_by(self) -> CdcError | None:
        """Return the error that ended the job; None if it was asked to stop, or goes on."""
        return self._stopped if isinstance(self._stopped, CdcError) else None

    @property
    def is_stopped(self) -> bool:
        """Tell whether the queue was stopped."""
        return bool(self._stopped)

    @property
    def failed_tables(self) -> dict[TableId, CdcError]:
        """Return the tables that failed, with their errors."""
        with self._changed:
            return dict(self._failed)

    @property
    def is_over(self) -> bool:
        """Tell whether no reader will ever get a split again."""
        with self._changed:
            return self._is_over()

    def _is_over(self) -> bool:
        """Tell whether no reader will get a split again; the caller has the lock."""
        if self._stopped:
            return True
        return not (self._waiting or self._held or self._planning)

    def _push(self, split: SnapshotSplit, urgency: int) -> None:
        """Add a split to the heap, unless its table has failed."""
        if split.table not in self._failed:
            heapq.heappush(self._waiting, (urgency, next(self._order), split))
