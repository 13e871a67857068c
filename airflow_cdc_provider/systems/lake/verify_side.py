"""A lake's side of a comparison: its current rows, as the query that `show` prints returns them.

What the log has and the tables do not yet is read with them, so a comparison waits for no commit.
A lake keeps no order of keys, so each look reads all of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.verify_port import (
    BY_COLUMNS,
    ColumnsRead,
    KeyedRows,
    TablePair,
    TableSide,
)
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import Chosen, Condition
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, OutputColumn, TableShape
from airflow_cdc_provider.systems.lake.chosen_rows import RowChoice, are_among, of_shard
from airflow_cdc_provider.systems.lake.columns import DOUBLED, OP, ORDER
from airflow_cdc_provider.systems.lake.held import HeldTable, HeldTables
from airflow_cdc_provider.systems.lake.last_changes import RowsLackingError, last_changes
from airflow_cdc_provider.systems.lake.marks import flag_in, living_rows
from airflow_cdc_provider.systems.lake.multisets import Multisets, count_left
from airflow_cdc_provider.systems.lake.stored_values import key_text, model_values, plain_key

Wanted = Callable[[tuple[pa.Array, ...]], BoolArray]
"""Tells which rows are read, by their keys."""


@dataclass(frozen=True, slots=True)
class LakeColumnsSide:
    """One table of a lake, whose current rows are read as columns."""

    tables: HeldTables
    read: ColumnsRead
    primary_key: tuple[str, ...]
    """Of the table: of each such key the last change counts."""
    shape: TableShape = SAME_SHAPE
    """It may have a column by which rows are marked as deleted: these are left out."""

    def rows(self, keys: KeyRange) -> Iterator[KeyedRows]:
        """Yield all current rows; a lake has no ranges."""
        if keys != KeyRange():
            raise ValueError("a lake's rows are in no order of keys, so they have no ranges")
        yield from self._current(None)

    def rows_of(self, keys: Collection[Key]) -> Iterator[KeyedRows]:
        """Yield the rows that have one of these keys."""
        if not keys:
            return
        columns = list(zip(*keys, strict=True))

        def is_wanted(found: tuple[pa.Array, ...]) -> BoolArray:
            sought = [key_column(p, a.type) for p, a in zip(columns, found, strict=True)]
            return are_among(found, row_hashes(sought).one)

        yield from self._current(is_wanted)

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Refuse: a lake has no ranges."""
        raise ValueError(f"a lake's rows are in no order: row {number} of {keys}")

    def _current(self, chosen: Wanted | None) -> Iterator[KeyedRows]:
        """Yield current rows, all or those with chosen keys."""
        for batch in self.tables.looked_at(self.read.table.table, partial(self._begun, chosen)):
            self._require_once(batch)
            columns = [self._column(batch, name) for name in self.read.columns]
            yield KeyedRows(
                pa.RecordBatch.from_arrays(columns, names=list(self.read.columns)),
                self._keys(batch),
            )

    def _require_once(self, rows: pa.RecordBatch) -> None:
        """Refuse rows that are in a table of current rows more than once."""
        doubled = rows.filter(pc.equal(rows.column(OP), DOUBLED))
        if not doubled.num_rows:
            return
        table = self.read.table.table
        raise IntegrityError(
            f"{table} has rows twice, of {doubled.num_rows:,} keys at least, such as "
            f"{self._first_key(doubled)}",
            where=str(self.tables.store),
            risk="readers of the table count them twice; nothing was changed",
            remedy="find out who added rows to it; `resync` the table with --table, which puts one "
            "row in their place, or `reset` it with --table",
        )

    def _refuse_copies(self, changes: pa.Table) -> None:
        """Refuse a table of changes that has some of them more than once."""
        raise IntegrityError(
            f"{self.read.table.table} has changes twice, {changes.num_rows:,} at least, such as "
            f"order {changes.column(ORDER)[0].as_py()} of the key {self._first_key(changes)}",
            where=str(self.tables.store),
            risk="readers of the history count them twice; the query of the current rows is right, "
            "and nothing was changed",
            remedy="`reset` the table with --table: its rows are read again, and all of before is "
            "void; where others compact the lake's tables, write compact: false in the sink",
        )

    def _first_key(self, rows: pa.Table | pa.RecordBatch) -> str:
        """Return the key of the first row, for people."""
        return ", ".join(str(rows.column(name)[0].as_py()) for name in self.primary_key)

    def _begun(self, chosen: Wanted | None, held: HeldTable | None) -> Iterator[pa.RecordBatch]:
        """Return current rows, all or those with chosen keys: all changes have been read."""
        if held is None:
            return iter(())
        if not self.primary_key:
            return self._left(held)
        flag = flag_in(held.columns, self.shape)
        more = (*((flag,) if flag else ()), OP, ORDER)
        names = list(dict.fromkeys((*self.primary_key, *self.read.columns, *more)))
        choose = partial(self._chosen, chosen)
        changes, key = held.batches(names), self.primary_key
        if held.is_mirror:  # the operation of a row says that it is there twice
            found = living_rows(changes, key, choose, flag)
        else:
            found = last_changes(changes, key, choose, on_twice=self._refuse_copies)
        first = list(islice(found, 1))
        return chain(first, found)

    def _left(self, held: HeldTable) -> Iterator[pa.RecordBatch]:
        """Return the current rows of a table without a key: all changes have been read."""
        told = Multisets(self.read.table, self.read.columns)
        found = self._explained(told.rows(held.batches(told.read)))
        first = list(islice(found, 1))
        return chain(first, found)

    def _explained(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows; tell of a table that lacks some of those that its changes take away."""
        try:
            yield from rows
        except RowsLackingError as error:
            raise IntegrityError(
                f"the changes of {self.read.table.table} take away {error.rows:,} rows, at least, "
                "that it does not have",
                where=str(self.tables.store),
                risk="rows that come next are taken for those; nothing was changed",
                remedy="find out who changed the table; `resync` it with --table, which reads all "
                "of its rows again",
            ) from error

    def _chosen(self, chosen: Wanted | None, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes of chosen keys, or all, of the table that is compared."""
        own = of_shard(changes, self.read.shard)
        return own if chosen is None else own.filter(mask_of(chosen(self._keys(own))))

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column in the value model."""
        return model_values(rows.column(name), self.read.table.column(name).type)

    def _keys(self, rows: pa.RecordBatch) -> tuple[pa.Array, ...]:
        """Return the columns of the rows' keys."""
        form = plain_key if self.read.plain_key else key_text
        columns = map(self.read.table.column, self.read.key)
        return tuple(form(self._column(rows, each.name), each.type) for each in columns)


@dataclass(frozen=True, slots=True)
class LakeRowCounts:
    """One table of a lake, whose current rows are counted; each count reads it."""

    tables: HeldTables
    table: TableSchema
    key: tuple[str, ...]
    """The columns that ranges are of."""
    flag: str = ""
    """A column by which rows are marked as deleted: these are not counted."""
    shard: OutputColumn | None = None
    """A column that has one value in all rows that are counted."""

    def count(self, keys: KeyRange, chosen: Chosen | None = None, *, most: int) -> int:
        """Count the current rows of a range, or the chosen ones, up to `most`."""
        choice = RowChoice(self.table, self.key, keys, chosen, self.flag, self.shard)

        def counted(held: HeldTable | None) -> int:
            if held is not None and not self.table.primary_key:
                return min(count_left(held.batches([OP, ORDER])), most)
            rows = 0
            for batch in () if held is None else choice.rows(held, ()):
                rows += batch.num_rows
                if rows >= most:
                    return most
            return rows

        return self.tables.looked_at(self.table.table, counted)

    def require(self, condition: Condition) -> None:
        """Refuse a condition: a lake does not know the source's SQL."""
        RowChoice(self.table, self.key, KeyRange(), condition).require()


@dataclass(frozen=True, slots=True)
class LakeVerifySide:
    """A lake's tables, to be compared."""

    tables: HeldTables
    plans: Mapping[TableId, TablePlan]
    """By the tables of the lake."""

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the names of the hashes that there are of a lake's rows."""
        return (BY_COLUMNS,)

    @property
    def has_ranges(self) -> bool:
        """Return False: no index finds a lake's rows by their keys."""
        return False

    def close(self) -> None:
        """Do nothing: each look opens what it needs."""

    def definition(self, table: TableId) -> TableSchema | None:
        """Return what a table was made for, with the columns that are there."""
        plan = self.plans.get(table)
        there = self.tables.looked_at(table, lambda held: None if held is None else held.columns)
        if there is None or plan is None:
            return None
        columns = (each for each in plan.target.columns if each.name in there.names)
        return replace(plan.target, columns=tuple(columns))

    def counts(
        self,
        table: TableSchema,
        key: tuple[str, ...],
        *,
        flag: str = "",
        shard: OutputColumn | None = None,
    ) -> LakeRowCounts:
        """Return one table, whose current rows are counted."""
        return LakeRowCounts(self.tables, table, key, flag, shard)

    def table(self, pair: TablePair) -> TableSide:
        """Refuse: a lake has no digest of its own."""
        raise ValueError(f"rows of {pair.sink.table} are compared by columns only")

    def columns_of(self, own: ColumnsRead, other: ColumnsRead) -> LakeColumnsSide:
        """Return a table of the lake, to be read as columns."""
        del other
        plan = self.plans.get(own.table.table)
        shape = SAME_SHAPE if plan is None else plan.shape
        return LakeColumnsSide(self.tables, own, own.table.primary_key, shape)
