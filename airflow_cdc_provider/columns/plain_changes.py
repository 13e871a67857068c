"""Changes of one table as Python objects, for who compares a few of them one by one.

An object is what Arrow's `to_pylist` makes of a value, whether the changes came as columns or value
by value. Each column is turned into objects when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.few_changes import FewTable, Value

_INSERT, _DELETE = int(Op.INSERT), int(Op.DELETE)
_EPOCH = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=80)
"""More digits than a decimal has."""

Made = Callable[[Any], Any]


def object_of(kind: pa.DataType) -> Made | None:
    """Return what makes a Python object of a plain value that is not NULL; None: it is one."""
    if pa.types.is_string(kind):
        return bytes.decode
    if pa.types.is_decimal(kind):
        return _decimals(kind.scale)
    if pa.types.is_date32(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _timestamps(datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None))
    if pa.types.is_duration(kind):
        return _duration
    return None


def _decimals(scale: int) -> Made:
    """Return what makes decimals of their digits."""

    def made(value: int) -> Decimal:
        return Decimal(value).scaleb(-scale, _EXACT)

    return made


def _date(value: int) -> date:
    """Return the date of so many days since 1970."""
    return date.fromordinal(value + _EPOCH)


def _timestamps(epoch: datetime) -> Made:
    """Return what makes times of their microseconds."""

    def made(value: int) -> datetime:
        return epoch + timedelta(microseconds=value)

    return made


def _duration(value: int) -> timedelta:
    """Return a time of so many microseconds."""
    return timedelta(microseconds=value)


class PlainChanges:
    """Changes of one table in log order, as Python objects."""

    def __init__(self, given: FewTable | TableChanges) -> None:
        self._given = given
        self.schema: pa.Schema = given.schema if isinstance(given, FewTable) else given.after.schema
        self._makers = _makers(self.schema)
        self._columns: dict[tuple[str, bool], list[Any]] = {}
        self.ops: Sequence[int]
        """A value of `Op` for each change."""
        self.transactions: Sequence[int]
        """Of each change the index of its transaction in its batch."""
        if isinstance(given, FewTable):
            self.ops = [change.op for change in given.changes]
            self.transactions = given.transactions
        else:
            self.ops = as_numpy(given.op).tolist()
            self.transactions = as_numpy(given.transaction).tolist()

    def __len__(self) -> int:
        return len(self.ops)

    def column(self, name: str, *, before: bool) -> Sequence[Any]:
        """Return a column's values in the rows before the changes, or after them.

        Where there is no such row it is None.
        """
        found = self._columns.get((name, before))
        if found is None:
            found = self._columns[name, before] = self._column(name, before=before)
        return found

    def row(self, change: int, *, before: bool) -> dict[str, Any] | None:
        """Return a whole row, before or after a change; None if there is no such row."""
        if self.ops[change] == (_INSERT if before else _DELETE):
            return None
        given = self._given
        if isinstance(given, TableChanges):
            rows = given.before if before else given.after
            values: dict[str, Any] = rows.slice(change, 1).to_pylist()[0]
            return values
        row = given.changes[change].before if before else given.changes[change].after
        return {
            name: _object(made, value)
            for (name, made), value in zip(self._makers.items(), row or (), strict=True)
        }

    def _column(self, name: str, *, before: bool) -> list[Any]:
        """Turn a column into objects."""
        given = self._given
        if isinstance(given, TableChanges):
            side = given.before if before else given.after
            return side.column(name).to_pylist()  # type: ignore[no-any-return]
        place, made = self.schema.get_field_index(name), self._makers[name]
        rows = [change.before if before else change.after for change in given.changes]
        return [None if row is None else _object(made, row[place]) for row in rows]


def objects_of(values: Sequence[Value], kind: pa.DataType) -> list[Any]:
    """Return plain values of a type as Python objects."""
    made = object_of(kind)
    return [_object(made, value) for value in values]


@lru_cache(maxsize=256)
def _makers(schema: pa.Schema) -> dict[str, Made | None]:
    """Return what makes the objects of each column."""
    return {field.name: object_of(field.type) for field in schema}


def _object(made: Made | None, value: Value) -> Any:
    """Return a plain value as a Python object."""
    return value if made is None or value is None else made(value)
