"""One writer slot: rows, position and generation check in one sink transaction (law 7).

The slot's row in the ledger is locked first and read in the same transaction, so a double of this
writer, of whatever generation, waits its turn and then sees that the batch is committed. What is
applied is chosen from the position just read, never from one remembered.

A source transaction too large for memory comes in parts: the sink's transaction stays open from
the first to the last, and only the last one stores the position and commits. If anything fails in
between, all of it is rolled back and the slot is broken: what follows would be a transaction
without its beginning. Whoever opens the sink again begins at the ledger's position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.errors import CdcError, SinkUnreachableError, only_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_counts import RowCounts, added
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.state import no_stream
from airflow_cdc_provider.engine.stream.selection import (
    FewWork,
    Selection,
    TableBatch,
    TableWork,
)
from airflow_cdc_provider.engine.stream.slots import part_of
from airflow_cdc_provider.systems.mysql.sink import change_counts, ledger, stopped_rows
from airflow_cdc_provider.systems.mysql.sink.commit_script import (
    CommitScripts,
    RowStatement,
    is_small,
)
from airflow_cdc_provider.systems.mysql.sink.few_statements import FewStatements
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.row_writer import LoadDoubtedError, RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.sink_tables import SinkTable
from airflow_cdc_provider.systems.mysql.sink.slot_rows import moved_to
from airflow_cdc_provider.systems.mysql.sink.stored_splits import split_named

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """What a slot has committed of a batch: its end, its counts and the error that ends it."""

    end: LogPosition
    changes_of: Mapping[TableId, RowCounts] = field(default_factory=dict)
    transactions: int = 0
    committed_us: int = 0
    stopped_by: CdcError | None = None
    """The stream ends here: a statement changed a captured table, or may have."""
    passed_over: IdleRange | None = None
    """The batch, if nothing of it was committed because it holds nothing for the sink."""

    @property
    def changes(self) -> int:
        """Return the number of row changes in the batch, before changes of one key were merged."""
        return sum(counts.total for counts in self.changes_of.values())


@dataclass(frozen=True, slots=True)
class _Committed:
    """The slot's row of the ledger: its position, and its stream split."""

    position: LogPosition
    split: str
    """The stored split's name."""
    stream: StreamSplit
    """The stored split: positions behind it are not yet taken into account."""


