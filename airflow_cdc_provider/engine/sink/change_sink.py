"""Applying changes in source order, or spread over several writer slots.

One slot: every sink transaction holds whole source transactions in source order, so the sink is
always the source at one position.

Several: each has a session and a position of its own. A batch is merged once and its keys are
spread over the slots, which commit side by side. After a crash slots may be at different batches;
each skips what it has, so a replay is exact, slot by slot. The stream's position is the smallest
slot's. Between two batches the sink is the source at that position.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.port import AppliedBatch
from airflow_cdc_provider.engine.sink.selection import CapturedTables, Selection
from airflow_cdc_provider.engine.sink.slot_store import SlotOutcome, SlotStore, smallest_end
from airflow_cdc_provider.engine.sink.slot_writer import SlotWriter


class ChangeStore(Protocol):
    """The writer slots of a stream, or the one of a table that the stream leaves alone."""

    @property
    def slots(self) -> Sequence[SlotStore]:
        """Return the slots, each with a session of its own."""

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None if not stored."""

    def close(self) -> None:
        """Close all sessions; open transactions are rolled back."""


class SlotChangeSink:
    """Applies batches of changes to a sink whose ledger has writer slots."""

    def __init__(
        self,
        store: ChangeStore,
        captured: CapturedTables,
        *,
        of_stopped_table: bool = False,
        guard: Guard | None = None,
    ) -> None:
        """`guard` knows what others change at the sink; it is closed with the sink."""
        self.quiet: IdleRange | None = None
        self._store = store
        self._captured = captured
        self._of_stopped_table = of_stopped_table
        self._guard = guard
        self._writers = [
            SlotWriter(slot, of_stopped_table=of_stopped_table, guard=guard) for slot in store.slots
        ]
        count = len(self._writers)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="cdc-slot") if count > 1 else None

    def close(self) -> None:
        """Close the writers' sessions; an open transaction is rolled back."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._guard is not None:
            self._guard.close()
        self._store.close()

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, with each table's progress.

        None if not stored.
        """
        return self._store.stream()

    def apply(self, batch: ChangeBatch) -> AppliedBatch | None:
        """Apply one batch and store its end in the same transaction (law 7)."""
        selection = Selection(
            batch, self._captured, self.quiet, of_stopped_table=self._of_stopped_table
        )
        outcomes = [outcome for outcome in self._apply(selection) if outcome is not None]
        if len(outcomes) < len(self._writers):
            return None
        stopped_by = next((each.stopped_by for each in outcomes if each.stopped_by), None)
        if stopped_by is not None:
            raise stopped_by
        self._note_quiet(next((each.passed_over for each in outcomes if each.passed_over), None))
        return AppliedBatch(
            end=smallest_end(outcomes),
            changes=max(outcome.changes for outcome in outcomes),
            transactions=max(outcome.transactions for outcome in outcomes),
            committed_us=max(outcome.committed_us for outcome in outcomes),
        )

    def _note_quiet(self, passed_over: IdleRange | None) -> None:
        """Remember an idle range of the log that a slot passed over, the same for every slot."""
        if passed_over is not None and self.quiet is not None:
            passed_over = self.quiet.then(passed_over)
        self.quiet = passed_over

    def _apply(self, selection: Selection) -> list[SlotOutcome | None]:
        """Apply a batch's selected changes in all writer slots, in parallel.

        Return each slot's outcome.
        """
        if self._pool is None:
            return [writer.apply(selection) for writer in self._writers]
        running: list[Future[SlotOutcome | None]] = [
            self._pool.submit(writer.apply, selection) for writer in self._writers
        ]
        errors = [error for each in running if (error := each.exception()) is not None]
        for error in errors:
            # one is raised; that another slot failed too changes nothing: each is replayed
            raise error
        return [each.result() for each in running]
