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

from dataclasses import replace

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.engine.ledger.state import stored_anew
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.guarded_writes import GuardedWrites
from airflow_cdc_provider.engine.sink.selection import Selection
from airflow_cdc_provider.engine.sink.slot_store import SlotOutcome, SlotRow, SlotStore


class SlotWriter:
    """Applies batches of changes to one writer slot."""

    def __init__(
        self, store: SlotStore, *, of_stopped_table: bool = False, guard: Guard | None = None
    ) -> None:
        """`of_stopped_table`: it applies an isolated table's changes, not the stream's.

        `guard` knows what others change at the sink.
        """
        self.store = store
        self._guarded = None if guard is None else GuardedWrites(guard, store)
        self._of_stopped_table = of_stopped_table
        self._reached: SlotRow | None = None
        """Where the transaction under way found the slot, or moves it to."""
        self._left: SlotRow | None = None
        """Where the last one left it; None if that is not for sure."""
        self._open: SlotRow | None = None
        self._so_far: SlotOutcome | None = None
        self._is_broken = False

    def apply(self, selection: Selection) -> SlotOutcome | None:
        """Apply a batch, or a part of one, and commit; None while its transaction stays open."""
        if self._is_broken:
            raise SinkUnreachableError(
                "this sink failed in the middle of a source transaction",
                where=self.store.session.where,
                risk="none: all of the transaction was rolled back",
                remedy="open the sink again and read from the ledger's position",
            )
        left, self._left = self._left, None
        if self._open is None and selection.batch.end is not None:
            outcome = self._apply_at_once(selection, left)
            if outcome is None:
                outcome = self.store.session.transaction(lambda: self._apply_whole(selection))
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
                self.store.session.rollback()

    def _apply_at_once(self, selection: Selection, left: SlotRow | None) -> SlotOutcome | None:
        """Apply a batch that the store commits at once; None if it is to be done step by step."""
        if left is None or left.stream.inconsistent:
            return None
        if selection.is_contained(left.position) or not selection.follows(left.position):
            return None
        end, stopped_by = selection.end_within(left.stream)
        if end is None or stopped_by is not None or not selection.batch.changes:
            return None
        at_once = self.store if self._guarded is None else self._guarded
        outcome = at_once.commit_at_once(selection, left, end)
        if outcome is None:
            return None
        self._reached = left.moved(end, selection.knew)
        return outcome

    def _apply_whole(self, selection: Selection) -> SlotOutcome:
        """Apply a whole batch, within a transaction, from the slot's position on."""
        row = self._locked_row()
        if selection.is_contained(row.position):
            return SlotOutcome(row.position)
        selection.check_follows(row.position)
        passed_over = selection.passes_over(row.stream)
        if passed_over is not None and not self._of_stopped_table:
            return SlotOutcome(row.position, passed_over=passed_over)
        return self._moved(selection, row, self._written(selection, row))

    def _apply_part(self, selection: Selection) -> SlotOutcome | None:
        """Apply a part of a source transaction; commit with the last part, else return None."""
        if self._open is None:
            self.store.session.begin()
            self._open = self._locked_row()
            self._so_far = SlotOutcome(self._open.position)
        row, outcome = self._open, self._so_far or SlotOutcome(self._open.position)
        is_new = not selection.is_contained(row.position)
        if is_new:
            selection.check_follows(row.position)
            outcome = outcome.plus(self._written(selection, row))
        if selection.batch.end is None:
            self._so_far = outcome
            return None
        if is_new:
            outcome = self._moved(selection, row, outcome)
        self.store.session.commit()
        self._open = self._so_far = None
        return outcome

    def _locked_row(self) -> SlotRow:
        """Lock and read the slot's row."""
        self._reached = self.store.locked_row()
        return self._reached

    def _written(self, selection: Selection, row: SlotRow) -> SlotOutcome:
        """Write what a batch holds from the row's position on; return its counts."""
        work = selection.work(row.position, row.stream)
        if work.tables:
            self.store.mark(selection.batch.origins)
        if self._guarded is None or not work.tables:
            self.store.write(work)
        else:
            self._guarded.write(selection, row, work)
        return SlotOutcome.of(row.position, work)

    def _moved(self, selection: Selection, row: SlotRow, outcome: SlotOutcome) -> SlotOutcome:
        """Store the batch's end as the slot's position."""
        end, stopped_by = selection.end_within(row.stream)
        if end is None:
            raise ValueError("a part of a transaction is not stored")
        knew = selection.knew
        outcome = replace(outcome, end=end, stopped_by=stopped_by, knew=knew)
        self.store.move(outcome, stored_anew(row.stream, end))
        self._reached = row.moved(end, knew)
        return outcome
