"""Rows of both sides turned into what the sink's table is to hold. No I/O.

At the source the table's shape says which rows are copied and what becomes of their columns. At the
sink rows that are only marked as deleted are left out: the source no longer has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.filtering import is_of_moments
from airflow_cdc_provider.columns.shaping import copied_rows, sink_columns
from airflow_cdc_provider.columns.verify_port import KeyedRows
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, ValueRefusedError
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import columns_in
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.engine.verify.hashed_table import TurnedRows

_DAY_TEXT = len("YYYY-MM-DD")


@dataclass(frozen=True, slots=True)
class SourceTurning:
    """Turns the source's rows into the sink's."""

    plan: TablePlan
    key: tuple[OutputColumn, ...]
    """Where the columns of the sink's key come from."""
    is_plain: bool
    """Keys are values, else texts; hashes are values."""

    def __call__(self, read: KeyedRows) -> TurnedRows:
        """Return the copied rows among those that were read, as the sink has them."""
        rows, keys = read.rows, read.keys
        copied = copied_rows(self._with_dates(rows), self.plan)
        if copied is not None:
            rows = rows.filter(copied)
            keys = tuple(column.filter(copied) for column in keys)
        turned = sink_columns(rows, self.plan)
        return TurnedRows(tuple(self._key(keys, turned)), tuple(turned.columns), rows)

    def _key(self, sourced: Sequence[pa.Array], turned: pa.RecordBatch) -> Iterator[pa.Array]:
        """Yield the columns of the sink's key: those that were read, hashed and constant ones."""
        left = iter(sourced)
        for each in self.key:
            if each.is_hashed:
                yield turned.column(each.name)
            elif each.source:
                yield next(left)
            else:
                constant = pa.scalar(_constant(each, is_plain=self.is_plain))
                yield pa.repeat(constant, turned.num_rows)

    def _with_dates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with dates, instead of texts, where rows are chosen by them."""
        where = self.plan.shape.where
        if where is None:
            return rows
        for name in set(columns_in(where)):
            at = rows.schema.get_field_index(name)
            values = rows.column(at)
            is_date = self.plan.schema.column(name).type.kind is TypeKind.TEMPORAL
            if is_date and pa.types.is_string(values.type):
                dates = self._dates(name, values)
                if is_of_moments(where, name):
                    dates = pc.assume_timezone(dates, "UTC")  # they are read in UTC
                rows = rows.set_column(at, name, dates)
        return rows

    def _dates(self, name: str, texts: pa.Array) -> pa.Array:
        """Return dates from their texts; refuse those that are no day of the calendar."""
        first = pc.drop_null(texts).slice(0, 1).to_pylist()
        kind = pa.date32() if first and len(first[0]) == _DAY_TEXT else pa.timestamp("us")
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid as error:
            raise ValueRefusedError(
                f"{name} has dates that are no day of the calendar, and rows are chosen by it",
                where=f"verify of {self.plan.schema.table}",
                risk=f"which of these rows are to be at the sink cannot be told. {NOTHING_CHANGED}",
                remedy="mend the dates at the source, or compare the table by other means",
            ) from error


def source_key(key: Sequence[OutputColumn], asked: Key, *, is_plain: bool) -> Key | None:
    """Return the source's part of one of the sink's keys; None if its constants are others."""
    parts: list[KeyPart] = []
    for each, part in zip(key, asked, strict=True):
        if each.source:
            parts.append(part)
        elif part != _constant(each, is_plain=is_plain):
            return None
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class SinkTurning:
    """Turns the sink's rows into those that the source has, too."""

    key: tuple[int | None, ...]
    """The place of each column of the key that is a hash; None: it is read as a key."""
    flag: int | None
    """The place of the column by which rows are marked as deleted."""

    def __call__(self, read: KeyedRows) -> TurnedRows:
        """Return the rows among those that were read that are not marked as deleted."""
        rows, keys = read.rows, read.keys
        if self.flag is not None:
            marked = pc.equal(rows.column(self.flag), 1).fill_null(False)  # noqa: FBT003 - Arrow's
            living = mask_of(~np.asarray(marked))
            rows, keys = rows.filter(living), tuple(column.filter(living) for column in keys)
        left = iter(keys)
        own = tuple(next(left) if at is None else rows.column(at) for at in self.key)
        return TurnedRows(own, tuple(rows.columns), rows)


def _constant(column: OutputColumn, *, is_plain: bool) -> KeyPart:
    """Return a constant of the sink's key as a part of a key."""
    value = "" if column.constant is None else column.constant
    return value if is_plain else str(value)
