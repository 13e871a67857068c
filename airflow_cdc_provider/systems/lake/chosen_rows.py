"""Which of a lake's current rows are meant: those in a range of the key, listed, or in an interval.

A lake has no index and does not speak the source's SQL. So a range of keys is found only where code
knows the keys' order, and a condition never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of
from airflow_cdc_provider.columns.canonical import WordArray
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.row_keys import in_range
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.keys import KeyPart, KeyRange, comparable
from airflow_cdc_provider.core.splits import Chosen, Condition, Interval, KeyList
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.systems.lake.columns import OP, ORDER
from airflow_cdc_provider.systems.lake.held import HeldTable
from airflow_cdc_provider.systems.lake.last_changes import places_among
from airflow_cdc_provider.systems.lake.marks import living_rows
from airflow_cdc_provider.systems.lake.stored_values import key_text, model_values, plain_key
from airflow_cdc_provider.systems.lake.tables.table import Bounds


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of a table that are meant; names are the lake's."""

    table: TableSchema
    """As the lake has it."""
    key: tuple[str, ...]
    """The columns of which `keys` is a range, in its order."""
    keys: KeyRange
    chosen: Chosen | None = None
    flag: str = ""
    """A column by which rows are marked as deleted: these are not meant."""
    shard: OutputColumn | None = None
    """A column that has one value in all rows that are meant: others are of other tables."""

    def require(self) -> None:
        """Refuse what a lake cannot tell of its rows."""
        kinds = tuple(self.table.column(name).type.key_kind for name in self.key)
        if isinstance(self.chosen, Condition):
            raise self._refusal("a lake does not know the source's SQL", "an interval of a column")
        if self.keys != KeyRange() and not comparable(kinds):
            raise self._refusal(
                f"the order of its key ({', '.join(self.key)}) is the source's own",
                "an interval of a column that the source has an index of",
            )

    def rows(self, held: HeldTable, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the current rows that are meant, with these columns and maybe others."""
        self.require()
        value = (self.chosen.column,) if isinstance(self.chosen, Interval) else ()
        flag = self.flag if self.flag in held.columns.names else ""
        more = (*value, *names, *((flag,) if flag else ()), OP, ORDER)
        wanted = dict.fromkeys((*self.table.primary_key, *self.key, *more))
        changes = held.batches([*wanted], self.bounds(held.columns))
        for batch in living_rows(changes, self.table.primary_key, self.of_keys, flag):
            found = self._of_values(batch)
            if found.num_rows:
                yield found

    def of_keys(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes of the keys that are meant; those of an interval are not known yet."""
        changes = of_shard(changes, self.shard)
        if self.keys != KeyRange():
            inside = in_range([self._values(changes, name) for name in self.key], self.keys)
            changes = changes.filter(mask_of(inside))
        if isinstance(self.chosen, KeyList):
            changes = changes.filter(mask_of(self._is_listed(changes, self.chosen)))
        return changes

    def bounds(self, columns: pa.Schema) -> Bounds | None:
        """Return the numbers between which the keys' first column is; None if that is not known."""
        if not pa.types.is_integer(columns.field(self.key[0]).type):
            return None
        start, end = self.keys.start, self.keys.end
        low, high = (None if each is None else _number(each[0]) for each in (start, end))
        return None if low is high is None else Bounds(self.key[0], low, high)

    def _of_values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose value lies in the interval, all if there is none."""
        if not isinstance(self.chosen, Interval):
            return rows
        rows = rows.filter(rows.column(self.chosen.column).is_valid())
        inside = in_range([self._values(rows, self.chosen.column)], self.chosen.values)
        return rows.filter(mask_of(inside))

    def _is_listed(self, changes: pa.RecordBatch, listed: KeyList) -> BoolArray:
        """Tell which changes are of listed keys, as verify prints keys."""
        found, sought = [], []
        for name, parts in zip(listed.columns, zip(*listed.keys, strict=True), strict=True):
            form = key_text if all(isinstance(part, str) for part in parts) else plain_key
            kind = self.table.column(name).type
            found.append(form(self._values(changes, name), kind))
            sought.append(key_column(parts, found[-1].type))
        return are_among(found, row_hashes(sought).one)

    def _values(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column in the value model."""
        return model_values(rows.column(name), self.table.column(name).type)

    def _refusal(self, why: str, instead: str) -> RefusedError:
        """Return the error for rows that a lake cannot find."""
        return RefusedError(
            f"rows of {self.table.table} in the lake cannot be found by that: {why}",
            where="rows that are to be read again",
            risk=NOTHING_CHANGED,
            remedy=f"name {instead}; or `reset` the table with --table: it is read as a whole",
        )


def of_shard(rows: pa.RecordBatch, shard: OutputColumn | None) -> pa.RecordBatch:
    """Return the rows of one of several tables that share the lake's; all if none does."""
    if shard is None:
        return rows
    own = places_among(rows.column(shard.name), [str(shard.constant)]) >= 0
    return rows.filter(mask_of(own))


def of_hashes(rows: pa.RecordBatch, names: Sequence[str], sought: WordArray) -> pa.RecordBatch:
    """Return the rows whose key has one of these hashes: those that are sought, and few others."""
    return rows.filter(mask_of(are_among([rows.column(name) for name in names], sought)))


def are_among(keys: Sequence[pa.Array], sought: WordArray) -> BoolArray:
    """Tell which keys, one array a column, have one of these hashes."""
    found: BoolArray = np.isin(row_hashes(keys).one, sought)
    return found


def bounds_of(name: str, values: pa.Array) -> Bounds | None:
    """Return the smallest and the greatest of a key's values; None if they are no numbers."""
    if not pa.types.is_integer(values.type) or not len(values):
        return None
    numbers = as_numpy(values)
    return Bounds(name, int(numbers.min()), int(numbers.max()))


def _number(part: KeyPart) -> int:
    """Return the part of a key that is a whole number."""
    if not isinstance(part, int):
        raise TypeError(f"{part!r} is no whole number")
    return part
