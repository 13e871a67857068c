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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.errors import CdcError, SinkUnreachableError, only_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.quiet_log import QuietLog
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.stream.selection import Selection, TableWork, Work
from airflow_cdc_provider.engine.stream.slots import part_of
from airflow_cdc_provider.systems.mysql.sink import change_counts, ledger, stopped_rows
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.row_writer import LoadDoubtedError, RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.sink_tables import SinkTable
from airflow_cdc_provider.systems.mysql.sink.slot_rows import moved_to
from airflow_cdc_provider.systems.mysql.sink.stored_splits import split_named


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """What a slot has committed of a batch."""

    end: LogPosition
    changes_of: Mapping[TableId, int] = field(default_factory=dict)
    transactions: int = 0
    committed_us: int = 0
    stopped_by: CdcError | None = None
    """The stream ends here: a statement changed a captured table, or may have."""
    passed_over: QuietLog | None = None
    """The batch, if nothing of it was committed because it holds nothing for the sink."""

    @property
    def changes(self) -> int:
        """Return how many row changes it had, before they were merged."""
        return sum(self.changes_of.values())


@dataclass(frozen=True, slots=True)
class _Committed:
    """The slot's row of the ledger."""

    position: LogPosition
    stream: StreamSplit
    """As stored: positions behind it are not yet taken into account."""


class SlotWriter:
    """Applies batches over one session, as one of `slots` writers."""

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
        self._open: _Committed | None = None
        self._so_far: SlotOutcome | None = None
        self._is_broken = False

    @property
    def _is_stopped_table(self) -> bool:
        """Tell whether one table is brought further, which is to say where it is."""
        return self._ledger != "stream"

    def close(self) -> None:
        """Let go of the connection; a transaction that is open is rolled back."""
        self.session.close()

    def apply(self, selection: Selection) -> SlotOutcome | None:
        """Apply one batch, or a part of one; None while its transaction stays open."""
        if self._is_broken:
            raise SinkUnreachableError(
                "this sink failed in the middle of a source transaction",
                where=f"slot {self._slot} on {self.session.where}",
                risk="none: all of the transaction was rolled back",
                remedy="open the sink again and read from the ledger's position",
            )
        if self._open is None and selection.batch.end is not None:
            return self.session.transaction(lambda: self._apply_whole(selection))
        # Broken unless it says otherwise: an interrupt counts as a failure, too.
        self._is_broken = True
        try:
            outcome = self._apply_part(selection)
            self._is_broken = False
            return outcome
        finally:
            if self._is_broken:
                self.session.rollback()

    def _apply_whole(self, selection: Selection) -> SlotOutcome:
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
        """Lock and read the slot's row; its split is read once as long as it stays."""
        ledger.check_generation(self.session, self._owner)
        found = self.session.rows(
            f"SELECT position, split FROM {LEDGER}.{self._ledger} WHERE {self._row} FOR UPDATE"
        )
        if not found:
            raise ledger.no_stream(self._owner, self.session.where)
        position, name = found[0]
        if self._stored is None or self._stored[0] != name:
            self._stored = name, split_named(self.session, self._owner, name)
        return _Committed(position_from_json(json.loads(position)), self._stored[1])

    def _store(
        self, selection: Selection, committed: _Committed, outcome: SlotOutcome
    ) -> SlotOutcome:
        """Store the position, then check the generation as the last thing before COMMIT."""
        end, stopped_by = selection.end_within(committed.stream)
        if end is None:
            raise ValueError("a part of a transaction is not stored")
        moved = moved_to(self.session, end, committed.stream, self._owner)
        self.session.execute(
            f"UPDATE {LEDGER}.{self._ledger} SET {moved}, "
            f"changes = changes + {outcome.changes}, "
            f"transactions = transactions + {outcome.transactions}, "
            f"source_committed_us = GREATEST(source_committed_us, {outcome.committed_us}), "
            f"committed_us = {NOW_US} WHERE {self._row}"
        )
        if self._slot == 0:
            change_counts.count_changes(self.session, self._owner, outcome.changes_of, end)
        ledger.claim_commit(self.session, self._owner)
        return replace(outcome, end=end, stopped_by=stopped_by)

    # --- rows ---------------------------------------------------------------------------------

    def _write(self, work: Work) -> None:
        for table in work.tables:
            mine = part_of(table, self._slot, self._slots)
            if not len(mine.merged):
                continue
            with only_of(mine.plan.schema.table):
                self._write_in_one_way(mine)

    def _write_in_one_way(self, work: TableWork) -> None:
        """Load the rows where that is allowed; by INSERT if what became of them is in doubt."""
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
        """Delete first, then write: so no row meets the one it takes the place of."""
        plan, merged = work.plan, work.merged
        table = self._tables.get(plan.sink_table, SinkTable())
        key = key_columns(plan.schema)
        writer = RowWriter(self.session, plan.sink_table, plan.schema.copied_columns, key)
        writer.delete_keys(merged.deletes)
        if table.upserts(plan):
            fits = load and table.replaces(plan)
            writer.write([merged.upserts], WriteMode.UPSERT, load=fits)
            return
        writer.delete_keys(merged.upserts.select(list(plan.schema.primary_key)))
        writer.write([merged.upserts], WriteMode.INSERT, load=load)


def _outcome(position: LogPosition, work: Work) -> SlotOutcome:
    return SlotOutcome(position, work.changes_of, work.transactions, work.committed_us)


def _sum(one: SlotOutcome, other: SlotOutcome) -> SlotOutcome:
    """Count two parts together; the parts of one transaction count it once."""
    return replace(
        other,
        changes_of=Counter(one.changes_of) + Counter(other.changes_of),
        transactions=one.transactions
        + other.transactions
        - (1 if one.transactions and other.transactions else 0),
        committed_us=max(one.committed_us, other.committed_us),
    )


def smallest_end(outcomes: Sequence[SlotOutcome]) -> LogPosition:
    """Return the position that all slots have reached."""
    reached = outcomes[0].end
    for outcome in outcomes[1:]:
        reached = reached.meet(outcome.end)
    return reached
