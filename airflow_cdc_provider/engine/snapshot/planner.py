"""Planning in the driver while readers already read.

Tables are planned one after the other over one connection. Splits are stored as their boundaries
are found, a few at a time, and can be claimed at once. A plan that was cut short goes on behind
the last stored split: the one whose end no other split starts at.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from airflow_cdc_provider.columns.source_port import Boundaries
from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import CdcError, FencedError, RetryableError
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.records import SplitState, TableState
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner

log = logging.getLogger(__name__)

_STORE_EVERY_S = 0.3
_STORE_AT_MOST = 64


OpenBoundaries = Callable[[TableState], AbstractContextManager[Boundaries]]


class Planner:
    """Plans the splits of tables in a thread of its own, while readers already read."""

    def __init__(
        self,
        assigner: SplitAssigner,
        tables: Sequence[TableState],
        open_boundaries: OpenBoundaries,
        *,
        stored: Callable[[TableState], Sequence[SplitState]],
        back_off: BackOff | None = None,
    ) -> None:
        self._assigner = assigner
        self._tables = [table for table in tables if not table.planning_done]
        self._open = open_boundaries
        self._stored = stored
        self._back_off = back_off or BackOff()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-planner", daemon=True)
        assigner.queue.start_planning(table.table for table in self._tables)

    @property
    def is_needed(self) -> bool:
        """Tell whether any table is left to plan."""
        return bool(self._tables)

    def __enter__(self) -> Planner:
        if self._tables:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._tables:
            self._thread.join(timeout=60)

    def _run(self) -> None:
        """Plan each table in turn; a table that cannot be planned fails alone."""
        for table in self._tables:
            if self._closing.is_set() or self._assigner.queue.is_stopped:
                return
            try:
                self._plan_with_retries(table)
            except FencedError as fenced:
                self._assigner.queue.stop(fenced)
                return
            except CdcError as error:
                self._assigner.refuse_table(table.table, error, at="planning")

    def _plan_with_retries(self, table: TableState) -> None:
        """Plan a table's splits, again while the source is away."""
        failures, since = 0, time.monotonic()
        while True:
            try:
                with self._open(table) as boundaries:
                    self._plan(table, boundaries)
                return
            except RetryableError as error:
                failures += 1
                if self._back_off.is_over(time.monotonic() - since):
                    raise
                log.warning("planning is tried again: table=%s cause=%s", table.table, error)
                if self._closing.wait(self._back_off.wait_s(failures)):
                    return

    def _plan(self, table: TableState, boundaries: Boundaries) -> None:
        """Plan the splits of a table from the last stored split on."""
        schema = table.plan.schema
        known = [s.split for s in self._stored(table) if s.status is not SplitStatus.CUT]
        end = frontier(known)
        if known and end is None:
            self._assigner.planned(schema.table)
            return
        cuts = () if table.plan.is_one_split else boundaries(schema, end)
        splits = splits_between(schema.table, schema.primary_key, schema.key_kinds, cuts, start=end)
        for some in _in_groups(self._numbered(splits)):
            if self._closing.is_set() or self._assigner.queue.is_stopped:
                return
            self._assigner.plan(some)
        self._assigner.planned(schema.table)

    def _numbered(self, splits: Iterable[SnapshotSplit]) -> Iterator[SnapshotSplit]:
        """Give each split its number."""
        for split in splits:
            yield replace(split, number=self._assigner.numbers.take(split.table))


def frontier(splits: Iterable[SnapshotSplit]) -> Key | None:
    """Return the key up to which splits are planned, None if that is the end of the table.

    Splits that were cut are left out, their halves are in. Keys are compared for equality only,
    so this holds for texts too.
    """
    splits = list(splits)
    starts = {split.keys.start for split in splits}
    open_ends = [split.keys.end for split in splits if split.keys.end not in starts]
    return next((end for end in open_ends if end is not None), None)


def _in_groups(splits: Iterable[SnapshotSplit]) -> Iterator[list[SnapshotSplit]]:
    """Group splits that are stored together: at most so many, and not too late."""
    group: list[SnapshotSplit] = []
    stored_at = time.monotonic()
    for split in splits:
        group.append(split)
        late = time.monotonic() - stored_at >= _STORE_EVERY_S
        if late or len(group) >= _STORE_AT_MOST:
            yield group
            group, stored_at = [], time.monotonic()
    if group:
        yield group
