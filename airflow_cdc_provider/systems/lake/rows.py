"""Rows and changes as plain columns: the table's own, then what is told of the change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import numbers_of, texts_of
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.row_stamps import stamped_alike
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.positions import Fact, LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import Operation, RowStamp
from airflow_cdc_provider.systems.file_log.events import Places, TableEvents
from airflow_cdc_provider.systems.file_log.images import image_of, last_rows
from airflow_cdc_provider.systems.file_log.known_types import known_type
from airflow_cdc_provider.systems.file_log.row_form import TruncatedBy
from airflow_cdc_provider.systems.file_log.splits import rows_of_nulls
from airflow_cdc_provider.systems.file_log.transactions import Transactions
from airflow_cdc_provider.systems.file_log.tree import Constant, Members, Value, arrow_array
from airflow_cdc_provider.systems.file_log.values import native_values
from airflow_cdc_provider.systems.lake.columns import (
    CHANGE_COLUMNS,
    COMMITTED_AT,
    OP,
    ORDER,
    POSITION,
    SNAPSHOT_ORDER,
)

_LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}
_SMALL = (pa.int8(), pa.int16())


class LakeRows:
    """Makes what is written of one table's rows and changes in a lake."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan, self._target = plan, plan.target
        self._names = [column.name for column in self._target.copied_columns]

    def read(self, rows: pa.RecordBatch, position: LogPosition, now_us: int) -> Members:
        """Return what is written of a snapshot's rows: they were read up to a position."""
        return self._read(rows, Constant(SNAPSHOT_ORDER, pa.int64()), position, now_us, "r")

    def _read(
        self, rows: pa.RecordBatch, order: Value, position: LogPosition, now_us: int, op: str
    ) -> Members:
        """Return what is written of rows that were read at a position."""
        return self._members(
            rows,
            {
                OP: Constant(op, pa.string()),
                ORDER: order,
                POSITION: Constant(position.short, pa.string()),
                COMMITTED_AT: Constant(now_us, CHANGE_COLUMNS[COMMITTED_AT]),
            },
        )

    def joined(
        self, rows: pa.RecordBatch, position: LogPosition, now_us: int, *, first: int
    ) -> Members:
        """Return what is written of rows that join at a position; `first` numbers the first row."""
        numbers = numbers_of(np.arange(first, first + rows.num_rows, dtype=np.int64))
        return self._read(rows, numbers, position, now_us, "r")

    def stored(self, rows: SplitRows) -> pa.Table:
        """Return a split's rows as the table's own columns."""
        columns = [
            [self._column(batch, name) for name in self._names]
            for batch in (*rows.batches(), rows_of_nulls(rows.schema, 0))
        ]
        batches = [pa.RecordBatch.from_arrays(each, names=self._names) for each in columns]
        return pa.Table.from_batches(batches)

    def stored_keys(self, keys: pa.RecordBatch) -> pa.Table:
        """Return keys as the table's own columns."""
        names = keys.schema.names
        return pa.table([self._column(keys, name) for name in names], names=names)

    def again(
        self, rows: pa.Table, deleted: int, position: LogPosition, now_us: int, *, first: int
    ) -> Members:
        """Return what is written of stored rows that a read found wrong; some are deleted first.

        The first `deleted` ones are deleted, or marked where such rows are kept, the others are
        there; `first` numbers the first row.
        """
        is_soft = bool(self._plan.shape.deleted_flag)
        marks = self.marks(deleted_at(position), deleted) if is_soft else {}
        columns = [
            _begun_by(marks.get(name), rows.column(name).combine_chunks())
            for name in rows.column_names
        ]
        letters = {"u" if is_soft else "d": deleted, "r": rows.num_rows - deleted}
        told = pa.table(columns, names=rows.column_names)
        return self._numbered(told, letters, position, now_us, first=first)

    def as_a_whole(
        self, rows: pa.Table, position: LogPosition, now_us: int, *, first: int
    ) -> Members:
        """Return what is written of stored rows that are all that there is, behind a void."""
        void = pa.table([pa.nulls(1, kind) for kind in rows.schema.types], schema=rows.schema)
        letters = {"t": 1, "r": rows.num_rows}
        whole = pa.concat_tables([void, rows]).combine_chunks()
        return self._numbered(whole, letters, position, now_us, first=first)

    def _numbered(
        self,
        rows: pa.Table,
        letters: Mapping[str, int],
        position: LogPosition,
        now_us: int,
        *,
        first: int,
    ) -> Members:
        """Return what is written of stored rows; `letters` say of how many rows in turn they are.

        `first` numbers the first row.
        """
        told = {
            OP: pa.concat_arrays(
                [Constant(letter, pa.string()).array(count) for letter, count in letters.items()]
            ),
            ORDER: numbers_of(np.arange(first, first + rows.num_rows, dtype=np.int64)),
            POSITION: Constant(position.short, pa.string()),
            COMMITTED_AT: Constant(now_us, CHANGE_COLUMNS[COMMITTED_AT]),
        }
        own = [(name, rows.column(name).combine_chunks()) for name in rows.column_names]
        return Members((*own, *self._told(told, rows.num_rows)))

    def voided(
        self, columns: pa.Schema, position: LogPosition, now_us: int, *, number: int
    ) -> Members:
        """Return what says that the rows of before are void: a row of NULLs, as a TRUNCATE's."""
        order = Constant(number, pa.int64())
        row = self._read(rows_of_nulls(columns, 1), order, position, now_us, "t")
        return self._marking(row, deleted_at(position))

    def changed(
        self,
        events: TableEvents,
        places: Places,
        transactions: Transactions,
        now_us: int,  # noqa: ARG002 - of the port
    ) -> Members:
        """Return what is written of a table's changes: a deleted row as it was."""
        rows = last_rows(
            image_of(events.changes, events, before=True),
            image_of(events.changes, events, before=False),
            events.op == Op.DELETE,
            self._names,
        )
        letters = texts_of([_LETTERS[op] for op in (Op.INSERT, Op.UPDATE, Op.DELETE)])
        stamps = transactions.stamps(events.transaction)
        return self._members(
            rows,
            {
                OP: letters.take(numbers_of(events.op.astype(np.int64) - 1)),
                ORDER: numbers_of(places.in_log),
                POSITION: stamps.column("position"),
                COMMITTED_AT: stamps.column("committed_at"),
            },
        )

    def truncated(
        self,
        columns: pa.Schema,
        by: TruncatedBy,
        facts: Mapping[str, Fact],  # noqa: ARG002 - of the port
        now_us: int,  # noqa: ARG002 - of the port
    ) -> Members:
        """Return what is written of a TRUNCATE of the table: a row of NULLs.

        Of a table that shares the lake's with others it has the shard's value, and is of its rows.
        """
        stamps = by.transactions.stamps(np.zeros(1, np.int64))
        (told,) = stamps.select(["position", "server"]).to_pylist()
        committed_us = int(by.transactions.committed_us[0])
        stamp = RowStamp(Operation.TRUNCATE, told["position"], told["server"], committed_us)
        row = self._members(
            rows_of_nulls(columns, 1),
            {
                OP: Constant("t", pa.string()),
                ORDER: Constant(by.in_log, pa.int64()),
                POSITION: stamps.column("position"),
                COMMITTED_AT: stamps.column("committed_at"),
            },
        )
        return self._marking(row, stamp)

    def _marking(self, row: Members, stamp: RowStamp) -> Members:
        """Return a row that empties the table with whose rows it is of, and how it marks them."""
        known = self._emptying(stamp)
        return Members(tuple((name, known.get(name, value)) for name, value in row.values))

    def _emptying(self, stamp: RowStamp) -> dict[str, Value]:
        """Return what a row that empties the table has in columns of its own."""
        shard = self._plan.shard
        own: dict[str, Value] = {}
        if shard is not None:
            own[shard.name] = Constant(shard.constant, pa.string())
        return own | (self.marks(stamp, 1) if self._plan.shape.deleted_flag else {})

    def emptied(self, position: LogPosition, now_us: int, *, number: int) -> Members:
        """Return what says that the rows of before are void, of the columns that say something."""
        told = {
            OP: Constant("t", pa.string()),
            ORDER: Constant(number, pa.int64()),
            POSITION: Constant(position.short, pa.string()),
            COMMITTED_AT: Constant(now_us, CHANGE_COLUMNS[COMMITTED_AT]),
        }
        own = self._emptying(deleted_at(position))
        return Members((*own.items(), *self._told(told, 1)))

    def marks(self, stamp: RowStamp, count: int) -> dict[str, pa.Array]:
        """Return the columns that mark rows as deleted, by their names."""
        flags = pa.repeat(pa.scalar(1, pa.int8()), count)
        stamps = stamped_alike(self._plan, stamp, count)
        found = {self._plan.shape.deleted_flag: flags}
        found |= dict(zip(stamps.schema.names, stamps.columns, strict=True))
        return {name: self._stored(values, name) for name, values in found.items()}

    def _members(self, rows: pa.RecordBatch, change: Mapping[str, Value]) -> Members:
        """Return rows' own columns, then those of the change, in types that lakes have."""
        own = [(name, self._column(rows, name)) for name in self._names]
        return Members((*own, *self._told(change, rows.num_rows)))

    @staticmethod
    def _told(change: Mapping[str, Value], count: int) -> list[tuple[str, pa.Array]]:
        """Return the columns of the change in their types."""
        return [(name, _as(value, name, count)) for name, value in change.items()]

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """Return one of the table's own columns."""
        return self._stored(rows.column(name), name)

    def _stored(self, values: pa.Array, name: str) -> pa.Array:
        """Return a column's values as the table has them."""
        value = native_values(values, self._target.column(name).type)
        array = arrow_array(value, len(values))
        is_moment = name == self._plan.shape.metadata.committed_at
        kind = CHANGE_COLUMNS[COMMITTED_AT] if is_moment else lake_type(array.type)
        return array if array.type == kind else array.cast(kind)


