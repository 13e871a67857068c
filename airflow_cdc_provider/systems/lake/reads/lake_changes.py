"""The changes of one table of a lake, as ranges and as a stream.

A stream's offset is an `_order`: behind it nothing is read yet. It says with which row the table
began, too, for a commit that exchanges the table takes rows away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from airflow_cdc_provider.core.errors import RefusedError, SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.table_columns import columns_of_changes
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS
from airflow_cdc_provider.systems.lake.reads.change_rows import (
    LakeFilePart,
    LakeTask,
    cut_by_groups,
)
from airflow_cdc_provider.systems.lake.reads.first_rows import first_is_void
from airflow_cdc_provider.systems.lake.reads.lake_table import (
    BEFORE_ALL,
    LakeTable,
    load_table,
    log_of,
)
from airflow_cdc_provider.systems.lake.reads.ranges import OrderRange, order_range, stream_start

Offset = dict[str, Any]
"""An offset as Spark stores it: plain values by name."""


@dataclass(frozen=True, slots=True)
class LakeOffset:
    """How far a stream has read one table."""

    log: str
    order: int
    """The greatest `_order` that was read; `BEFORE_ALL` for nothing."""
    first: int | None
    """The smallest `_order` that the table had then; None if it had no row."""

    @classmethod
    def of_json(cls, form: Mapping[str, Any]) -> Self:
        """Read an offset from the form that Spark stored."""
        return cls(form["log"], form["order"], form["first"])

    def to_json(self) -> Offset:
        """Return the offset as plain values."""
        return {"log": self.log, "order": self.order, "first": self.first}


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """A range of a table's rows."""

    table: LakeTable
    range: OrderRange

    @property
    def is_empty(self) -> bool:
        """Tell whether the range has no row for sure."""
        return self.range.upto <= self.range.behind

    def columns(self) -> pa.Schema:
        """Return all columns of the table, and those of changes."""
        return _columns(self.table, "")

    def parts(self, columns: pa.Schema) -> Sequence[LakeTask]:
        """Return the files together, or cut to about one size."""
        table, options, store = self.table, self.table.options, self.table.options.files
        if not options.columns:
            _require_all(table, columns)
        tasks: list[tuple[LakeFilePart, ...]] = []
        small: list[LakeFilePart] = []
        size = 0
        for each in sorted(table.files, key=lambda file: (file.low is not None, file.low)):
            if not each.may_have(self.range.behind, self.range.upto):
                continue
            whole = LakeFilePart(each.name, constants=each.constants)
            if each.bytes > options.part_bytes:
                pieces = cut_by_groups(store, whole, each.bytes, options.part_bytes)
                tasks += [(piece,) for piece in pieces]
                continue
            if small and size + each.bytes > options.part_bytes:
                tasks.append(tuple(small))
                small, size = [], 0
            small.append(whole)
            size += each.bytes
        tasks += [tuple(small)] if small else []
        return [
            LakeTask(
                store, each, self.range.behind, self.range.upto, columns, options.with_truncates
            )
            for each in tasks
        ]


