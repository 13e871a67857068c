"""Writing a batch where the sink's node may have changed the same rows: conflicts are settled.

Whose change stays is the same at both nodes, by the rule of the table. Where that is the source's,
it is written over the sink's; else it is left out, for the other edge writes the sink's over it
there. Both edges see the same conflicts, each in the other node's log.

Rows are written before the guard is asked for the last time, so that nobody can change them
between its answer and the commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.core.conflicts import Conflict, RowChange, Values
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    SinkBusyError,
    UndecidedConflictError,
    only_of,
)
from airflow_cdc_provider.engine.sink.guard import Clash, Guard, without
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows, RowIdentity
from airflow_cdc_provider.engine.sink.selection import Selection, TableBatch
from airflow_cdc_provider.engine.sink.settling import Part, compare
from airflow_cdc_provider.engine.sink.slot_store import SlotRow, SlotStore

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.positions import LogPosition
    from airflow_cdc_provider.core.records import TablePlan

_MOST_LOOKS = 20
_MOST_NAMED = 5
_MOST_TEXT = 10_000
"""Of a value in a conflict's row, in characters: the rows themselves have all of it."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """Rows that both nodes changed, and whose change of each stays."""

    clash: Clash
    source_stays: BoolArray
    """One for each row of the clash."""

    @property
    def lost(self) -> Clash:
        """Return the rows of which the source's change is left out."""
        return replace(self.clash, rows=self.clash.rows.only(~self.source_stays))


class _Ours:
    """What a batch changes of the rows of a clash; worked out once, if it is asked for."""

    def __init__(self, selection: Selection, row: SlotRow) -> None:
        self._selection = selection
        self._row = row
        self._kept: list[tuple[TablePlan, TableChanges]] | None = None

    def of(self, clash: Clash) -> list[Part]:
        """Return the batch's changes of the clash's table."""
        if self._kept is None:
            self._kept = self._selection.kept(self._row.position, self._row.stream)
        points = self._selection.batch.transactions
        return [(changes, points) for plan, changes in self._kept if plan is clash.work.plan]