def lake_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which lakes have the same values: whole numbers of 32 or 64 bits."""
    known = known_type(kind)
    return pa.int32() if known in _SMALL else known


def deleted_at(position: LogPosition) -> RowStamp:
    """Return the stamp of rows that a read at a position did not find."""
    read = RowStamp.of_read(position, position)
    return replace(read, operation=Operation.DELETE)


def void_before_all(
    plan: TablePlan, columns: pa.Schema, position: LogPosition | None, now_us: int
) -> pa.Table:
    """Return a row that empties a table before all changes, as of the place of its reading."""
    known = RowStamp(Operation.DELETE, "", "") if position is None else deleted_at(position)
    values = {
        **LakeRows(plan).marks(known, 1),
        OP: Constant("t", pa.string()).array(1),
        ORDER: Constant(SNAPSHOT_ORDER - 1, pa.int64()).array(1),
        POSITION: Constant(known.position, pa.string()).array(1),
        COMMITTED_AT: Constant(now_us, CHANGE_COLUMNS[COMMITTED_AT]).array(1),
    }
    arrays = [
        values[field.name].cast(field.type) if field.name in values else pa.nulls(1, field.type)
        for field in columns
    ]
    return pa.table(arrays, schema=columns)


def _begun_by(first: pa.Array | None, values: pa.Array) -> pa.Array:
    """Return a column whose first values are others."""
    if first is None:
        return values
    return pa.concat_arrays([first.cast(values.type), values.slice(len(first))])


def _as(value: Value, name: str, count: int) -> pa.Array:
    """Return one of the change's columns in its type."""
    array = arrow_array(value, count)
    return array if array.type == CHANGE_COLUMNS[name] else array.cast(CHANGE_COLUMNS[name])