class LakeChanges:
    """Reads one table of a lake with `mode: append`."""

    look_every_s = 0.5

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._manifest = Manifest(options.files, "")
        self._table: LakeTable | None = None
        self._taken = 0
        """How many files of the log the table had taken over before it was loaded."""

    def columns(self) -> pa.Schema | None:
        """Return the columns that the options ask for."""
        return _columns(self._now(), self._options.columns)

    def asked(self) -> ChosenRows:
        """Return the rows that the options ask for; refuse those that are not there yet."""
        table = self._now()
        return ChosenRows(table, order_range(table, self._options.ends))

    def between(self, start: Offset, end: Offset) -> ChosenRows:
        """Return the rows between two offsets, of the table's files of now."""
        first, last = LakeOffset.of_json(start), LakeOffset.of_json(end)
        table = self._now(first, last, is_fresh=True)
        return ChosenRows(table, OrderRange(first.order, last.order))

    def read_on(self) -> None:
        """Do nothing: the table is looked at when it is asked for."""

    def initial(self) -> Offset:
        """Return the offset at which a new stream begins."""
        table = self._now()
        order = stream_start(table, self._options.ends)
        return LakeOffset(table.log, order, table.first).to_json()

    def end(self) -> Offset:
        """Return the offset behind all rows that the table has."""
        table = self._now()
        return LakeOffset(table.log, table.end, table.first).to_json()

    def behind(self, start: Offset, *, most_files: int | None, last: Offset | None) -> Offset:
        """Return the end of the micro-batch that begins at an offset: `start` if nothing is new."""
        begun = LakeOffset.of_json(start)
        table = self._now(begun)
        order = table.end if last is None else LakeOffset.of_json(last).order
        if most_files is not None:
            order = min(order, _order_of_files(table, begun.order, most_files))
        if order <= begun.order:
            return start
        return LakeOffset(table.log, order, table.first).to_json()

    def _now(self, *offsets: LakeOffset, is_fresh: bool = False) -> LakeTable:
        """Return the table as it is now, refuse offsets that are not of it.

        It is loaded again once it has taken files of the log over: that follows each commit of it.
        """
        state = self._manifest.read_any()
        for each in offsets:
            _require_same_log(self._options, state, each)
        taken = state.taken.get(table_folder(self._options.table), 0)
        table = self._table
        if table is None or table.log != log_of(state) or is_fresh or taken != self._taken:
            table = load_table(self._options, state)
            self._table, self._taken = table, taken
        for each in offsets:
            _require_same_rows(table, each)
        return table


def _columns(table: LakeTable, wanted: str) -> pa.Schema:
    """Return the table's own columns, all or those that are wanted, and those of changes."""
    own = pa.schema([each for each in table.columns if each.name not in CHANGE_COLUMNS])
    return columns_of_changes(own, wanted, table=str(table.options.table), where=table.where)


def _require_all(table: LakeTable, columns: pa.Schema) -> None:
    """Refuse to read some of the columns if nobody has said which ones to leave out."""
    for name in table.columns.names:
        if name not in CHANGE_COLUMNS and name not in columns.names:
            raise RefusedError(
                f"column {name} is in {table.options.table}, and not among those that are read",
                where=table.where,
                risk="its values would be missing; nothing was read",
                remedy="start the query again, which reads it from there on, if what it writes to "
                "can have it; or name by the option columns those to read",
            )


def _order_of_files(table: LakeTable, behind: int, most_files: int) -> int:
    """Return the order up to which at most so many files have rows behind another one.

    All rows of one order are read at once, so those of a snapshot are.
    """
    highs = sorted(
        table.end if each.high is None else each.high
        for each in table.files
        if each.may_have(behind, table.end)
    )
    return highs[min(most_files, len(highs)) - 1] if highs else table.end


def _require_same_log(options: ReadOptions, state: LogState, offset: LakeOffset) -> None:
    """Refuse an offset of a log that is not there any more."""
    if offset.log != log_of(state):
        raise SnapshotRequiredError(
            f"the stream read a log of {options.table} that is not there any more: it was begun "
            "anew, or replaced",
            where=str(options.place),
            risk="what it has read so far is of the former log; nothing of the new one was read",
            remedy="begin a new query with a new checkpoint: the new log's snapshot comes first, "
            "so empty what the stream writes to",
        )


def _is_exchanged(table: LakeTable, first: int | None) -> bool:
    """Tell whether a table that began with another row has been exchanged as a whole.

    Others may have deleted what it began with: then no row says that all before it is void.
    """
    now = table.first
    if first is None or now is None or first == now:
        return False
    return now < first or first_is_void(table.options.files, table.files, now)


def _require_same_rows(table: LakeTable, offset: LakeOffset) -> None:
    """Refuse an offset of rows that the table does not have any more."""
    if _is_exchanged(table, offset.first):
        raise SnapshotRequiredError(
            f"{table.options.table} begins with version {table.first}, and began with "
            f"{offset.first} when the stream read it: it was exchanged as a whole",
            where=table.where,
            risk="changes in between may be gone; nothing was read",
            remedy="begin a new query with a new checkpoint and truncates=rows: it reads all that "
            "the table has, so empty what the stream writes to",
        )
    if offset.order > max(table.end, BEFORE_ALL):
        raise SnapshotRequiredError(
            f"the stream has read {table.options.table} up to version {offset.order}, and it ends "
            f"with {table.end}: it was set back",
            where=table.where,
            risk="an older copy may be there; nothing was read",
            remedy="restore the newest one, or begin a new query with a new checkpoint",
        )
