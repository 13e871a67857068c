"""Applying changes to MySQL-protocol sinks, in source order or spread over several writers.

`transactions`: one slot. Every sink transaction holds whole source transactions in source order,
so the sink is always the source at one position.

`merged`: several slots, each with a session and a position of its own. A batch is merged once and
its keys are spread over the slots, which commit side by side. After a crash slots may be at
different batches; each skips what it has, so a replay is exact, slot by slot. The stream's
position is the smallest slot's. Between two batches the sink is the source at that position.

When the number of slots changes, they all begin at the smallest position; tables that one slot
had to itself keep theirs as their own "applied through".

A table that the stream leaves alone has one slot to itself, in a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.sink_port import AppliedBatch, Owner
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.ledger.state import Slot, stream_of_slots
from airflow_cdc_provider.engine.stream.selection import CapturedTables, Selection
from airflow_cdc_provider.engine.stream.slots import spread_columns, whole_table_slot
from airflow_cdc_provider.systems.mysql.sink import ledger, stopped_rows, writers
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, create_ledger, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.sink_tables import sink_tables
from airflow_cdc_provider.systems.mysql.sink.slot_rows import (
    insert_slot,
    read_stream,
    slot_rows,
)
from airflow_cdc_provider.systems.mysql.sink.slot_writer import (
    SlotOutcome,
    SlotWriter,
    smallest_end,
)
from airflow_cdc_provider.systems.mysql.sink.stored_splits import (
    delete_unused_splits,
    needs_cleanup,
)
from airflow_cdc_provider.systems.mysql.sink.table_drift import require_as_planned


class MySqlChangeSink:
    """Applies batches of changes to a MySQL-protocol sink; each writer slot has its own session."""

    def __init__(
        self,
        open_session: Callable[[], SinkSession],
        owner: Owner,
        captured: CapturedTables,
        *,
        slots: int = 1,
        stopped: TableId | None = None,
    ) -> None:
        self.quiet: IdleRange | None = None
        self._owner = owner
        self._stopped = stopped
        self._captured = captured
        plans = tuple(captured.plans.values())
        self._sessions: list[SinkSession] = []
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="cdc-slot") if slots > 1 else None
        opened = False
        try:
            self._sessions = [open_session() for _ in range(slots)]
            create_ledger(self._sessions[0])
            self._locks = [writers.register_writer(session, owner) for session in self._sessions]
            if stopped is None:
                spread_over(self._sessions[0], owner, plans, slots)
            require_as_planned(self._sessions[0], owner, captured.followed)
            tables = sink_tables(self._sessions[0], [plan.sink_table for plan in plans])
            self._slots = [
                SlotWriter(session, owner, tables, slot=slot, slots=slots, stopped=stopped)
                for slot, session in enumerate(self._sessions)
            ]
            opened = True
        finally:
            if not opened:
                self._let_go()

    def close(self) -> None:
        """Close the writers' sessions; an open transaction is rolled back."""
        for session, lock in zip(self._sessions, self._locks, strict=True):
            writers.unregister_writer(session, lock)
        self._let_go()

    def _let_go(self) -> None:
        """Close the thread pool and the sessions."""
        if self._pool is not None:
            self._pool.shutdown()
        for session in self._sessions:
            session.close()

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, with each table's progress.

        None if not stored.
        """
        if self._stopped is None:
            return read_stream(self._sessions[0], self._owner)
        found = stopped_rows.stopped_tables(self._sessions[0], self._owner)
        return next((each.stream for each in found if each.table == self._stopped), None)

    def apply(self, batch: ChangeBatch) -> AppliedBatch | None:
        """Apply one batch and store its end in the same transaction (law 7)."""
        selection = Selection(
            batch, self._captured, self.quiet, of_stopped_table=self._stopped is not None
        )
        outcomes = [outcome for outcome in self._apply(selection) if outcome is not None]
        if len(outcomes) < len(self._slots):
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
        """Apply a batch's selected changes in all slots side by side.

        Return each slot's outcome.
        """
        if self._pool is None:
            return [slot.apply(selection) for slot in self._slots]
        running: list[Future[SlotOutcome | None]] = [
            self._pool.submit(slot.apply, selection) for slot in self._slots
        ]
        errors = [error for each in running if (error := each.exception()) is not None]
        for error in errors:
            # one is raised; that another slot failed too changes nothing: each is replayed
            raise error
        return [each.result() for each in running]


def spread_over(session: SinkSession, owner: Owner, plans: Sequence[TablePlan], slots: int) -> None:
    """Rewrite the ledger's writer slots to exactly `slots`, unless there are that many already."""
    mine = pipeline_is(owner.pipeline)

    def spread() -> None:
        ledger.check_generation(session, owner, lock="FOR UPDATE")
        rows = slot_rows(session, owner)
        if len(rows) in (0, slots):
            if needs_cleanup(session, owner):
                slot_rows(session, owner, lock="FOR UPDATE")
                delete_unused_splits(session, owner)
            return
        stream = _collapsed(rows, plans)
        session.execute(f"DELETE FROM {LEDGER}.stream WHERE {mine}")
        for slot in range(slots):
            insert_slot(session, owner, stream, slot=slot, slots=slots)
        delete_unused_splits(session, owner)

    session.transaction(spread)


def _collapsed(rows: Sequence[Slot], plans: Sequence[TablePlan]) -> StreamSplit:
    """Return the stream split at the smallest position of all writer slots."""
    stream = stream_of_slots(rows)
    if stream is None:
        raise ValueError("no slots")
    targets = {plan.schema.table: plan.target for plan in plans}

    def kept(progress: TableProgress) -> TableProgress:
        target = targets.get(progress.table)
        if target is None or len(rows) == 1 or spread_columns(target):
            return progress
        own = rows[whole_table_slot(progress.table, len(rows))].position
        return replace(progress, applied_through=_later(progress.applied_through, own))

    return replace(stream, tables=tuple(kept(progress) for progress in stream.tables))


def _later(one: LogPosition, other: LogPosition) -> LogPosition:
    """Return the later of two positions, or the first where they cannot be compared."""
    try:
        return one.join(other)
    except CdcError:
        return one  # not comparable: the table is replayed, which is right, if not needed