class GuardedWrites:
    """Writes batches of changes through a guard."""

    def __init__(self, guard: Guard, store: SlotStore) -> None:
        self._guard = guard
        self._store = store
        self._beaten: dict[TableId, tuple[RowIdentity, dict[str, str]]] = {}
        """Of tables that were asked for, where the last change at the sink is that the source has
        beaten, by the names of rows."""

    def is_free(self, selection: Selection, row: SlotRow) -> bool:
        """Tell whether all of a batch that was just written may be committed as it is."""
        known = self._known(selection, row)
        others_write = self._guard.catch_up(known)
        self._guard.look_at_triggers()
        if not others_write:
            return True
        return not self._clashes(selection.work(row.position, row.stream), known)

    def write(self, selection: Selection, row: SlotRow, work: TableBatch) -> None:
        """Write a batch's work and store its conflicts."""
        guard, known = self._guard, self._known(selection, row)
        others_write = guard.may_have_changes and guard.catch_up(known)
        ours = _Ours(selection, row)
        left_out: list[Clash] = []
        if others_write:
            left_out = [each.lost for each in self._settled(self._clashes(work, known), ours)]
            self._store.set_savepoint()
        for _ in range(_MOST_LOOKS):
            self._store.write(without(work, left_out))
            guard.catch_up(known)
            guard.look_at_triggers()
            settled = self._settled(self._clashes(work, known), ours)
            lost = [each.lost for each in settled]
            if _count(lost) == _count(left_out):  # what has lost once has lost for good
                self._note(settled, ours)
                return
            if not others_write:  # they began just now: there is no savepoint
                break
            left_out = lost
            self._store.undo_to_savepoint()
        raise SinkBusyError(
            "others change the same rows all the time",
            where=f"node {guard.edge.dst_node}",
            risk="none: all of the transaction is rolled back",
            remedy="nothing: it is tried again",
        )

    def _known(self, selection: Selection, row: SlotRow) -> LogPosition:
        """Return what the source knew of the sink's log when it made a batch's changes."""
        known = selection.knew or row.knew or self._guard.known
        if known is None:
            edge = self._guard.edge
            raise IntegrityError(
                f"what {edge.src_node} knew of {edge.dst_node} when it made its changes is not "
                "known",
                where=f"edge from {edge.src_node} to {edge.dst_node} of {edge.name}",
                risk="a conflict could not be told from a later change; nothing was written",
                remedy="copy the node anew, as the page 'Two nodes' says",
            )
        return known

    def _clashes(self, work: TableBatch, known: LogPosition) -> tuple[Clash, ...]:
        """Return the rows of a batch's work that the sink's node has changed, too."""
        return self._guard.clashes(work, known, self._store.text_weights)

    # --- whose change stays -------------------------------------------------------------------

    def _settled(self, clashes: Sequence[Clash], ours: _Ours) -> list[_Settled]:
        """Return clashes with whose change of each row stays."""
        return [_Settled(clash, self._source_stays(clash, ours)) for clash in clashes]

    def _source_stays(self, clash: Clash, ours: _Ours) -> BoolArray:
        """Tell of which rows of a clash the source's change stays."""
        edge, table = self._guard.edge, clash.work.plan.schema.table
        rule = edge.rule_of(table)
        if rule.stops:
            raise self._undecided(clash, ours)
        source_wins = np.full(len(clash.rows), rule.winner == edge.src_node)
        if not rule.column:
            return source_wins
        places, names = self._beaten_in(clash), clash.rows.identity.names(_keys(clash))
        beaten = {at: places[name] for at, name in enumerate(names) if name in places}
        changes = [each for each, _ in ours.of(clash)]
        with only_of(table):
            greater = compare(rule.column, clash.rows, changes, _theirs(clash), beaten)
        source_wins[greater != 0] = greater[greater != 0] > 0
        return source_wins

    def _undecided(self, clash: Clash, ours: _Ours) -> UndecidedConflictError:
        """Return the error for rows whose conflict a person decides."""
        edge, table = self._guard.edge, clash.work.plan.schema.table
        some = replace(clash, rows=replace(clash.rows, keys=clash.rows.keys.slice(0, _MOST_NAMED)))
        by_source, by_sink = (_last(parts, some.rows) for parts in (ours.of(clash), _theirs(clash)))
        named = [
            f"{json.dumps(key, ensure_ascii=False)}, by {edge.src_node} at {by_source[at].at} and "
            f"by {edge.dst_node} at {by_sink[at].at}"
            for at, key in enumerate(_keys(some))
        ]
        others = len(clash.rows) - len(named)
        more = f"; and {others} more" if others else ""
        return UndecidedConflictError(
            f"both nodes changed rows of {table} without knowing of the other's change: "
            f"{'; '.join(named)}{more}",
            where=f"edge from {edge.src_node} to {edge.dst_node} of {edge.name}, {table}",
            risk="neither change was written at the other node; both edges end before them, and "
            "the nodes differ from there on",
            remedy=f"give {table} a rule with a winner under topology.conflicts.tables, in the "
            "files of both edges; once both have ended, `run` them again",
        ).about(table)

    def _beaten_in(self, clash: Clash) -> dict[str, str]:
        """Return the places of the last changes that the source has beaten in a clash's table.

        Of those that were stored before only what the source does not know counts still.
        """
        table, identity = clash.work.plan.schema.table, clash.rows.identity
        if table not in self._beaten or self._beaten[table][0] is not identity:
            unknown = {point.where for part in clash.theirs for point in part.points}
            stored = self._store.beaten(table, self._guard.edge.src_node)
            found = [(key, place) for key, place in stored if place in unknown]
            names = identity.names([key for key, _ in found])
            places = (place for _, place in found)
            self._beaten[table] = identity, dict(zip(names, places, strict=True))
        return self._beaten[table][1]

    def _note(self, settled: Sequence[_Settled], ours: _Ours) -> None:
        """Store the conflicts of a batch whose rows are written."""
        edge, noted = self._guard.edge, []
        for each in settled:
            table = each.clash.work.plan.schema.table
            by_source = _last(ours.of(each.clash), each.clash.rows)
            by_sink = _last(_theirs(each.clash), each.clash.rows)
            keys = _keys(each.clash)
            for at, key in enumerate(keys):
                kept = edge.src_node if each.source_stays[at] else edge.dst_node
                noted.append(Conflict(table, key, kept, by_source[at], by_sink[at]))
            if table in self._beaten:
                names = enumerate(each.clash.rows.identity.names(keys))
                won = {name: by_sink[at].at for at, name in names if each.source_stays[at]}
                self._beaten[table][1].update(won)
        self._store.note_conflicts(noted)


def _keys(clash: Clash) -> list[Values]:
    """Return the keys of a clash's rows as JSON holds them."""
    return [_plain(key) for key in clash.rows.keys.to_pylist()]


def _theirs(clash: Clash) -> list[Part]:
    """Return what the sink's node changed in a clash's table."""
    return [(part.changes, part.points) for part in clash.theirs]


def _count(clashes: Sequence[Clash]) -> int:
    """Return how many rows clash."""
    return sum(len(clash.rows) for clash in clashes)


def _last(parts: Sequence[Part], rows: KeyedRows) -> Mapping[int, RowChange]:
    """Return the last change of each of some rows, by their row numbers."""
    found: dict[int, RowChange] = {}
    for changes, points in parts:
        last = np.full(len(rows), -1, np.int64)
        for places in rows.places(changes):
            changed = np.flatnonzero(places >= 0)
            np.maximum.at(last, places[changed], changed)
        for place in np.flatnonzero(last >= 0).tolist():
            change = int(last[place])
            op = changes.op[change].as_py()
            found[place] = RowChange(
                None if op == Op.INSERT else _plain(_row(changes.before, change)),
                None if op == Op.DELETE else _plain(_row(changes.after, change)),
                points[changes.transaction[change].as_py()].where,
            )
    return found


def _row(rows: pa.RecordBatch, row: int) -> Values:
    """Return a row's values by column."""
    values: Values = rows.slice(row, 1).to_pylist()[0]
    return values


def _plain(values: Values) -> Values:
    """Return values as JSON holds them."""
    return {name: _value(value) for name, value in values.items()}


def _value(value: object) -> object:
    """Return one value as JSON holds it."""
    if value is None or isinstance(value, int | float | bool):
        return value
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}... ({len(text)} characters)"
