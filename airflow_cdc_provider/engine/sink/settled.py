"""The rows of one table that both nodes changed, compared as columns, and whose change stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.core.conflicts import Conflict, RowChange, Values
from airflow_cdc_provider.core.errors import only_of
from airflow_cdc_provider.engine.sink.beaten import BeatenChanges
from airflow_cdc_provider.engine.sink.conflict_values import json_values
from airflow_cdc_provider.engine.sink.guard import Clash, without_rows
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows
from airflow_cdc_provider.engine.sink.selection import FewTableWork, TableWork
from airflow_cdc_provider.engine.sink.settling import Part, compare

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.topology import Topology

AnyTableWork = TableWork | FewTableWork


class SettledTable(Protocol):
    """Rows of one table that both nodes changed, and whose change of each stays."""

    @property
    def work(self) -> AnyTableWork:
        """Return the table's work that they are of."""

    @property
    def lost(self) -> int:
        """Return of how many rows the source's change is left out."""

    def without_lost(self) -> AnyTableWork:
        """Return the table's work without the rows of which the source's change is left out."""

    def conflicts(self) -> list[Conflict]:
        """Return a conflict for each row."""


@dataclass(frozen=True, slots=True)
class SettledColumns:
    """Rows that both nodes changed, as columns."""

    clash: Clash
    ours: Sequence[Part]
    """What the batch changes of the table."""
    edge: Topology
    source_stays: BoolArray
    """One for each row of the clash."""

    @property
    def work(self) -> TableWork:
        """Return the table's work that they are of."""
        return self.clash.work

    @property
    def lost(self) -> int:
        """Return of how many rows the source's change is left out."""
        return int(np.count_nonzero(~self.source_stays))

    def without_lost(self) -> TableWork:
        """Return the table's work without the rows of which the source's change is left out."""
        return without_rows(self.work, self.clash.rows.only(~self.source_stays))

    def conflicts(self) -> list[Conflict]:
        """Return a conflict for each row."""
        edge, clash = self.edge, self.clash
        theirs = [(part.changes, part.points) for part in clash.theirs]
        by_source, by_sink = _last(self.ours, clash.rows), _last(theirs, clash.rows)
        return [
            Conflict(
                clash.work.plan.schema.table,
                key,
                edge.src_node if self.source_stays[at] else edge.dst_node,
                by_source[at],
                by_sink[at],
            )
            for at, key in enumerate(_keys(clash))
        ]


def settled_columns(
    clash: Clash, ours: Sequence[Part], edge: Topology, beaten: BeatenChanges
) -> SettledColumns:
    """Settle the rows of a clash by the rule of its table."""
    table = clash.work.plan.schema.table
    rule = edge.rule_of(table)
    source_stays = np.full(len(clash.rows), rule.winner == edge.src_node)
    if rule.column:
        places = _beaten_in(clash, table, beaten)
        theirs = [(each.changes, each.points) for each in clash.theirs]
        with only_of(table):
            changes = [each for each, _ in ours]
            greater = compare(rule.column, clash.rows, changes, theirs, places)
        source_stays[greater != 0] = greater[greater != 0] > 0
    return SettledColumns(clash, ours, edge, source_stays)


def _beaten_in(clash: Clash, table: TableId, beaten: BeatenChanges) -> Mapping[int, str]:
    """Return the places of the last changes that the source has beaten, by row numbers."""
    identity = clash.rows.identity
    places = beaten.places(
        table, identity, lambda: {point.where for part in clash.theirs for point in part.points}
    )
    names = identity.names(_keys(clash))
    return {at: places[name] for at, name in enumerate(names) if name in places}


def _keys(clash: Clash) -> list[Values]:
    """Return the keys of a clash's rows as JSON holds them."""
    return [json_values(key) for key in clash.rows.keys.to_pylist()]


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
                None if op == Op.INSERT else _row(changes.before, change),
                None if op == Op.DELETE else _row(changes.after, change),
                points[changes.transaction[change].as_py()].where,
            )
    return found


def _row(rows: pa.RecordBatch, row: int) -> Values:
    """Return a row's values by column."""
    return json_values(rows.slice(row, 1).to_pylist()[0])
