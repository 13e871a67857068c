"""Writing a batch where the sink's node may have changed the same rows: conflicts are settled.

Whose change stays is the same at both nodes: the winner's. Where that is the source's, it is
written over the sink's; else it is left out, for the other edge writes the sink's over it there.
Both edges see the same conflicts, each in the other node's log.

Rows are written before the guard is asked for the last time, so that nobody can change them
between its answer and the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.conflicts import Conflict, RowChange, Values
from airflow_cdc_provider.core.errors import IntegrityError, SinkBusyError
from airflow_cdc_provider.engine.sink.guard import Clash, Guard, without
from airflow_cdc_provider.engine.sink.selection import Selection, TableBatch
from airflow_cdc_provider.engine.sink.slot_store import SlotRow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint

_MOST_LOOKS = 20
_MOST_TEXT = 10_000
"""Of a value in a conflict's row, in characters: the rows themselves have all of it."""


class Store(Protocol):
    """What guarded writes need of a slot's store, within its open transaction."""

    def write(self, work: TableBatch) -> None:
        """Write the rows of a batch."""

    def set_savepoint(self) -> None:
        """Begin what `undo_to_savepoint` undoes."""

    def undo_to_savepoint(self) -> None:
        """Undo what was written since the savepoint; the rows stay locked."""

    def note_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        """Store conflicts with the rows that were kept."""


class GuardedWrites:
    """Writes batches of changes through a guard."""

    def __init__(self, guard: Guard, store: Store) -> None:
        self._guard = guard
        self._store = store

    def is_free(self, selection: Selection, row: SlotRow) -> bool:
        """Tell whether all of a batch that was just written may be committed as it is."""
        known = self._known(selection, row)
        if not self._guard.catch_up(known):
            return True
        return not self._guard.clashes(selection.work(row.position, row.stream), known)

    def write(self, selection: Selection, row: SlotRow, work: TableBatch) -> None:
        """Write a batch's work and store its conflicts."""
        guard, known = self._guard, self._known(selection, row)
        others_write = guard.may_have_changes and guard.catch_up(known)
        clashes: tuple[Clash, ...] = ()
        if others_write:
            clashes = guard.clashes(work, known)
            self._store.set_savepoint()
        for _ in range(_MOST_LOOKS):
            self._store.write(work if guard.source_wins else without(work, clashes))
            guard.catch_up(known)
            found = guard.clashes(work, known)
            if guard.source_wins or _count(found) == _count(clashes):
                self._store.note_conflicts([*self._conflicts(found, selection, row)])
                return
            if not others_write:  # they began just now: there is no savepoint
                break
            clashes = found
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

    # --- what is told of conflicts ------------------------------------------------------------

    def _conflicts(
        self, clashes: Sequence[Clash], selection: Selection, row: SlotRow
    ) -> Iterator[Conflict]:
        """Yield the conflicts, each with the last change of both nodes."""
        if not clashes:
            return
        kept = selection.kept(row.position, row.stream)
        points = selection.batch.transactions
        for clash in clashes:
            plan = clash.work.plan
            ours = [(changes, points) for its, changes in kept if its is plan]
            theirs = [(each.changes, each.points) for each in clash.theirs]
            by_source = _last(ours, clash.keys)
            by_sink = _last(theirs, clash.keys)
            for place, key in enumerate(clash.keys.to_pylist()):
                yield Conflict(
                    plan.schema.table,
                    _plain(key),
                    self._guard.edge.winner,
                    by_source[place],
                    by_sink[place],
                )


def _count(clashes: Sequence[Clash]) -> int:
    """Return how many keys clash."""
    return sum(clash.keys.num_rows for clash in clashes)


def _last(
    parts: Sequence[tuple[TableChanges, Sequence[TransactionPoint]]], keys: pa.RecordBatch
) -> Mapping[int, RowChange]:
    """Return the last change of each of some keys, by the key's row number."""
    found: dict[int, RowChange] = {}
    for changes, points in parts:
        for place, row in _last_rows(changes, keys).items():
            op = changes.op[row].as_py()
            found[place] = RowChange(
                None if op == Op.INSERT else _plain(_row(changes.before, row)),
                None if op == Op.DELETE else _plain(_row(changes.after, row)),
                points[changes.transaction[row].as_py()].where,
            )
    return found


def _last_rows(changes: TableChanges, keys: pa.RecordBatch) -> dict[int, int]:
    """Return which change of a part is the last one of each key that it has."""
    names = keys.schema.names
    sides = [each.select(names).cast(keys.schema) for each in (changes.before, changes.after)]
    op = as_numpy(changes.op)
    wanted = [(op != Op.INSERT).nonzero()[0], (op != Op.DELETE).nonzero()[0]]
    chosen = [each.take(numbers_of(rows)) for each, rows in zip(sides, wanted, strict=True)]
    of_keys, *groups = key_codes([each.columns for each in (keys, *chosen)]).groups
    last: dict[int, int] = {}
    for codes, rows in zip(groups, wanted, strict=True):
        _note_last(last, codes, rows)
    return {place: last[code] for place, code in enumerate(of_keys.tolist()) if code in last}


def _note_last(
    last: dict[int, int], codes: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]
) -> None:
    """Note the last row of each code."""
    for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
        last[code] = max(row, last.get(code, row))


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
