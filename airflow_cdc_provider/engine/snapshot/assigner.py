"""The driver's side of `core.ports.Assigner`: who reads which split.

The queue decides, the state store remembers, and this class keeps both in step: a claim counts an
attempt, a report finishes a split, a cut replaces it, a reader that died gives back what it held.
A split that was tried too often is refused, because whatever kills its readers is in the split.

The ledger in the sink is the truth about finished splits; `engine.reconcile` has brought the state
store in line with it before a job's assigner loads what is left to read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    IntegrityError,
    StateUnreachableError,
    TableChangedError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.split_planner import cut_in_two
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.engine.outages import Outages
from airflow_cdc_provider.engine.snapshot.split_failures import SplitFailures
from airflow_cdc_provider.engine.snapshot.split_queue import Claim, NoClaim, SplitQueue
from airflow_cdc_provider.engine.throttle.throttle import Leave, Refusal, Throttle

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.1
"""A split that was smaller than planned lets the next one through earlier than was said."""
_TO_READ = {SplitStatus.PLANNED, SplitStatus.READING, SplitStatus.FAILED}


@dataclass(slots=True)
class SplitNumbers:
    """The next split number of each table; the planner and the cuts of splits share it."""

    _next: dict[TableId, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def used(self, split: SnapshotSplit) -> None:
        """Note a split's number as used."""
        with self._lock:
            self._next[split.table] = max(self._next.get(split.table, 0), split.number + 1)

    def take(self, table: TableId, count: int = 1) -> int:
        """Take `count` consecutive numbers of a table; return the first."""
        with self._lock:
            first = self._next.get(table, 0)
            self._next[table] = first + count
            return first


@dataclass(slots=True)
class Progress:
    """Counts of what the job's readers have reported so far."""

    splits: int = 0
    rows: int = 0
    bytes: int = 0
    changes: int = 0

    def add(self, report: SplitReport) -> None:
        """Add one split's report to the counts."""
        self.splits += 1
        self.rows += report.rows
        self.bytes += report.bytes
        self.changes += report.changes


