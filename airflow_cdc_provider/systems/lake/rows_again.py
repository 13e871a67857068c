"""Rows that are read again in a lake: what a table lacks of them is written as changes.

A table's rows stay as they are; a change that comes later takes their place. So a split that is
read again is compared with the current rows that the table has in it, as the query of `show`
returns them. A row that is missing, or is another one, is written as read (`r`), and one that is
not at the source as deleted (`d`), as it was. What is equal costs nothing.

**Which rows those are.** Of a range of keys whose order code knows, all in it. Else those with the
keys that were read, or listed, or that the log has changed meanwhile.

**When.** Most of a table is read before the stream has to wait. From then on only what the log got
since is read. Keys that the log has changed since then are there, whole, as the source has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.engine.sink.held_keys import MOST_HELD_KEYS, too_many_keys
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.rows_again import JoinPlace, Lacking, SplitLook
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake.chosen_rows import RowChoice, bounds_of, of_hashes
from airflow_cdc_provider.systems.lake.columns import DOUBLED, OP, ORDER
from airflow_cdc_provider.systems.lake.gathered import batches_of, in_columns
from airflow_cdc_provider.systems.lake.held import HeldTable, HeldTables
from airflow_cdc_provider.systems.lake.last_changes import Choose
from airflow_cdc_provider.systems.lake.marks import flag_in, living_rows
from airflow_cdc_provider.systems.lake.rows import LakeRows
from airflow_cdc_provider.systems.lake.stored_values import model_values
from airflow_cdc_provider.systems.lake.tables.table import Bounds
from airflow_cdc_provider.systems.lake.whole_again import LakeWholeLook

_HELD_BYTES = 256 * 1024 * 1024
"""Of rows that are read ahead; where a split has more, they are read while the stream waits."""
_WIDE = 64


@dataclass(frozen=True, slots=True)
class LakeRowsAgain:
    """The tables of a lake, in which rows take the place of others."""

    tables: HeldTables
    plans: Mapping[TableId, TablePlan]
    """By the tables of the source."""

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys of a split's current rows; `SplitTooBigError` if they are too many."""
        plan = self.plans[split.table]
        key = plan.target.primary_key
        choice = _choice(plan, split)
        choice.require()

        def found(held: HeldTable | None) -> pa.Table:
            batches: list[pa.RecordBatch] = []
            count = 0
            for batch in () if held is None else choice.rows(held, key):
                columns = [
                    model_values(batch.column(name), plan.target.column(name).type) for name in key
                ]
                batches.append(pa.RecordBatch.from_arrays(columns, names=list(key)))
                if (count := count + batch.num_rows) > MOST_HELD_KEYS:
                    raise too_many_keys(split, plan.sink_table, str(self.tables.store))
            return pa.Table.from_batches(batches) if batches else _no_keys(key)

        return self.tables.looked_at(plan.sink_table, found)

    def look(self, split: SnapshotSplit) -> SplitLook:
        """Begin to look at what a table holds of a split."""
        plan = self.plans[split.table]
        if not plan.target.has_key:
            return LakeWholeLook(self.tables, plan)
        return LakeSplitLook(self.tables, plan, split)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The current rows of a split, as some first files of changes left them."""

    plan_id: str
    files: int
    """How many of the plan's files of changes they are from."""
    rows: list[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The rows that a split is to have, and which of the table's rows are compared with them."""

    rows: pa.Table
    """In the columns of the table's own rows."""
    keys: pa.Table
    """The keys whose rows go if they are not wanted; of a whole range all others go, too."""
    choose: Choose
    bounds: Bounds | None


class LakeSplitLook:
    """A look at what a table holds of one split, which is about to join."""

    def __init__(self, tables: HeldTables, plan: TablePlan, split: SnapshotSplit) -> None:
        self._tables, self._plan = tables, plan
        self._form = LakeRows(plan)
        self._key = list(plan.target.primary_key)
        self._folder = table_folder(plan.sink_table)
        self._range: RowChoice | None = None
        if split.is_whole_range:
            self._range = _choice(plan, split)
            self._range.require()
        self._ahead: _Ahead | None = None

    def ahead(self, joined: JoinedRows) -> None:
        """Hold the current rows of the split, unless they are too many."""
        self._ahead = self._tables.looked_at(
            self._plan.sink_table, partial(self._read_ahead, joined)
        )

    def _read_ahead(self, joined: JoinedRows, held: HeldTable | None) -> _Ahead | None:
        """Read the current rows of a split; None if there is no table, or they are too many."""
        if held is None:
            return None
        wanted = self._wanted(joined, held.columns)
        rows, size = [], 0
        changes = held.batches(_names(held, wanted), wanted.bounds)
        flag = flag_in(held.columns, self._plan.shape)
        for batch in living_rows(changes, self._key, wanted.choose, flag):
            rows.append(batch)
            if (size := size + batch.nbytes) > _HELD_BYTES:
                return None
        return _Ahead(held.plan_id, held.settled, rows)

    def changes(self, joined: JoinedRows, place: JoinPlace) -> Lacking:
        """Return what is written so that the joined rows are the split's only ones.

        It is numbered behind all that the table has of these keys, whoever wrote it.
        """
        held = self._tables.at(self._plan.sink_table, place.state)
        wanted = self._wanted(joined, None if held is None else held.columns)
        stale, is_missing = [], np.ones(wanted.rows.num_rows, np.bool_)
        first = place.state.counts.events
        if held is not None:
            found = self._changes(held, wanted, place.state)
            flag = flag_in(held.columns, self._plan.shape)
            for batch in living_rows(found, self._key, wanted.choose, flag):
                gone, known = self._differing(batch, wanted)
                first = max(first, 1 + pc.max(batch.column(ORDER)).as_py())
                stale.append(gone)
                is_missing[known] = False
        missing = wanted.rows.filter(mask_of(is_missing))
        rows = pa.concat_tables([*stale, missing]).combine_chunks()
        deleted = rows.num_rows - missing.num_rows
        members = self._form.again(rows, deleted, place.position, place.now_us, first=first)
        return Lacking(members, rows.num_rows, first + rows.num_rows)

    def _changes(
        self, held: HeldTable, wanted: _Wanted, state: LogState
    ) -> Iterable[pa.RecordBatch]:
        """Return the changes of the split's keys: those since the rows were read ahead, or all."""
        ahead, names = self._ahead, _names(held, wanted)
        is_usable = ahead is not None and ahead.plan_id == state.plan_id
        if ahead is None or not is_usable or ahead.files < state.taken.get(self._folder, 0):
            return held.batches(names, wanted.bounds)
        columns = pa.schema([held.columns.field(name) for name in names])
        rows = [in_columns(pa.Table.from_batches([each]), columns) for each in ahead.rows]
        since = state.changes_from(self._folder, ahead.files)
        return chain(
            chain.from_iterable(each.to_batches() for each in rows),
            chain.from_iterable(batches_of(held.store, each, columns) for each in since),
        )

    def _wanted(self, joined: JoinedRows, there: pa.Schema | None) -> _Wanted:
        """Return what a split is to have, in the types that the table has for its columns."""
        rows = self._form.stored(joined.rows)
        columns = pa.schema(
            [
                field if there is None or field.name not in there.names else there.field(field.name)
                for field in rows.schema
            ]
        )
        rows = in_columns(rows, columns)
        of_key = pa.schema([columns.field(name) for name in self._key])
        keys = of_key.empty_table()
        if joined.touched is not None:
            keys = in_columns(self._form.stored_keys(joined.touched), of_key)
        if self._range is not None:
            return _Wanted(rows, keys, self._range.of_keys, self._range.bounds(columns))
        both = pa.concat_tables([rows.select(self._key), keys]).combine_chunks()
        sought = row_hashes([_one(both, name) for name in self._key]).one
        first = self._key[0]
        choose = partial(of_hashes, names=self._key, sought=sought)
        return _Wanted(rows, keys, choose, bounds_of(first, _one(both, first)))

    def _differing(self, held: pa.RecordBatch, wanted: _Wanted) -> tuple[pa.Table, IntArray]:
        """Return the held rows that are to go, and the places of wanted rows that are held as are.

        `held` are current rows, in the same types.
        """
        own = in_columns(pa.Table.from_batches([held]), wanted.rows.schema)
        sides = (own, wanted.rows, wanted.keys)
        codes = key_codes([[_one(each, name) for name in self._key] for each in sides])
        here, there, keys = codes.groups
        row_of = np.full(codes.count, -1, np.int64)
        row_of[there] = np.arange(len(there))
        place = row_of[here]
        is_stale = place < 0
        if self._range is None:
            is_listed = np.zeros(codes.count, np.bool_)
            is_listed[keys] = True
            is_stale &= is_listed[here]
        both = np.flatnonzero(place >= 0)
        same = _equal_rows(
            own.take(numbers_of(both)),
            wanted.rows.take(numbers_of(place[both])),
            self._plan,
        )
        same &= ~as_numpy(pc.equal(held.column(OP), DOUBLED))[both]
        return own.filter(mask_of(is_stale)), place[both][same]


def _choice(plan: TablePlan, split: SnapshotSplit) -> RowChoice:
    """Return which of a table's rows are a split's."""
    at_sink = plan.split_at_sink(split)
    flag = plan.shape.deleted_flag
    return RowChoice(
        plan.target, at_sink.key_columns, at_sink.keys, at_sink.chosen, flag, plan.shard
    )


def _names(held: HeldTable, wanted: _Wanted) -> list[str]:
    """Return the columns that are read of what a table holds."""
    own = [name for name in wanted.rows.column_names if name in held.columns.names]
    return [*own, OP, ORDER]


def _no_keys(key: Sequence[str]) -> pa.Table:
    """Return a table of no keys."""
    return pa.table({name: pa.nulls(0) for name in key})


def _one(rows: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece."""
    return rows.column(name).combine_chunks()


def _equal_rows(rows: pa.Table, others: pa.Table, plan: TablePlan) -> BoolArray:
    """Tell which rows are equal to those at the same places, value by value."""
    equal = np.ones(rows.num_rows, np.bool_)
    for name in rows.column_names:
        if name in plan.shape.marks:
            continue  # what it says of the row is not of the row
        column_type = plan.target.column(name).type
        one, other = (_plain(_one(each, name), column_type) for each in (rows, others))
        same = pc.fill_null(pc.equal(one, other), False)  # noqa: FBT003 - the library's
        none = pc.and_(one.is_null(), other.is_null())
        equal &= as_numpy(pc.or_(same, none))
    return equal


def _plain(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a column's values in a form in which two are equal if all of their bits are."""
    if pa.types.is_nested(values.type):
        return model_values(values, column_type)
    if pa.types.is_floating(values.type):
        return values.view(pa.int64() if values.type.bit_width == _WIDE else pa.int32())
    return values