class SlotWriter:
    """Applies batches of changes over one session, as one of `slots` writer slots."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        tables: Mapping[TableId, SinkTable],
        *,
        slot: int = 0,
        slots: int = 1,
        stopped: TableId | None = None,
    ) -> None:
        self.session = session
        self._owner = owner
        self._tables = tables
        self._slot = slot
        self._slots = slots
        self._ledger = "stream" if stopped is None else "stopped_table"
        self._row = f"{pipeline_is(owner.pipeline)} AND slot = {slot}"
        if stopped is not None:
            self._row = stopped_rows.is_table(owner, stopped)
        self._stored: tuple[str, StreamSplit] | None = None
        self._scripts = CommitScripts(session)
        self._few: dict[TableId, FewStatements] = {}
        self._reached: _Committed | None = None
        """Where the transaction under way found the slot, or moves it to."""
        self._left: _Committed | None = None
        """Where the last one left it; None if that is not for sure."""
        self._open: _Committed | None = None
        self._so_far: SlotOutcome | None = None
        self._is_broken = False

    @property
    def _is_stopped_table(self) -> bool:
        """Tell whether this writer applies a stopped table's changes, not the stream's."""
        return self._ledger != "stream"

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.session.close()

    def apply(self, selection: Selection) -> SlotOutcome | None:
        """Apply a batch, or a part of one, and commit; None while its transaction stays open."""
        if self._is_broken:
            raise SinkUnreachableError(
                "this sink failed in the middle of a source transaction",
                where=f"slot {self._slot} on {self.session.where}",
                risk="none: all of the transaction was rolled back",
                remedy="open the sink again and read from the ledger's position",
            )
        left, self._left = self._left, None
        if self._open is None and selection.batch.end is not None:
            outcome = self._apply_at_once(selection, left)
            if outcome is None:
                outcome = self.session.transaction(lambda: self._apply_whole(selection))
            self._left = self._reached
            return outcome
        # Broken unless it says otherwise: an interrupt counts as a failure, too.
        self._is_broken = True
        try:
            outcome = self._apply_part(selection)
            self._is_broken = False
            return outcome
        finally:
            if self._is_broken:
                self.session.rollback()

    def _apply_at_once(self, selection: Selection, left: _Committed | None) -> SlotOutcome | None:
        """Apply a small batch as one commit script; None if it must be applied by statements."""
        if left is None or left.stream.inconsistent or not self._scripts.are_taken:
            return None
        if selection.is_contained(left.position) or not selection.follows(left.position):
            return None
        end, stopped_by = selection.end_within(left.stream)
        if end is None or stopped_by is not None or not selection.batch.changes:
            return None
        work, rows = self._statements_of(selection, left)
        outcome = replace(_outcome(left.position, work), end=end)
        if rows is None or not self._scripts.commit(
            slot_row=self._slot_row(),
            at=(left.position, left.split),
            rows=rows,
            store=self._store_statements(left, outcome),
            claim=ledger.generation_query(self._owner, self.session.capabilities.share_lock),
            generation=self._owner.generation,
        ):
            return None
        self._reached = replace(left, position=end)
        return outcome

    def _apply_whole(self, selection: Selection) -> SlotOutcome:
        """Apply a whole batch, within a transaction, from the slot's position on."""
        committed = self._committed()
        if selection.is_contained(committed.position):
            return SlotOutcome(committed.position)
        selection.check_follows(committed.position)
        passed_over = selection.passes_over(committed.stream)
        if passed_over is not None and not self._is_stopped_table:
            return SlotOutcome(committed.position, passed_over=passed_over)
        work = selection.work(committed.position, committed.stream)
        self._write(work)
        return self._store(selection, committed, _outcome(committed.position, work))

    def _apply_part(self, selection: Selection) -> SlotOutcome | None:
        """Apply a part of a source transaction; commit with the last part, else return None."""
        if self._open is None:
            self.session.begin()
            self._open = self._committed()
            self._so_far = SlotOutcome(self._open.position)
        committed, so_far = self._open, self._so_far or SlotOutcome(self._open.position)
        if not selection.is_contained(committed.position):
            selection.check_follows(committed.position)
            work = selection.work(committed.position, committed.stream)
            self._write(work)
            so_far = _sum(so_far, _outcome(committed.position, work))
        if selection.batch.end is None:
            self._so_far = so_far
            return None
        outcome = so_far
        if not selection.is_contained(committed.position):
            outcome = self._store(selection, committed, so_far)
        self.session.commit()
        self._open = self._so_far = None
        return outcome

    # --- the ledger's row ---------------------------------------------------------------------

    def _committed(self) -> _Committed:
        """Lock and read the slot's row, and its stream split unless that is known.

        The split is read again only when the row names another one.
        """
        ledger.check_generation(self.session, self._owner)
        found = self.session.rows(self._slot_row())
        if not found:
            raise no_stream(ledger.place_of(self.session, self._owner))
        position, name = found[0]
        if self._stored is None or self._stored[0] != name:
            self._stored = name, split_named(self.session, self._owner, name)
        self._reached = _Committed(position_from_json(json.loads(position)), name, self._stored[1])
        return self._reached

    def _slot_row(self) -> str:
        """Return the query that locks the slot's row and reads its position and split's name."""
        return f"SELECT position, split FROM {LEDGER}.{self._ledger} WHERE {self._row} FOR UPDATE"

    def _store(
        self, selection: Selection, committed: _Committed, outcome: SlotOutcome
    ) -> SlotOutcome:
        """Store the batch's end as the slot's position, and check the generation last."""
        end, stopped_by = selection.end_within(committed.stream)
        if end is None:
            raise ValueError("a part of a transaction is not stored")
        outcome = replace(outcome, end=end, stopped_by=stopped_by)
        for statement in self._store_statements(committed, outcome):
            self.session.execute(statement)
        ledger.claim_commit(self.session, self._owner)
        self._reached = replace(committed, position=end)
        return outcome

    def _store_statements(self, committed: _Committed, outcome: SlotOutcome) -> list[str]:
        """Return the statements that move the slot to the batch's end and count its changes."""
        moved = moved_to(self.session, outcome.end, committed.stream, self._owner)
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

    # --- rows ---------------------------------------------------------------------------------

    def _write(self, work: TableBatch) -> None:
        """Write the rows of a batch that fall to this slot."""
        for table in work.tables:
            mine = part_of(table, self._slot, self._slots)
            if not len(mine.merged):
                continue
            with only_of(mine.plan.schema.table):
                self._write_in_one_way(mine)

    def _statements_of(
        self, selection: Selection, left: _Committed
    ) -> tuple[TableBatch | FewWork, list[RowStatement] | None]:
        """Return a batch's work and the statements that write its rows, None if there are none."""
        few = selection.few_work(left.position, left.stream) if self._slots == 1 else None
        rows = None if few is None else self._few_statements(few)
        if few is not None and rows is not None:
            return few, rows
        work = selection.work(left.position, left.stream)
        return work, self._row_statements(work)

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
        mine = [part_of(table, self._slot, self._slots) for table in work.tables]
        if not is_small(mine):
            return None
        statements: list[RowStatement] = []
        for table in mine:
            with only_of(table.plan.schema.table):
                some = self._table_statements(table)
            if some is None:
                return None
            statements += some
        return statements

    def _table_statements(self, work: TableWork) -> list[RowStatement] | None:
        """Return the statements, as SQL text, of what `_write_table` does; None if not possible."""
        writer, merged = self._writer(work), work.merged
        upserts = self._upserts(work.plan)
        mode = WriteMode.UPSERT if upserts else WriteMode.INSERT
        written = writer.write_statements(merged.upserts, mode)
        if written is None:
            return None
        statements = RowStatement.of(writer.delete_statements(merged.deletes), counts_rows=False)
        if not upserts:
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
        writer.delete_keys(merged.deletes)
        if self._upserts(work.plan):
            fits = load and self._table(work.plan).replaces(work.plan)
            writer.write([merged.upserts], WriteMode.UPSERT, load=fits)
            return
        writer.delete_keys(self._keys(work))
        writer.write([merged.upserts], WriteMode.INSERT, load=load)

    def _writer(self, work: TableWork) -> RowWriter:
        """Return the row writer of the work's sink table."""
        plan = work.plan
        columns = plan.target.copied_columns
        return RowWriter(self.session, plan.sink_table, columns, key_columns(plan.target))

    def _table(self, plan: TablePlan) -> SinkTable:
        """Return what the plan's sink table has, as it was queried when the sink was opened."""
        return self._tables.get(plan.sink_table, SinkTable())

    def _upserts(self, plan: TablePlan) -> bool:
        """Tell whether rows of the plan's table may be written by upsert."""
        return self._table(plan).upserts(plan)

    def _keys(self, work: TableWork) -> pa.RecordBatch:
        """Return the keys of the rows that are written."""
        return work.merged.upserts.select(list(work.plan.target.primary_key))


def _outcome(position: LogPosition, work: TableBatch | FewWork) -> SlotOutcome:
    """Return the outcome of a batch's work: its changes, transactions and commit time."""
    return SlotOutcome(position, work.changes_of, work.transactions, work.committed_us)


def _sum(one: SlotOutcome, other: SlotOutcome) -> SlotOutcome:
    """Add the outcomes of two parts of a batch; a transaction in both is counted once."""
    return replace(
        other,
        changes_of=added(one.changes_of, other.changes_of),
        transactions=one.transactions
        + other.transactions
        - (1 if one.transactions and other.transactions else 0),
        committed_us=max(one.committed_us, other.committed_us),
    )


def smallest_end(outcomes: Sequence[SlotOutcome]) -> LogPosition:
    """Return the largest position that all slots have reached."""
    reached = outcomes[0].end
    for outcome in outcomes[1:]:
        reached = reached.meet(outcome.end)
    return reached
