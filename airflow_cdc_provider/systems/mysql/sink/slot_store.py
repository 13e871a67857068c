"""One writer slot in a MySQL-protocol sink: its row of the ledger, and how its rows are written.

What it commits and when is `engine.sink.slot_writer`'s to decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.core.codec import known_from_json, position_from_json
from airflow_cdc_provider.core.conflicts import Conflict, Values
from airflow_cdc_provider.core.errors import only_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.state import no_stream
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.sink.selection import (
    FewWork,
    Selection,
    TableBatch,
    TableWork,
)
from airflow_cdc_provider.engine.sink.slot_store import LookAtOthers, SlotOutcome, SlotRow
from airflow_cdc_provider.engine.sink.slots import part_of
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import (
    change_counts,
    conflict_rows,
    ledger,
    stopped_rows,
)
from airflow_cdc_provider.systems.mysql.sink.commit_script import (
    CommitScripts,
    RowStatement,
    is_small,
)
from airflow_cdc_provider.systems.mysql.sink.enum_zero import living_last
from airflow_cdc_provider.systems.mysql.sink.few_statements import FewStatements
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.keyless_rows import delete_rows
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.marker_rows import MarkerRows
from airflow_cdc_provider.systems.mysql.sink.row_writer import LoadDoubtedError, RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.sink_tables import SinkTable
from airflow_cdc_provider.systems.mysql.sink.slot_rows import move_apart, moved_to
from airflow_cdc_provider.systems.mysql.sink.stored_splits import split_named
from airflow_cdc_provider.systems.mysql.sink.table_drift import missing_as_drift
from airflow_cdc_provider.systems.mysql.sink.text_weights import TextWeights

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """Which of the pipeline's slots one is: one of the stream's, or that of a stopped table."""

    slot: int = 0
    slots: int = 1
    stopped: TableId | None = None
    edge: str = ""
    """The edge's name in the ledger, if its rows are written under a guard."""


