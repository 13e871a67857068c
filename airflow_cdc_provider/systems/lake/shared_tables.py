"""Several tables of the source in one table of a lake, as its shards.

It has the columns of all of them by name; one that a shard lacks is NULL in the shard's rows. Each
shard writes the files that it would write alone, so a column has to have types of which the
format can make one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.core.table_schema import Column, ColumnType
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.files import Format, OpenFile, SealedFile
from airflow_cdc_provider.systems.file_log.layout import joined_file, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.turns import turn_at
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.rows import LakeRows


def by_target(plans: Sequence[TablePlan]) -> dict[TableId, TablePlan]:
    """Return the plans by the lake's tables; that of a shared one has the columns of all shards."""
    found = {plan.sink_table: plan for plan in plans}
    return found | {shards[0].sink_table: _united(shards) for shards in shards_of(plans)}


def _united(shards: Sequence[TablePlan]) -> TablePlan:
    """Return the first of a table's shards, its target with the columns of the others, too."""
    columns: dict[str, Column] = {}
    for plan in shards:
        for column in plan.target.copied_columns:
            columns.setdefault(column.name, column)
    first = shards[0]
    return replace(first, target=replace(first.target, columns=tuple(columns.values())))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two shards whose rows one table cannot have both."""

    table: TableId
    """The later one."""
    other: TableId
    target: TableId
    what: str

    def __str__(self) -> str:
        if self.other == self.table:  # its rows of before are there
            return f"{self.table} does not fit the table that it shares any more: {self.what}"
        return f"{self.other} and {self.table} cannot share a table: {self.what}"


def disagreements(
    shards: Sequence[TablePlan], fits: Callable[[Column, Column], bool]
) -> Iterator[Disagreement]:
    """Yield why tables that go to one of a lake cannot share it, by pairs.

    `fits` tells whether one column can hold the values of two.
    """
    known: dict[str, tuple[Column, TablePlan]] = {}
    for plan in shards:
        first = shards[0]
        if plan.target.primary_key != first.target.primary_key:
            keys = (", ".join(each.target.primary_key) for each in (first, plan))
            yield _of_two(first, plan, "the keys are {} and {}".format(*keys))
        for column in plan.target.copied_columns:
            there, owner = known.setdefault(column.name.lower(), (column, plan))
            if why := _why_unfit(there, column, fits):
                yield _of_two(owner, plan, why)


def _of_two(one: TablePlan, other: TablePlan, what: str) -> Disagreement:
    """Return what keeps two plans from one table."""
    return Disagreement(other.schema.table, one.schema.table, other.sink_table, what)


def _why_unfit(there: Column, column: Column, fits: Callable[[Column, Column], bool]) -> str:
    """Return why one column of a lake cannot be two of shards; empty if it can."""
    if there.name != column.name:
        return f"columns {there.name} and {column.name} differ by case alone"
    if not fits(there, column):
        here, other = (_shown(each.type) for each in (there, column))
        return f"column {there.name} is {here} and {other}"
    return ""


def _shown(kind: ColumnType) -> str:
    """Return a type as its system calls it, with what tells it from others of the name."""
    members = ", ".join(map(repr, kind.members))
    size = (kind.precision, kind.scale) if kind.precision is not None else (kind.length,)
    numbers = ",".join(str(each) for each in size if each is not None)
    inside = members or numbers or (str(kind.fraction) if kind.fraction else "")
    sign = " unsigned" if kind.unsigned else ""
    return f"{kind.name}({inside}){sign}" if inside else f"{kind.name}{sign}"


def require_agreed(found: Sequence[Disagreement], asked: Sequence[TablePlan]) -> None:
    """Refuse shards that one table cannot have; the error is about those `asked`."""
    if not found:
        return
    mine = {plan.schema.table for plan in asked}
    tables = {each.table for each in found} & mine or {each.other for each in found} & mine
    raise RefusedError(
        "; ".join(map(str, found)),
        where=f"table {found[0].target}",
        risk="their rows could not be in one table of the lake; nothing was committed",
        remedy="make their definitions alike, leave the column out by columns.exclude or rename it "
        "in the table's section of tables, or route one of them elsewhere. If each fits the others "
        "as it is now, `reset` all that share the table together",
    ).about(*sorted(tables))


class _MovedError(Exception):
    """Somebody else has written to the log: what was numbered behind it is numbered anew."""


class EmptiedShards:
    """Writes to one pipeline's log that all rows of a shard so far are void."""

    def __init__(self, store: ObjectStore, owner: Owner) -> None:
        self._store, self._owner = store, owner
        self._manifest = Manifest(store, str(owner.pipeline))

    def empty(self, plan: TablePlan) -> None:
        """Take a shard's rows away from the table that it shares; those of others stay.

        Before a hand-off there is nothing to do: a new plan's tables begin anew.
        """
        with turn_at(self._store):
            while True:
                state = self._manifest.read()
                self._manifest.require_owner(state, self._owner.generation)
                if state.stream is None:
                    return
                file = self._write(plan, state, state.stream.start)
                try:
                    self._commit(plan, state, file)
                except _MovedError:
                    self._store.delete(file.path)
                else:
                    return

    def _write(self, plan: TablePlan, state: LogState, position: LogPosition) -> SealedFile:
        """Write the row that says so."""
        name = joined_file(0, self._owner.generation, Format.PARQUET.value)
        path = f"{table_folder(plan.sink_table)}/{name}"
        file, sealed = OpenFile(self._store, path, Format.PARQUET), None
        try:
            now_us = time.time_ns() // 1000
            row = LakeRows(plan).emptied(position, now_us, number=state.counts.events)
            file.write(row, 1)
            sealed = file.seal()
        finally:
            if sealed is None:
                file.discard()
        return sealed

    def _commit(self, plan: TablePlan, written_for: LogState, file: SealedFile) -> None:
        """Commit the file, unless the log has gone on since."""
        basis, number = written_for.basis, written_for.counts.events

        def judge(state: LogState) -> Record:
            self._manifest.require_owner(state, self._owner.generation)
            if state.basis != basis:
                raise _MovedError
            folder = table_folder(plan.sink_table)
            return {"do": "void", "folder": folder, "file": asdict(file), "events": number + 1}

        self._manifest.commit(self._owner.generation, judge)
