"""Writing a batch where the sink's node may have changed the same rows: conflicts are settled.

Whose change stays is the same at both nodes, by the rule of the table. Where that is the source's,
it is written over the sink's; else it is left out, for the other edge writes the sink's over it
there. Both edges see the same conflicts, each in the other node's log.

Rows are written before the guard is asked for the last time, so that nobody can change them
between its answer and the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.few_changes import FewMerged, FewTables
from airflow_cdc_provider.columns.plain_changes import PlainChanges
from airflow_cdc_provider.core.conflicts import Conflict
from airflow_cdc_provider.core.errors import SinkBusyError
from airflow_cdc_provider.engine.sink.beaten import BeatenChanges
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.selection import FewTableWork, FewWork, Selection, TableBatch
from airflow_cdc_provider.engine.sink.settled import AnyTableWork, SettledTable, settled_columns
from airflow_cdc_provider.engine.sink.settled_few import OurRows, settled_few
from airflow_cdc_provider.engine.sink.settling import Part
from airflow_cdc_provider.engine.sink.slot_store import AnyWork, SlotOutcome, SlotRow, SlotStore
from airflow_cdc_provider.engine.sink.touched_rows import NotPlainError
from airflow_cdc_provider.engine.sink.undecided import undecided

if TYPE_CHECKING:
    from airflow_cdc_provider.core.known_log import KnownLog
    from airflow_cdc_provider.core.positions import LogPosition
    from airflow_cdc_provider.core.records import TablePlan

_MOST_LOOKS = 20
_MOST_PLAIN = 1_000
"""Of a batch's changes of a table: more are compared as columns."""
_MOST_AT_ONCE = 3
"""How often a batch is sent as a whole whose rows others change meanwhile."""


class _Ours:
    """What a batch changes, table by table; worked out once, where it is asked for."""

    def __init__(self, selection: Selection, row: SlotRow) -> None:
        self._selection = selection
        self._row = row
        self._kept: list[tuple[TablePlan, TableChanges]] | None = None
        self._few: dict[int, OurRows] = {}

    def columns(self, work: AnyTableWork) -> list[Part]:
        """Return the batch's changes of a table."""
        if self._kept is None:
            self._kept = self._selection.kept(self._row.position, self._row.stream)
        points = self._selection.batch.transactions
        return [(changes, points) for plan, changes in self._kept if plan is work.plan]

    def few(self, work: AnyTableWork, column: str) -> OurRows:
        """Return what the batch does to the rows of a table; `NotPlainError` if that is much."""
        found = self._few.get(id(work))
        if found is None:
            points = self._selection.batch.transactions
            found = self._few[id(work)] = OurRows(work, self._plain(work), points, column)
        return found

    def _plain(self, work: AnyTableWork) -> list[PlainChanges]:
        """Return a table's changes as Python objects; `NotPlainError` if they are too many."""
        tables = self._selection.batch.tables
        if isinstance(work, FewTableWork) and isinstance(tables, FewTables):
            table = work.plan.schema.table
            return [PlainChanges(few) for few in tables.few if few.table == table]
        parts = [changes for changes, _ in self.columns(work)]
        if not parts or sum(map(len, parts)) > _MOST_PLAIN:
            raise NotPlainError
        return [PlainChanges(changes) for changes in parts]


