"""Writing what was decided of a ledger as rows, within the transaction that has read its state."""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.ledger.records import (
    ApartKept,
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    GenerationMoved,
    PlanBegun,
    PositionSet,
    Record,
    SlotMoved,
    SlotsRewritten,
    SplitPublished,
    StoppedForgotten,
    StoppedMoved,
    StoppedSaid,
    StreamStored,
    TablesOwned,
    TableStopped,
)
from airflow_cdc_provider.engine.ledger.state import LedgerState, stored_anew
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import (
    change_counts,
    ledger,
    schema_change_rows,
    stopped_rows,
)
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import (
    insert_slot,
    keep_apart,
    moved_to,
    position_literal,
    rewrite_splits,
)

_ROWS_A_STATEMENT = 1000
_OF_A_PLAN = (
    "finished_split",
    "joined_split",
    "stream",
    "stream_split",
    "stream_table",
    "schema_change",
    "stopped_table",
    "changed_table",
    "conflict",
)


class RecordWriter:
    """Writes the records of one decision, on behalf of an owner."""

    def __init__(self, session: SinkSession, owner: Owner, state: LedgerState) -> None:
        self._session = session
        self._owner = owner
        self._state = state
        """From which it was decided."""
        self._mine = pipeline_is(owner.pipeline)

    def write(self, record: Record) -> None:
        """Write one record."""
        match record:
            case GenerationMoved(generation):
                self._set_pipeline(f"generation = {generation}")
            case PlanBegun(plan_id):
                self._delete(*_OF_A_PLAN)
                self._set_pipeline(f"plan_id = {literal(plan_id)}")
            case SplitPublished(split, report):
                plan_id = self._state.plan_id
                ledger.store_report(self._session, self._owner, plan_id, split, report)
            case StreamStored() | SlotsRewritten() | PositionSet() | SlotMoved() | ApartKept():
                self._write_slots(record)
            case TablesOwned(tables, unread):
                self._own_tables(tables)
                self._forget_splits(unread)
            case ChangesCounted(tables, position):
                change_counts.count_changes(self._session, self._owner, tables, position)
            case ChangeBegun() | ChangeEnded():
                self._write_change(record)
            case TableStopped() | StoppedMoved() | StoppedSaid() | StoppedForgotten():
                self._write_stopped(record)
            case _:
                assert_never(record)

    def _write_slots(
        self, record: StreamStored | SlotsRewritten | PositionSet | SlotMoved | ApartKept
    ) -> None:
        """Write what changes the stream's writer slots."""
        match record:
            case StreamStored(stream):
                self._delete("stream")
                insert_slot(self._session, self._owner, stream)
            case SlotsRewritten(stored):
                rewrite_splits(self._session, self._owner, stored)
            case PositionSet(position):
                self._set_slots(
                    f"position = {position_literal(position)}, "
                    f"generation = {self._owner.generation}"
                )
            case SlotMoved(slot, position, knew):
                before = self._state.required_slots()[slot].stored
                anew = stored_anew(before, position)
                moved = moved_to(self._session, position, anew, self._owner, knew=knew)
                self._set_slots(moved, f" AND slot = {slot}")
            case ApartKept(apart):
                keep_apart(self._session, self._owner, apart)
            case _:
                assert_never(record)

    def _write_change(self, record: ChangeBegun | ChangeEnded) -> None:
        """Write what changes the schema changes that are begun."""
        match record:
            case ChangeBegun(change):
                schema_change_rows.begin(self._session, self._owner, change)
            case ChangeEnded(table):
                schema_change_rows.end(self._session, self._owner, table)
            case _:
                assert_never(record)

    def _write_stopped(
        self, record: TableStopped | StoppedMoved | StoppedSaid | StoppedForgotten
    ) -> None:
        """Write what changes the isolated tables."""
        match record:
            case TableStopped(stream, error):
                stopped_rows.stop(self._session, self._owner, stream, error)
            case StoppedMoved(stream):
                stopped_rows.move(self._session, self._owner, stream)
            case StoppedSaid(table, error):
                stopped_rows.say(self._session, self._owner, table, error)
            case StoppedForgotten(table):
                stopped_rows.forget(self._session, self._owner, table)
            case _:
                assert_never(record)

    def _set_pipeline(self, assignment: str) -> None:
        """Change the pipeline's own row."""
        self._session.execute(
            f"UPDATE {LEDGER}.pipeline SET {assignment}, updated_us = {NOW_US} WHERE {self._mine}"
        )

    def _set_slots(self, assignments: str, which: str = "") -> None:
        """Set columns of the ledger rows of all writer slots, or of those that `which` selects."""
        self._session.execute(f"UPDATE {LEDGER}.stream SET {assignments} WHERE {self._mine}{which}")

    def _delete(self, *tables: str) -> None:
        """Delete all of the pipeline's rows of ledger tables."""
        for table in tables:
            self._session.execute(f"DELETE FROM {LEDGER}.{table} WHERE {self._mine}")

    def _own_tables(self, tables: Collection[TableId]) -> None:
        """Store which tables the stream owns, and delete the splits read of all other tables."""
        self._delete("stream_table")
        name = literal(str(self._owner.pipeline))
        rows = [f"({name}, {literal(str(table))})" for table in sorted(tables)]
        for first in range(0, len(rows), _ROWS_A_STATEMENT):
            some = ", ".join(rows[first : first + _ROWS_A_STATEMENT])
            self._session.execute(f"INSERT INTO {LEDGER}.stream_table VALUES {some}")
        for table in ("finished_split", "joined_split"):
            self._session.execute(
                f"DELETE FROM {LEDGER}.{table} WHERE {self._mine} AND table_name NOT IN "
                f"(SELECT table_name FROM {LEDGER}.stream_table WHERE {self._mine})"
            )

    def _forget_splits(self, tables: Collection[TableId]) -> None:
        """Delete the splits of tables that are read again."""
        for table in tables:
            self._session.execute(
                f"DELETE FROM {LEDGER}.finished_split WHERE {self._mine} "
                f"AND table_name = {literal(str(table))}"
            )
