"""Rows that stay when the source deletes them: which are marked, and what marks the living ones.

A delete comes as a change that sets the flag. What empties a table, or has it begin again, is one
row of the log (`t`): it has the marks for all rows of before, and the commit writes them to those
that live. A row that is marked stays as it is.

Readers of living rows need not know that: rows of before a `t` are none for them, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.systems.lake.columns import (
    COMMITTED_AT,
    OP,
    ORDER,
    POSITION,
    ROW,
    SNAPSHOT_ORDER,
)
from airflow_cdc_provider.systems.lake.fitting import fitting
from airflow_cdc_provider.systems.lake.gathered import in_columns
from airflow_cdc_provider.systems.lake.last_changes import Choose, last_changes, places_among
from airflow_cdc_provider.systems.lake.table_columns import kept_columns

_BEFORE_ALL = np.iinfo(np.int64).min


def flag_in(columns: pa.Schema, shape: TableShape) -> str:
    """Return the column that marks rows, if a table has it by now; else an empty text."""
    return shape.deleted_flag if shape.deleted_flag in columns.names else ""


def living(rows: pa.RecordBatch | pa.Table, flag: str, *, unsaid: bool = False) -> BoolArray:
    """Tell which rows are not marked, as queries do; `unsaid`: and those with NULL there."""
    found = rows.column(flag)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    lives: BoolArray = as_numpy(found.fill_null(0 if unsaid else 1)) == 0
    return lives


def living_rows(
    changes: Iterable[pa.RecordBatch], key: Sequence[str], choose: Choose | None, flag: str
) -> Iterator[pa.RecordBatch]:
    """Yield current rows that are not marked, all or chosen ones; without a flag none is."""
    if not flag:
        yield from last_changes(changes, key, choose)
        return
    for batch in last_changes(_without_marked(changes, flag), key, choose):
        found = batch.filter(mask_of(living(batch, flag)))
        if found.num_rows:
            yield found


def _without_marked(changes: Iterable[pa.RecordBatch], flag: str) -> Iterator[pa.RecordBatch]:
    """Yield changes, and rows of the table that are not marked: others may have doubled those."""
    for batch in changes:
        is_row = as_numpy(pc.equal(batch.column(OP), ROW).fill_null(False))  # noqa: FBT003 - Arrow's
        found = batch.filter(mask_of(~is_row | living(batch, flag)))
        if found.num_rows:
            yield found


@dataclass(frozen=True, slots=True)
class SoftDeletes:
    """How a commit keeps the rows that are gone at the source."""

    names: Sequence[str]
    """The columns that mark a row, the flag first."""
    is_anew: bool = False
    """All rows of before are written again, with other columns."""
    first: pa.Table | None = None
    """A row that empties the table before all changes."""
    shard: str = ""
    """The column whose value tells the rows of which one of several tables a row empties."""

    @property
    def flag(self) -> str:
        """Return the column that is 1 where a row is marked."""
        return self.names[0]

    def marking(self, voids: Sequence[pa.Table], columns: pa.Schema) -> Marking | None:
        """Return what marks rows, by rows of the log that empty the table; None without any."""
        found = [*([] if self.first is None else [self.first]), *voids]
        if not found:
            return None
        return Marking(self, pa.concat_tables(each.cast(columns) for each in found))


class Marking:
    """What marks rows, each by the first statement behind it that emptied its table."""

    def __init__(self, soft: SoftDeletes, voids: pa.Table) -> None:
        voids = voids.sort_by(ORDER).combine_chunks()
        self.flag, self._shard = soft.flag, soft.shard
        self._orders = as_numpy(voids.column(ORDER).combine_chunks())
        count = voids.num_rows
        shards = voids.column(soft.shard).to_pylist() if soft.shard else [None] * count
        self._places = {
            shard: np.flatnonzero([each == shard for each in shards])
            for shard in dict.fromkeys(shards)
        }
        """Which of the statements are of each shard, or of all (None)."""
        values = {name: voids.column(name) for name in (*soft.names[1:], POSITION, COMMITTED_AT)}
        values[self.flag] = pa.repeat(pa.scalar(1, voids.schema.field(self.flag).type), count)
        values[OP] = pa.repeat(pa.scalar("u", voids.schema.field(OP).type), count)
        values[ORDER] = numbers_of(np.maximum(self._orders, SNAPSHOT_ORDER))
        self._values = values

    def of_before(self, rows: pa.Table) -> pa.Table:
        """Return rows from before all changes, marked."""
        return self._marked(rows, self._by(rows, np.full(rows.num_rows, _BEFORE_ALL)))

    def of_changes(self, rows: pa.Table) -> pa.Table:
        """Return changed rows, marked where their table was emptied behind them."""
        places = self._by(rows, as_numpy(rows.column(ORDER).combine_chunks()))
        deleted = as_numpy(pc.equal(rows.column(OP), "d").combine_chunks())
        return self._marked(rows, np.where(deleted, -1, places))

    def marks_some(self, rows: pa.RecordBatch) -> bool:
        """Tell whether rows from before all changes are to be marked.

        Of a table without the flag none is yet.
        """
        rows = pa.Table.from_batches([rows])
        return bool((self._by(rows, np.full(rows.num_rows, _BEFORE_ALL)) >= 0).any())

    def _by(self, rows: pa.Table, orders: IntArray) -> IntArray:
        """Return the place of the first statement behind each living row that emptied its table.

        -1: none did.
        """
        none = len(self._orders)
        found = np.full(rows.num_rows, none)
        for shard, places in self._places.items():
            behind = np.searchsorted(self._orders[places], orders, side="right")
            first = np.append(places, none)[behind]
            if shard is not None:
                there = places_among(rows.column(self._shard), [shard]) >= 0
                first = np.where(there, first, none)
            found = np.minimum(found, first)
        if self.flag in rows.column_names:
            found[~living(rows, self.flag, unsaid=True)] = none
        return np.where(found == none, -1, found)

    def _marked(self, rows: pa.Table, by: IntArray) -> pa.Table:
        """Return rows with the marks of a statement each, by its place; -1: it stays as it is."""
        if not (by >= 0).any():
            return rows
        taken, is_marked = numbers_of(np.maximum(by, 0)), mask_of(by >= 0)
        for name, values in self._values.items():
            column = pc.if_else(is_marked, values.take(taken), rows.column(name))
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), column)
        return rows


# --- rows of before, in other columns --------------------------------------------------------


def require_key(table: TableId, there: pa.Schema, columns: pa.Schema, key: Sequence[str]) -> None:
    """Refuse rows of before whose key is not that of the new ones."""
    if lost := [name for name in key if name not in kept_columns(there, columns)]:
        raise RefusedError(
            f"rows of {table} that are marked as deleted cannot be kept: they have no "
            f"{', '.join(lost)} of the new key, or of another type",
            where=f"table {table}",
            risk="they would be lost; nothing was committed to the table",
            remedy="copy its marked rows elsewhere if they matter, drop the table in the lake, and "
            "`reset` it with --table: it is made anew, with the source's rows; if the lake has "
            "no such table yet, `reset` the pipeline",
        )


def converted(rows: pa.Table, columns: pa.Schema, lost: set[str]) -> pa.Table:
    """Return rows of before in the columns of now; a value that its new type does not have is NULL.

    The columns in which there were such values are added to `lost`.
    """
    kept = kept_columns(rows.schema, columns)
    there = rows.select([name for name in rows.column_names if name in columns.names])
    for place, name in enumerate(there.column_names):
        if name in kept:
            continue
        field = columns.field(name)
        values = fitting(there.column(place), field.type)
        if values.null_count > there.column(place).null_count:
            lost.add(name)
        there = there.set_column(place, field, values)
    return in_columns(there, columns)
