"""The rows of one table that both nodes changed, compared as Python objects, as `settled` does.

Columns cost some microseconds each however few rows they have, and of a few rows that is all they
cost. What cannot be compared here is `NotPlainError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.few_changes import FewMerged, Row
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.columns.plain_changes import PlainChanges, objects_of
from airflow_cdc_provider.core.conflicts import Conflict, RowChange, Values
from airflow_cdc_provider.engine.sink.conflict_values import json_values
from airflow_cdc_provider.engine.sink.row_identity import RowIdentity, RowKey
from airflow_cdc_provider.engine.sink.selection import FewTableWork, TableWork
from airflow_cdc_provider.engine.sink.touched_rows import (
    NotPlainError,
    Step,
    TheirStep,
    TouchedRows,
    require_kinds,
    steps_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
    from airflow_cdc_provider.core.topology import Topology
    from airflow_cdc_provider.engine.sink.beaten import BeatenChanges
    from airflow_cdc_provider.engine.sink.settled import AnyTableWork

Strength = tuple[bool, Any, bool]
"""What a step counts: NULL below all values, a delete just above the row that it took."""
_NOTHING: tuple[()] = ()
"""Below all of what steps count."""


class OurRows:
    """What a batch does to rows of one table."""

    def __init__(
        self,
        work: AnyTableWork,
        parts: Sequence[PlainChanges],
        points: Sequence[TransactionPoint],
        column: str,
    ) -> None:
        """Take a table's work and changes; `column` settles its conflicts, if it is not empty."""
        self.work, self.parts, self.points = work, parts, points
        self.key = work.plan.target.primary_key
        self.column = column
        schema = parts[0].schema
        names = (*self.key, column) if column else self.key
        if not set(names) <= {*schema.names}:
            raise NotPlainError
        self.kinds: Mapping[str, pa.DataType] = {name: schema.field(name).type for name in names}
        for part in parts[1:]:
            require_kinds(part.schema, self.kinds)
        self._identity: RowIdentity | None = None
        self._rows: tuple[list[RowKey], list[RowKey]] = [], []
        self._steps: dict[RowKey, list[tuple[PlainChanges, Step]]] = {}

    @cached_property
    def _values(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The keys of the rows to delete and of those to write, column by column."""
        work = self.work
        if isinstance(work, TableWork):
            deletes, upserts = work.merged.deletes, work.merged.upserts
            return _columns(deletes, self.key), _columns(upserts, self.key)
        places = [work.schema.get_field_index(name) for name in self.key]
        kinds = [work.schema.field(place).type for place in places]
        found: tuple[dict[str, list[Any]], dict[str, list[Any]]] = {}, {}
        for at, (name, place, kind) in enumerate(zip(self.key, places, kinds, strict=True)):
            found[0][name] = objects_of([row[at] for row in work.merged.deletes], kind)
            found[1][name] = objects_of([row[place] for row in work.merged.upserts], kind)
        return found

    def rows(self, identity: RowIdentity) -> tuple[list[RowKey], list[RowKey]]:
        """Return what tells apart the rows to delete, and those to write."""
        if identity is not self._identity:
            deletes, upserts = self._values
            self._rows = identity.of_few(deletes), identity.of_few(upserts)
            self._steps = {}
            for part in self.parts:
                for step in steps_of(part, self.key, identity):
                    self._steps.setdefault(step.key, []).append((part, step))
            self._identity = identity
        return self._rows

    def written_keys(self, identity: RowIdentity) -> dict[RowKey, dict[str, Any]]:
        """Return the key of each row; of one in two spellings as it is written."""
        deletes, upserts = self.rows(identity)
        found: dict[RowKey, dict[str, Any]] = {}
        for keys, values in zip((upserts, deletes), self._values[::-1], strict=True):
            for at, key in enumerate(keys):
                if key not in found:
                    found[key] = {name: column[at] for name, column in values.items()}
        return found

    def last(self, key: RowKey) -> RowChange:
        """Return the batch's last change of a row."""
        part, step = self._steps[key][-1]
        return _change(part, step.change, self.points[part.transactions[step.change]].where)

    def strongest(self, key: RowKey) -> Strength | tuple[()]:
        """Return the greatest that the batch's changes of a row count."""
        steps = self._steps[key]
        return max(
            (strength(part, self.column, each.change, takes=each.takes) for part, each in steps),
            default=_NOTHING,
        )

    def without(self, lost: set[RowKey]) -> AnyTableWork:
        """Return the table's work without some rows."""
        work = self.work
        kept = [[key not in lost for key in keys] for keys in self._rows]
        if isinstance(work, TableWork):
            deletes, upserts = work.merged.deletes, work.merged.upserts
            merged = MergedChanges(
                deletes.filter(mask_of(kept[0])), upserts.filter(mask_of(kept[1]))
            )
            return TableWork(work.plan, merged)
        few = FewMerged(
            _chosen(work.merged.deletes, kept[0]), _chosen(work.merged.upserts, kept[1])
        )
        return FewTableWork(work.plan, work.schema, few)


@dataclass(frozen=True, slots=True)
class SettledFew:
    """Few rows that both nodes changed, and whose change of each stays."""

    ours: OurRows
    edge: Topology
    keys: Mapping[RowKey, Values]
    """Of each row its key, as the source writes it and JSON holds it."""
    theirs: Mapping[RowKey, Sequence[TheirStep]]
    """Of each row the steps at the sink's node that the source did not know."""
    lost_rows: frozenset[RowKey]

    @property
    def work(self) -> AnyTableWork:
        """Return the table's work that they are of."""
        return self.ours.work

    @property
    def lost(self) -> int:
        """Return of how many rows the source's change is left out."""
        return len(self.lost_rows)

    def without_lost(self) -> AnyTableWork:
        """Return the table's work without the rows of which the source's change is left out."""
        return self.ours.without({*self.lost_rows})

    def conflicts(self) -> list[Conflict]:
        """Return a conflict for each row."""
        table, edge = self.work.plan.schema.table, self.edge
        return [
            Conflict(
                table,
                values,
                edge.dst_node if key in self.lost_rows else edge.src_node,
                self.ours.last(key),
                _their_change(self.theirs[key][-1]),
            )
            for key, values in self.keys.items()
        ]


def settled_few(
    ours: OurRows,
    touched: TouchedRows,
    known: LogPosition,
    identity: RowIdentity,
    edge: Topology,
    beaten: BeatenChanges,
) -> SettledFew | None:
    """Settle the rows of a table's work that the sink's node has changed, None if there are none.

    What is behind `known` counts.
    """
    touched.take_in(ours.key, ours.kinds, identity)
    keys, theirs = {}, {}
    for key, values in ours.written_keys(identity).items():
        steps = touched.behind(key, known)
        if steps:
            keys[key], theirs[key] = json_values(values), steps
    if not keys:
        return None
    table = ours.work.plan.schema.table
    rule = edge.rule_of(table)
    source_wins = rule.winner == edge.src_node
    if not rule.column:
        lost = frozenset[RowKey]() if source_wins else frozenset(keys)
        return SettledFew(ours, edge, keys, theirs, lost)
    places = beaten.places(table, identity, touched.places)
    names = identity.names([*keys.values()])
    losers = []
    for key, name in zip(keys, names, strict=True):
        left = _not_beaten(theirs[key], places.get(name))
        sink = max((_their_strength(step, rule.column) for step in left), default=_NOTHING)
        source = ours.strongest(key)
        if source < sink or (source == sink and not source_wins):
            losers.append(key)
    return SettledFew(ours, edge, keys, theirs, frozenset(losers))


def strength(changes: PlainChanges, column: str, change: int, *, takes: bool) -> Strength:
    """Return a step's strength by a column's value, in the row that it writes or takes away."""
    value = changes.column(column, before=takes)[change]
    return value is not None, 0 if value is None else value, takes


def _not_beaten(steps: Sequence[TheirStep], place: str | None) -> Sequence[TheirStep]:
    """Return the steps after the last one at a place; all if none is there."""
    if place is not None:
        for at in range(len(steps) - 1, -1, -1):
            if steps[at].place == place:
                return steps[at + 1 :]
    return steps


def _their_strength(step: TheirStep, column: str) -> Strength:
    """Return what a step of the sink's node counts by a column."""
    return strength(step.changes, column, step.change, takes=step.takes)


def _their_change(step: TheirStep) -> RowChange:
    """Return a change of the sink's node."""
    return _change(step.changes, step.change, step.place)


def _change(changes: PlainChanges, change: int, place: str) -> RowChange:
    """Return a change as a conflict's record holds it."""
    before, after = (changes.row(change, before=side) for side in (True, False))
    return RowChange(
        None if before is None else json_values(before),
        None if after is None else json_values(after),
        place,
    )


def _columns(rows: pa.RecordBatch, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns as Python objects."""
    return {name: rows.column(name).to_pylist() for name in names}


def _chosen(rows: Sequence[Row], kept: Sequence[bool]) -> list[Row]:
    """Return the rows that are kept."""
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]