class MySqlSlotStore:
    """Keeps one of `slots` writer slots over one session, or the one of a stopped table."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        tables: Mapping[TableId, SinkTable],
        place: SlotPlace,
        marker: MarkerRows,
    ) -> None:
        self.session = session
        self._marker = marker
        self._owner = owner
        self._tables = tables
        self._slot = place.slot
        self._slots = place.slots
        self._stopped = place.stopped
        self._ledger = "stream" if place.stopped is None else "stopped_table"
        self._row = f"{pipeline_is(owner.pipeline)} AND slot = {place.slot}"
        if place.stopped is not None:
            self._row = stopped_rows.is_table(owner, place.stopped)
        self._edge = place.edge
        self._stored: tuple[str, StreamSplit] | None = None
        self._scripts = CommitScripts(session)
        self._few: dict[TableId, FewStatements] = {}

    def commit_at_once(
        self,
        selection: Selection,
        row: SlotRow,
        end: LogPosition,
        *,
        look: LookAtOthers | None = None,
    ) -> SlotOutcome | None:
        """Commit a small batch as one commit script; None if nothing was kept."""
        if not self._scripts.are_taken or (self._edge and self._stopped is not None):
            return None
        work, rows = self._statements_of(selection, row, look)
        outcome = replace(SlotOutcome.of(row.position, work), end=end, knew=selection.knew)
        question = ledger.generation_query(self._owner, self.session.capabilities.share_lock)
        if rows is None or not self._scripts.commit(
            slot_row=self._slot_row(),
            at=(row.position, row.name),
            rows=[*self._marks(selection), *rows],
            store=self._store_statements(outcome),
            claim=(question, self._owner.generation),
            last=None if look is None else partial(self._noting, look),
        ):
            return None
        return outcome

    # --- the ledger's row ---------------------------------------------------------------------

    def locked_row(self) -> SlotRow:
        """Lock and read the slot's row, and its stream split unless that is known.

        The split is read again only when the row names another one.
        """
        if not self._edge:
            ledger.check_generation(self.session, self._owner)
        found = self.session.rows(self._slot_row())
        if self._edge:  # first the lock: what is read then is as it is behind it
            ledger.check_generation(self.session, self._owner)
        if not found:
            raise no_stream(ledger.place_of(self.session, self._owner))
        position, name, *knew = found[0]
        if self._stored is None or self._stored[0] != name:
            self._stored = name, split_named(self.session, self._owner, name)
        known = known_from_json(json.loads(knew[0])) if knew and knew[0] else None
        return SlotRow(position_from_json(json.loads(position)), name, self._stored[1], known)

    def _slot_row(self) -> str:
        """Return the query that locks the slot's row and reads its position and split's name."""
        knew = ", knew" if self._edge else ""
        return (
            f"SELECT position, split{knew} FROM {LEDGER}.{self._ledger} "
            f"WHERE {self._row} FOR UPDATE"
        )

    def move(self, outcome: SlotOutcome, anew: StreamSplit | None) -> None:
        """Move the row to the outcome's end and count its changes; check the generation last."""
        for statement in self._store_statements(outcome, anew):
            self.session.execute(statement)
        if self._edge and self._stopped is not None:
            move_apart(self.session, self._owner, self._stopped, outcome.end, edge=self._edge)
        ledger.claim_commit(self.session, self._owner)

    def _store_statements(self, outcome: SlotOutcome, anew: StreamSplit | None = None) -> list[str]:
        """Return the statements that move the slot to the batch's end and count its changes."""
        moved = moved_to(self.session, outcome.end, anew, self._owner, knew=outcome.knew)
        if self._edge and self._stopped is None:
            moved += f", edge = {literal(self._edge)}"
        statements = [
            f"UPDATE {LEDGER}.{self._ledger} SET {moved}, "
            f"changes = changes + {outcome.changes}, "
            f"transactions = transactions + {outcome.transactions}, "
            f"source_committed_us = GREATEST(source_committed_us, {outcome.committed_us}), "
            f"committed_us = {NOW_US} WHERE {self._row}"
        ]
        if self._slot == 0 and outcome.changes_of:
            counted = change_counts.counted_rows_sql(
                self._owner, outcome.changes_of, outcome.end, outcome.committed_us
            )
            statements.append(counted)
        return statements

    # --- conflicts ----------------------------------------------------------------------------

    def set_savepoint(self) -> None:
        """Begin what `undo_to_savepoint` undoes."""
        self.session.execute("SAVEPOINT airflow_cdc_guard")

    def undo_to_savepoint(self) -> None:
        """Undo what was written since the savepoint; the rows stay locked."""
        self.session.execute("ROLLBACK TO SAVEPOINT airflow_cdc_guard")

    def note_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        """Store conflicts in the open transaction."""
        conflict_rows.note_conflicts(self.session, self._owner, conflicts)

    def _noting(self, look: LookAtOthers) -> list[str] | None:
        """Return the statements that store the conflicts of a batch whose rows are written.

        None if it may not be committed.
        """
        conflicts = look.conflicts()
        return None if conflicts is None else conflict_rows.noting(self._owner, conflicts)

    def text_weights(self) -> TextWeights:
        """Return what asks the server which texts are equal, over the same session."""
        return TextWeights(self.session)

    def beaten(self, table: TableId, node: str) -> Sequence[tuple[Values, str]]:
        """Return the last change of each row that `node` has beaten: keys and places, in order."""
        return conflict_rows.beaten(self.session, self._owner, table, node)

    # --- rows ---------------------------------------------------------------------------------

    def mark(self, origins: frozenset[str]) -> None:
        """Mark the transaction, before its first row, as written at these nodes of a topology."""
        self._marker.mark(self.session, origins)

    def _marks(self, selection: Selection) -> list[RowStatement]:
        """Return the statements that mark a batch in a commit script."""
        return [RowStatement(text) for text in self._marker.counted(selection.batch.origins)]

    def write(self, work: TableBatch) -> None:
        """Write the rows of a batch that fall to this slot."""
        for table in work.tables:
            mine = part_of(table, self._slot, self._slots)
            if not len(mine.merged):
                continue
            plan = mine.plan
            with only_of(plan.schema.table), missing_as_drift(self.session, plan):
                self._write_in_one_way(mine)

    def _statements_of(
        self, selection: Selection, row: SlotRow, look: LookAtOthers | None
    ) -> tuple[TableBatch | FewWork, list[RowStatement] | None]:
        """Return a batch's work and the statements that write its rows, None if there are none.

        They leave out what `look` does not let through.
        """
        few = selection.few_work(row.position, row.stream) if self._slots == 1 else None
        kept = few if few is None or look is None else look.without_lost(few)
        rows = None if kept is None else self._few_statements(kept)
        if few is not None and rows is not None:
            return few, rows
        work = selection.work(row.position, row.stream)
        if not is_small(work.tables):
            return work, None
        written = work if look is None else look.without_lost(work)
        return work, None if written is None else self._row_statements(written)

    def _few_statements(self, work: FewWork) -> list[RowStatement] | None:
        """Return the statements for few changes, value by value.

        None if a table needs another way.
        """
        statements: list[RowStatement] = []
        for table in work.tables:
            found = self._few.get(table.plan.schema.table)
            if found is None or found.plan is not table.plan or found.schema is not table.schema:
                upserts = self._upserts(table.plan)
                found = FewStatements(self.session, table.plan, table.schema, upserts=upserts)
                self._few[table.plan.schema.table] = found
            some = found.of(table.merged)
            if some is None:
                return None
            statements += some
        return statements

    def _row_statements(self, work: TableBatch) -> list[RowStatement] | None:
        """Return the statements that write a small batch's rows as SQL text, or None."""
        statements: list[RowStatement] = []
        for table in (part_of(table, self._slot, self._slots) for table in work.tables):
            with only_of(table.plan.schema.table):
                some = self._table_statements(table)
            if some is None:
                return None
            statements += some
        return statements

    def _table_statements(self, work: TableWork) -> list[RowStatement] | None:
        """Return the statements, as SQL text, of what `_write_table` does; None if not possible."""
        writer, merged = self._writer(work), work.merged
        if not work.plan.target.has_key and merged.deletes.num_rows:
            return None
        upserts = self._upserts(work.plan)
        mode = WriteMode.UPSERT if upserts else WriteMode.INSERT
        written = writer.write_statements(merged.upserts, mode)
        if written is None:
            return None
        statements: list[RowStatement] = []
        if work.plan.target.has_key:
            deletes = writer.delete_statements(merged.deletes)
            statements = RowStatement.of(deletes, counts_rows=False)
        if not upserts and work.plan.target.has_key:
            again = writer.delete_statements(self._keys(work))
            statements += RowStatement.of(again, counts_rows=False)
        return statements + RowStatement.of(written, counts_rows=not upserts)

    def _write_in_one_way(self, work: TableWork) -> None:
        """Write a table's rows by LOAD DATA if allowed, and by INSERT if LOAD DATA is in doubt."""
        if not self.session.capabilities.takes_local_files:
            self._write_table(work, load=False)
            return
        self.session.execute("SAVEPOINT airflow_cdc_load")
        try:
            self._write_table(work, load=True)
        except LoadDoubtedError:
            self.session.execute("ROLLBACK TO SAVEPOINT airflow_cdc_load")
            self._write_table(work, load=False)

    def _write_table(self, work: TableWork, *, load: bool) -> None:
        """Delete a table's keys first, then write its rows, none of which meets an old one."""
        writer, merged = self._writer(work), work.merged
        if not work.plan.target.has_key:
            whole = self._table(work.plan).replaces(work.plan)
            again = delete_rows(self.session, work.plan, merged.deletes, are_whole=whole)
            writer.write([again, merged.upserts], WriteMode.INSERT, load=load)
            return
        writer.delete_keys(merged.deletes)
        if self._upserts(work.plan):
            fits = load and self._table(work.plan).replaces(work.plan)
            for rows in living_last(work.plan, merged.upserts):
                writer.write([rows], WriteMode.UPSERT, load=fits)
            return
        writer.delete_keys(self._keys(work))
        writer.write([merged.upserts], WriteMode.INSERT, load=load)

    def _writer(self, work: TableWork) -> RowWriter:
        """Return the row writer of the work's sink table."""
        plan = work.plan
        columns = plan.target.copied_columns
        key = key_columns(plan.target)
        return RowWriter(self.session, plan.sink_table, columns, key, plan.shard)

    def _table(self, plan: TablePlan) -> SinkTable:
        """Return what the plan's sink table has, as it was queried when the sink was opened."""
        return self._tables.get(plan.sink_table, SinkTable())

    def _upserts(self, plan: TablePlan) -> bool:
        """Tell whether rows of the plan's table may be written by upsert."""
        return plan.target.has_key and self._table(plan).upserts(plan)

    def _keys(self, work: TableWork) -> pa.RecordBatch:
        """Return the keys of the rows that are written."""
        return work.merged.upserts.select(list(work.plan.target.primary_key))
