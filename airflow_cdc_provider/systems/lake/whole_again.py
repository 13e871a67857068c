"""A table without a key is read again as a whole: all of its rows, if it has others.

What of it is wrong could not be named: its rows have no keys. So a void is written, and all rows
behind it. Whether the table has the rows that were read is told by the sums of the rows' hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.row_hashes import added_totals
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.rows_again import JoinPlace, Lacking
from airflow_cdc_provider.systems.lake.columns import OP, ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.gathered import batches_of
from airflow_cdc_provider.systems.lake.held import HeldTable, HeldTables
from airflow_cdc_provider.systems.lake.multisets import NONE_VOID, Multisets, last_void
from airflow_cdc_provider.systems.lake.rows import LakeRows

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
"""Reads some columns of the same changes each time."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """What some first files of a table's changes add up to."""

    plan_id: str
    files: int
    """How many of the plan's files of changes it is of."""
    columns: pa.Schema
    """That were read."""
    total: int = 0
    void: int = NONE_VOID
    """Changes up to this order are void."""
    order: int = SNAPSHOT_ORDER
    """The greatest order of a change."""

    def then(self, multisets: Multisets, read: Read) -> _Sum:
        """Return the sum with the changes that follow."""
        void, order = self.void, self.order
        for each in read((OP, ORDER)):
            void = last_void([each], void)
            greatest = pc.max(each.column(ORDER)).as_py()
            order = order if greatest is None else max(order, greatest)
        before = self.total if void == self.void else 0
        total = added_totals(before, multisets.total(read(multisets.read), void))
        return replace(self, total=total, void=void, order=order)


class LakeWholeLook:
    """A look at what a table without a key holds, which is about to join as a whole."""

    def __init__(self, tables: HeldTables, plan: TablePlan) -> None:
        self._tables, self._plan = tables, plan
        self._form = LakeRows(plan)
        names = [column.name for column in plan.target.copied_columns]
        self._multisets = Multisets(plan.target, names)
        self._ahead: _Sum | None = None

    def ahead(self, joined: JoinedRows) -> None:
        """Add up what the table holds."""
        del joined  # all of the table is looked at
        self._ahead = self._tables.looked_at(self._plan.sink_table, self._sum_of)

    def changes(self, joined: JoinedRows, place: JoinPlace) -> Lacking:
        """Return what is written so that the joined rows are the only ones: nothing, or all.

        It is numbered behind all that the table has, whoever wrote it.
        """
        rows = self._form.stored(joined.rows)
        first = place.state.counts.events
        found = self._sum_at(place)
        if found is not None:
            first = max(first, found.order + 1)
            hashes = map(self._multisets.hashes, rows.to_batches())
            if reduce(added_totals, (each.total for each in hashes), 0) == found.total:
                members = self._form.again(
                    rows.slice(0, 0), 0, place.position, place.now_us, first=first
                )
                return Lacking(members, 0, first)
        members = self._form.as_a_whole(rows, place.position, place.now_us, first=first)
        count = rows.num_rows + 1
        return Lacking(members, count, first + count)

    def _sum_at(self, place: JoinPlace) -> _Sum | None:
        """Add up what the table holds at a place; None if it lacks columns that rows have."""
        held = self._tables.at(self._plan.sink_table, place.state)
        columns = None if held is None else self._columns(held)
        if held is None or columns is None:
            return None
        folder, ahead = table_folder(self._plan.sink_table), self._ahead
        is_usable = ahead is not None and (ahead.plan_id, ahead.columns) == (held.plan_id, columns)
        if ahead is None or not is_usable or ahead.files < place.state.taken.get(folder, 0):
            return self._sum_of(held)
        since = place.state.changes_from(folder, ahead.files)

        def read(names: Sequence[str]) -> Iterable[pa.RecordBatch]:
            chosen = pa.schema([columns.field(name) for name in names])
            return chain.from_iterable(batches_of(held.store, each, chosen) for each in since)

        return ahead.then(self._multisets, read)

    def _sum_of(self, held: HeldTable | None) -> _Sum | None:
        """Add up all that the table holds; None if there is none, or it lacks columns."""
        columns = None if held is None else self._columns(held)
        if held is None or columns is None:
            return None
        none = _Sum(held.plan_id, held.settled, columns)
        return none.then(self._multisets, held.batches)

    def _columns(self, held: HeldTable) -> pa.Schema | None:
        """Return the columns that are read of a table; None if it lacks some that rows have."""
        names = self._multisets.read
        if {*names} - {*held.columns.names}:
            return None
        return pa.schema([held.columns.field(name) for name in names])