class SplitAssigner:
    """Gives a pipeline's splits to readers, and stores each split's status; thread-safe."""

    def __init__(
        self,
        store: StateStore,
        name: PipelineName,
        generation: int,
        *,
        most_attempts: int = 6,
        begins_again: bool = False,
        back_off: BackOff | None = None,
    ) -> None:
        self.queue = SplitQueue()
        self.changed: set[TableId] = set()
        """Tables that were changed while they were read, and begin again later."""
        self.numbers = SplitNumbers()
        self.progress = Progress()
        self._store = store
        self._name = name
        self._generation = generation
        self._most_attempts = most_attempts
        self._begins_again = begins_again
        self._back_off = back_off or BackOff()
        self.throttle = Throttle()
        """Each split waits there before it is given out."""
        self.failures = SplitFailures(Outages(store, name, generation))
        """The splits that readers try again."""
        self._leaves: dict[str, Leave] = {}
        """Under which the splits are read that are not reported yet."""
        self._writing = threading.RLock()

    def load(self) -> None:
        """Queue every stored split that is neither finished nor cut.

        Attempts of earlier jobs do not count: what ended them may be mended by now.
        """
        splits = self._store.splits(self._name)
        for state in splits:
            self.numbers.used(state.split)
        tables = self._store.tables(self._name)
        aside = {each.table for each in tables if each.phase is TablePhase.CHANGED}
        left = [
            state.split
            for state in splits
            if state.status in _TO_READ and state.split.table not in aside
        ]
        for split in left:
            if _is_cut(split, left):
                self._mark(split, SplitStatus.CUT)
            else:
                self.queue.add((split,))

    def claim(self, reader: int, *, wait_s: float) -> Claim | NoClaim:
        """Give the reader a split, or return why there is none.

        It waits for the throttle here, with no split in its hands, and not beyond the queue's end.
        """
        until_s = time.monotonic() + wait_s
        while True:
            leave = self.throttle.enter(self.queue.next_table())
            if isinstance(leave, Refusal):
                left_s = until_s - time.monotonic()
                if self.queue.wait_until_over(min(leave.wait_s, left_s, _ASK_AGAIN_S)):
                    return NoClaim.END
                if left_s <= 0:
                    return NoClaim.WAIT
                continue
            claim = self.queue.claim(reader, wait_s=max(0.0, until_s - time.monotonic()))
            if isinstance(claim, NoClaim):
                self.throttle.unused(leave)
                return claim
            self.throttle.begin(leave)
            with self._writing:
                self._leaves[claim.split.split_id] = leave
            if claim.attempt <= self._most_attempts:
                self._mark(claim.split, SplitStatus.READING)
                return claim
            error = IntegrityError(
                f"reading {claim.split.split_id} failed {claim.attempt - 1} times without a reason",
                where=f"table {claim.split.table}, keys {claim.split.keys}",
                risk="none: nothing of the split was published",
                remedy="look for killed Python workers; smaller splits or fewer readers need less "
                "memory",
            )
            self.refuse(claim.split, error)

    def report(self, report: SplitReport, *, read_rows: int | None = None) -> None:
        """Note that a split is published, so finished; noting it twice is harmless.

        `read_rows` is how many rows were read for it, if the file's filter left some out.
        """
        self.failures.over(report.split_id)
        split = self.queue.finish(report.split_id)
        if split is None:
            return
        with self._writing:
            self.progress.add(report)
            leave = self._leaves.pop(report.split_id, None)
        if leave is not None:
            rows = report.rows if read_rows is None else read_rows
            self.throttle.read(leave, split.table, rows=rows, size=report.bytes)
        self._mark(split, SplitStatus.FINISHED, report=report)
        self.note_if_read(split.table)
        log.info(
            "split read: split=%s rows=%d changes=%d read_s=%.2f publish_s=%.2f",
            report.split_id,
            report.rows,
            report.changes,
            report.read_s,
            report.publish_s,
        )

    def cut(self, split: SnapshotSplit, middle: Key) -> None:
        """Replace a split that is too big by its two halves."""
        self.failures.over(split.split_id)
        number = self.numbers.take(split.table, 2)
        halves = cut_in_two(split, middle, next_number=number)
        with self._writing:
            # the halves first: after a crash in between `load` completes the cut, while the
            # other order would lose the range
            self._store.add_splits(self._name, self._generation, halves)
            self._mark(split, SplitStatus.CUT)
        self.queue.cut(split, halves)
        log.info("split too big, cut: split=%s halves=%d,%d", split.split_id, number, number + 1)

    def failed(self, split: SnapshotSplit, error: CdcError, *, wait_s: float) -> None:
        """Note that a split failed, and that its reader tries it again in `wait_s` seconds."""
        self.failures.note(split, error, wait_s=wait_s)

    def refuse(self, split: SnapshotSplit, error: CdcError) -> None:
        """Note that a split cannot be read: its table fails, other tables continue."""
        self.queue.finish(split.split_id)
        self._mark(split, SplitStatus.FAILED, error=StoredError.of(error))
        self.refuse_table(split.table, error, at=split.split_id)

    def refuse_table(self, table: TableId, error: CdcError, *, at: str) -> None:
        """Mark a table as failed, or as changed if it is to begin again; other tables go on.

        `at` says for the log which part of it failed.
        """
        self.queue.fail_table(table, error)
        self.failures.given_up(table)
        if self._begins_again and isinstance(error, TableChangedError):
            seen = error.short_message()
            log.warning("table begins again: table=%s at=%s seen=%s", table, at, seen)
            self.set_aside(table)
            return
        log.error("table given up: table=%s at=%s error=%s", table, at, error)
        self._mark_table(table, TablePhase.FAILED, StoredError.of(error))

    def set_aside(self, table: TableId) -> None:
        """Mark a table as changed at the source; it begins again once the others are handed off."""
        with self._writing:
            if table in self.changed:
                return
            self.changed.add(table)
        self._mark_table(table, TablePhase.CHANGED)
        text = f"{table} was changed at the source while it was read"
        text += ": it begins again when the others are handed off"
        self._stored(lambda: self._store.tell(self._name, text, level="warning"))

    def plan(self, splits: Sequence[SnapshotSplit]) -> None:
        """Store newly planned splits and queue them."""
        with self._writing:
            self._store.add_splits(self._name, self._generation, splits)
        self.queue.add(splits)

    def planned(self, table: TableId) -> None:
        """Note that all splits of a table are planned."""
        self._stored(lambda: self._store.finish_planning(self._name, self._generation, table))
        self.queue.finish_planning(table)
        self.note_if_read(table)

    def note_if_read(self, table: TableId) -> None:
        """Mark a table as read, once no split of it is left to plan or read."""
        if self.queue.is_read(table):
            self._mark_table(table, TablePhase.READ)

    def reader_lost(self, reader: int) -> None:
        """Queue again the splits that a dead reader had."""
        for claim in self.queue.give_back(reader):
            log.warning(
                "reader lost, split given out again: split=%s attempt=%d",
                claim.split.split_id,
                claim.attempt,
            )

    def _mark(
        self,
        split: SnapshotSplit,
        status: SplitStatus,
        *,
        report: SplitReport | None = None,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store a split's status; if a newer owner has fenced this one, stop the queue."""
        try:
            self._stored(
                lambda: self._store.mark_split(
                    self._name, self._generation, split, status, report=report, error=error
                )
            )
        except FencedError as fenced:
            self.queue.stop(fenced)
            raise

    def _mark_table(self, table: TableId, phase: TablePhase, error: StoredError = NO_ERROR) -> None:
        """Store a table's phase."""
        self._stored(
            lambda: self._store.mark_table(self._name, self._generation, table, phase, error)
        )

    def _stored(self, write: Callable[[], None]) -> None:
        """Do a write that may be repeated; retry while the state store is away.

        A reader waits with it: its split has not failed.
        """
        failures, since_s = 0, time.monotonic()
        while True:
            try:
                with self._writing:
                    write()
                return
            except StateUnreachableError as error:
                failures += 1
                if self.queue.is_stopped or self._back_off.is_over(time.monotonic() - since_s):
                    raise
                log.warning("the state store is waited for: cause=%s", error)
                time.sleep(self._back_off.wait_s(failures))


def _is_cut(split: SnapshotSplit, others: Sequence[SnapshotSplit]) -> bool:
    """Tell whether a split's two halves are planned: its cut was not marked to the end.

    Halves have consecutive numbers, higher than that of the split they replace.
    """
    lefts = {other.number: other.keys for other in others if other.table == split.table}
    for number, left in lefts.items():
        right = lefts.get(number + 1)
        if number <= split.number or right is None:
            continue
        if (left.start, right.end) == (
            split.keys.start,
            split.keys.end,
        ) and left.end == right.start:
            return True
    return False
