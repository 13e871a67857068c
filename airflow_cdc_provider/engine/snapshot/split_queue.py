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
    """Why there is no split to claim."""

    WAIT = "wait"
    END = "end"


@dataclass(slots=True)
class _Held:
    claim: Claim
    reader: int


@dataclass(slots=True)
class SplitQueue:
    """The splits of a job that are not finished."""

    _waiting: list[tuple[int, int, SnapshotSplit]] = field(default_factory=list)
    _held: dict[str, _Held] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)
    _planning: set[TableId] = field(default_factory=set)
    _failed: dict[TableId, CdcError] = field(default_factory=dict)
    _stopped: CdcError | bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, splits: Iterable[SnapshotSplit], *, attempts: int = 0) -> None:
        """Let splits be claimed; `attempts` were made at them before."""
        with self._changed:
            for split in splits:
                self._attempts.setdefault(split.split_id, attempts)
                self._push(split, _OPEN_ENDED if split.keys.end is None else _ORDINARY)
            self._changed.notify_all()

    def start_planning(self, tables: Iterable[TableId]) -> None:
        """Tell that more splits of these tables will come."""
        with self._changed:
            self._planning.update(tables)

    def finish_planning(self, table: TableId) -> None:
        """Tell that no more splits of this table will come."""
        with self._changed:
            self._planning.discard(table)
            self._changed.notify_all()

    def claim(self, reader: int, *, wait_s: float) -> Claim | NoClaim:
        """Give the reader a split; wait for one no longer than `wait_s`."""
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

    def finish(self, split_id: str) -> SnapshotSplit | None:
        """Tell that a split is published; None if it is not being read (told before)."""
        with self._changed:
            held = self._held.pop(split_id, None)
            self._changed.notify_all()
            return None if held is None else held.claim.split

    def cut(self, split: SnapshotSplit, halves: Iterable[SnapshotSplit]) -> bool:
        """Put the halves in the place of a split that is being read; False if it is not."""
        with self._changed:
            if self._held.pop(split.split_id, None) is None:
                return False
            for half in halves:
                self._attempts[half.split_id] = 0
                self._push(half, _RETURNED)
            self._changed.notify_all()
            return True

    def fail_table(self, table: TableId, error: CdcError) -> None:
        """Give out no more splits of this table."""
        with self._changed:
            self._failed.setdefault(table, error)
            self._planning.discard(table)
            self._waiting = [entry for entry in self._waiting if entry[2].table != table]
            heapq.heapify(self._waiting)
            self._changed.notify_all()

    def give_back(self, reader: int) -> tuple[Claim, ...]:
        """Let others claim what a dead reader held; returns what that was."""
        with self._changed:
            lost = tuple(held.claim for held in self._held.values() if held.reader == reader)
            for claim in lost:
                del self._held[claim.split.split_id]
                self._push(claim.split, _RETURNED)
            self._changed.notify_all()
            return lost

    def stop(self, reason: CdcError | None = None) -> None:
        """Give out nothing any more."""
        with self._changed:
            self._stopped = self._stopped or reason or True
            self._changed.notify_all()

    def is_read(self, table: TableId) -> bool:
        """Tell whether nothing of a table is left to plan or to read."""
        with self._changed:
            waiting = any(entry[2].table == table for entry in self._waiting)
            held = any(held.claim.split.table == table for held in self._held.values())
            return not (waiting or held or table in self._planning or table in self._failed)

    @property
    def stopped_by(self) -> CdcError | None:
        """Return the error that ended the job, None if it was asked to stop or goes on."""
        return self._stopped if isinstance(self._stopped, CdcError) else None

    @property
    def is_stopped(self) -> bool:
        return bool(self._stopped)

    @property
    def failed_tables(self) -> dict[TableId, CdcError]:
        with self._changed:
            return dict(self._failed)

    @property
    def is_over(self) -> bool:
        """Tell whether no reader will ever get a split again."""
        with self._changed:
            return self._is_over()

    def _is_over(self) -> bool:
        if self._stopped:
            return True
        return not (self._waiting or self._held or self._planning)

    def _push(self, split: SnapshotSplit, urgency: int) -> None:
        if split.table not in self._failed:
            heapq.heappush(self._waiting, (urgency, next(self._order), split))