class GuardedWrites:
    """Writes batches of changes through a guard."""

    def __init__(self, guard: Guard, store: SlotStore) -> None:
        self.guard = guard
        self.beaten = BeatenChanges(store, guard.edge.src_node)
        self._store = store

    def commit_at_once(
        self, selection: Selection, row: SlotRow, end: LogPosition
    ) -> SlotOutcome | None:
        """Commit a batch that the store commits at once; None if it is to be done step by step."""
        for _ in range(_MOST_AT_ONCE):
            look = _Look(self, selection, row)
            outcome = self._store.commit_at_once(selection, row, end, look=look)
            if outcome is not None or not look.is_overtaken:
                return outcome
        return None

    def write(self, selection: Selection, row: SlotRow, work: TableBatch) -> None:
        """Write a batch's work and store its conflicts."""
        look = _Look(self, selection, row)
        look.begin(work)
        if look.others_write:
            self._store.set_savepoint()
        for _ in range(_MOST_LOOKS):
            self._store.write(look.kept(work))
            conflicts = look.conflicts()
            if conflicts is not None:
                self._store.note_conflicts(conflicts)
                return
            if not look.others_write:  # they began just now: there is no savepoint
                break
            self._store.undo_to_savepoint()
        raise SinkBusyError(
            "others change the same rows all the time",
            where=f"node {self.guard.edge.dst_node}",
            risk="none: all of the transaction is rolled back",
            remedy="nothing: it is tried again",
        )

    def known(self, selection: Selection, row: SlotRow) -> KnownLog:
        """Return what the source knew of the sink's log when it made a batch's changes."""
        return self.guard.required(selection.knew or row.knew)

    def settled(self, work: AnyTableWork, ours: _Ours, known: KnownLog) -> SettledTable | None:
        """Return the rows of a table's work that the sink's node has changed, too, and settle them.

        None if there are none; `NotPlainError` if few changes have to be columns for that;
        `UndecidedConflictError` if the table's rule leaves them to a person.
        """
        edge, found = self.guard.edge, self._compared(work, ours, known)
        if found is not None and edge.rule_of(work.plan.schema.table).stops:
            raise undecided(edge, found)
        return found

    def _compared(self, work: AnyTableWork, ours: _Ours, known: KnownLog) -> SettledTable | None:
        """Settle the rows of a table's work by its rule."""
        guard, edge, table = self.guard, self.guard.edge, work.plan.sink_table
        touched = guard.touched(table)
        if touched is None:
            return None
        try:
            few = ours.few(work, edge.rule_of(work.plan.schema.table).column)
            identity = guard.identity(table, self._store.text_weights)
            return settled_few(few, touched, known.of(table), identity, edge, self.beaten)
        except NotPlainError:
            if isinstance(work, FewTableWork):
                raise
        clash = guard.clash(work, known, self._store.text_weights)
        return (
            None if clash is None else settled_columns(clash, ours.columns(work), edge, self.beaten)
        )


class _Look:
    """Settles a batch's conflicts before its rows are written, and again when they are."""

    def __init__(self, writes: GuardedWrites, selection: Selection, row: SlotRow) -> None:
        self.others_write = False
        """The sink's node had changed something before the rows were written."""
        self.is_overtaken = False
        """While they were written it has changed more of them."""
        self._writes = writes
        self._known = writes.known(selection, row)
        self._ours = _Ours(selection, row)
        self._work: TableBatch | FewWork | None = None
        self._settled: list[SettledTable] = []

    def without_lost(self, work: AnyWork) -> AnyWork | None:
        """Return what is to be written of a batch's work.

        None if few changes have to be columns to be compared.
        """
        try:
            self.begin(work)
        except NotPlainError:
            return None
        return self.kept(work)

    def begin(self, work: TableBatch | FewWork) -> None:
        """Settle the conflicts that are there before a batch's rows are written."""
        guard = self._writes.guard
        self._work = work
        self.others_write = guard.may_have_changes and guard.catch_up(self._known)
        self._settled = self._settle() if self.others_write else []

    def kept(self, work: AnyWork) -> AnyWork:
        """Return a batch's work without the rows of which the source's change is left out."""
        left = {id(each.work): each.without_lost() for each in self._settled if each.lost}
        tables: list[Any] = [left.get(id(table), table) for table in work.tables]
        return replace(work, tables=tuple(table for table in tables if _has_rows(table)))

    def conflicts(self) -> list[Conflict] | None:
        """Return the conflicts of a batch whose rows are written; None if there are new ones."""
        guard, before = self._writes.guard, _lost(self._settled)
        others_write = guard.catch_up(self._known)
        guard.look_at_triggers()
        try:
            self._settled = self._settle() if others_write else []
        except NotPlainError:
            self.is_overtaken = True
            return None
        if _lost(self._settled) != before:  # what has lost once has lost for good
            self.is_overtaken = True
            return None
        conflicts = [each for table in self._settled for each in table.conflicts()]
        self._writes.beaten.note(conflicts)
        return conflicts

    def _settle(self) -> list[SettledTable]:
        """Settle the conflicts with all that has been read of the sink's log."""
        tables: Sequence[AnyTableWork] = () if self._work is None else self._work.tables
        found = (self._writes.settled(table, self._ours, self._known) for table in tables)
        return [each for each in found if each is not None]


def _lost(settled: Sequence[SettledTable]) -> int:
    """Return of how many rows the source's change is left out."""
    return sum(each.lost for each in settled)


def _has_rows(work: AnyTableWork) -> bool:
    """Tell whether anything of a table is to be written."""
    merged = work.merged
    if isinstance(merged, FewMerged):
        return bool(merged.deletes or merged.upserts)
    return bool(len(merged))
