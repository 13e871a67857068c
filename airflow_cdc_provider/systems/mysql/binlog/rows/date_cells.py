"""DATE, DATETIME, TIMESTAMP and TIME, a whole column at a time.

A date is stored as a number of year and month, and a day. Two tables by that number, of the days
before its first day and of how many days it has, give both the days since 1970 and whether there
is such a day; months that do not exist have no days.

The formats of before MySQL 5.6 hold the written digits as one number: these come by column too.

Zero and partial dates follow the policy of the value model: a named error, NULL and counted, or
the server's own text for every value of the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, validity_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates

_SECOND = 1_000_000
_DAY_SECONDS = 86_400
_MONTHS_TO_EPOCH = 1970 * 12


@dataclass(slots=True)
class _Parts:
    """Dates and times as columns of calendar fields, as the server stores them."""

    year: IntArray
    month: IntArray
    day: IntArray
    second: IntArray
    """Seconds since midnight."""
    micro: IntArray


@dataclass(slots=True)
class DateColumn:
    """A decoded column and how many zero dates became NULL."""

    array: pa.Array
    nulled: int = 0


def times(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode TIME(n) cells: one signed number of hours, minutes, seconds and fraction."""
    extra = wire.width - 3
    packed = cells.data.big(cells.offsets, wire.width) - (0x800000 << (8 * extra))
    size = np.abs(packed)
    whole, part = size >> (8 * extra), size & ((1 << (8 * extra)) - 1)
    seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    value = seconds * _SECOND + part * 10 ** (6 - 2 * extra)
    return as_arrow(np.where(packed < 0, -value, value), cells.nulls, wanted)


def old_times(cells: Cells, wanted: pa.DataType) -> pa.Array:
    """Decode TIME cells of before MySQL 5.6: a signed number with the digits hhmmss."""
    stored = cells.data.little(cells.offsets, 3)
    stored -= (stored >> 23) << 24
    value = _clock(np.abs(stored)) * _SECOND
    return as_arrow(np.where(stored < 0, -value, value), cells.nulls, wanted)


def dates(cells: Cells, wire: Wire, wanted: pa.DataType, zero_dates: ZeroDates) -> DateColumn:
    """Decode DATE, DATETIME(n) or TIMESTAMP(n) cells, zero dates by their policy."""
    if zero_dates is ZeroDates.TEXT:
        return DateColumn(_as_text(_PARTS[wire.kind](cells, wire), cells.nulls, wire))
    values, real = _VALUES[wire.kind](cells, wire)
    nulls, nulled = cells.nulls, 0
    if not real.all():
        unreal = ~real
        if nulls is not None:
            unreal &= ~nulls
        nulled = int(unreal.sum())
        if nulled and zero_dates is ZeroDates.FAIL:
            parts = _PARTS[wire.kind](cells, wire)
            raise _no_day(parts, int(np.flatnonzero(unreal)[0]))
        nulls = unreal if nulls is None else nulls | unreal
    return DateColumn(as_arrow(values, nulls, wanted), nulled)


_YEARS = 10_000
_DATE_MONTHS, _DATETIME_MONTHS = 16, 13
"""How many months a year has in the stored numbers, those that do not exist among them."""
_DATETIME_FROM = 1 << 17
"""Where DATETIME's months begin: behind those of times before year 0, of which there are none."""


@cache
def _calendar(months: int, first: int, size: int) -> tuple[npt.NDArray[np.int32], IntArray]:
    """Return, by stored month number, the days from 1970 to the month's day 0, and its length."""
    cells = np.arange(_YEARS * months)
    month = cells % months
    count = (cells // months - 1970) * 12 + month - 1
    starts = np.array([count, count + 1]).astype("datetime64[M]").astype("datetime64[D]")
    begins, ends = starts.astype(np.int64)
    before, length = np.zeros(size, np.int32), np.zeros(size, np.int64)
    before[first : first + len(cells)] = begins - 1
    length[first : first + len(cells)] = np.where((month >= 1) & (month <= 12), ends - begins, 0)
    return before, length


def _date_values(cells: Cells, _wire: Wire) -> tuple[npt.NDArray[Any], BoolArray]:
    """Decode DATE to days since 1970, and tell which are real dates."""
    packed = cells.data.little(cells.offsets, 3)
    before, length = _calendar(_DATE_MONTHS, 0, 1 << 19)
    month, day = packed >> 5, packed & 31
    real = (day <= length[month]) & (day > 0)
    return before[month] + day.astype(np.int32), real


def _datetime_values(cells: Cells, wire: Wire) -> tuple[npt.NDArray[Any], BoolArray]:
    """Decode DATETIME to microseconds since 1970, and tell which are real dates."""
    packed = cells.data.big(cells.offsets, 5)
    before, length = _calendar(_DATETIME_MONTHS, _DATETIME_FROM, 1 << 18)
    month, day = packed >> 22, packed >> 17 & 31
    real = (day <= length[month]) & (day > 0)
    values = (before[month] + day) * _DAY_SECONDS + _seconds(packed)
    values *= _SECOND
    if wire.length:
        values += _fraction(cells, 5, wire)
    return values, real


def _timestamp_values(cells: Cells, wire: Wire) -> tuple[npt.NDArray[Any], BoolArray]:
    """Decode TIMESTAMP to microseconds since 1970; second 0 is the zero date."""
    values = cells.data.big(cells.offsets, 4) * _SECOND
    if wire.length:
        values += _fraction(cells, 4, wire)
    return values, values != 0


def _old_datetime_values(cells: Cells, wire: Wire) -> tuple[npt.NDArray[Any], BoolArray]:
    """Decode DATETIME of before MySQL 5.6, and tell which are real dates."""
    parts = _old_datetime_parts(cells, wire)
    before, length = _calendar(_DATE_MONTHS, 0, 1 << 19)
    there = (parts.year >= 0) & (parts.year < _YEARS) & (parts.month < _DATE_MONTHS)
    month = np.where(there, parts.year * _DATE_MONTHS + parts.month, 0)
    real = (parts.day <= length[month]) & (parts.day > 0)
    return ((before[month] + parts.day) * _DAY_SECONDS + parts.second) * _SECOND, real


def _old_timestamp_values(cells: Cells, _wire: Wire) -> tuple[npt.NDArray[Any], BoolArray]:
    """Decode TIMESTAMP of before MySQL 5.6; second 0 is the zero date."""
    values = cells.data.little(cells.offsets, 4) * _SECOND
    return values, values != 0


_VALUES = {
    "date": _date_values,
    "datetime": _datetime_values,
    "timestamp": _timestamp_values,
    "old datetime": _old_datetime_values,
    "old timestamp": _old_timestamp_values,
}
DATES = frozenset(_VALUES)
"""The kinds of columns that `dates` decodes."""


def _clock(digits: IntArray) -> IntArray:
    """Return the seconds since midnight of times written as numbers with the digits hhmmss."""
    seconds: IntArray = digits // 10_000 * 3600 + digits // 100 % 100 * 60 + digits % 100
    return seconds


def _seconds(packed: IntArray) -> IntArray:
    """Return the seconds since midnight of bit-packed times."""
    seconds: IntArray = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    return seconds


def _date_parts(cells: Cells, _wire: Wire) -> _Parts:
    """Return the calendar fields of DATE cells."""
    packed = cells.data.little(cells.offsets, 3)
    none = np.zeros(len(packed), np.int64)
    return _Parts(packed >> 9, packed >> 5 & 15, packed & 31, none, none)


def _datetime_parts(cells: Cells, wire: Wire) -> _Parts:
    """Return the calendar fields of DATETIME cells."""
    packed = cells.data.big(cells.offsets, 5) - 0x8000000000
    months = packed >> 22
    micro = _fraction(cells, 5, wire)
    return _Parts(months // 13, months % 13, packed >> 17 & 31, _seconds(packed), micro)


def _timestamp_parts(cells: Cells, wire: Wire) -> _Parts:
    """Return the calendar fields of TIMESTAMP cells."""
    return _instant_parts(cells.data.big(cells.offsets, 4), _fraction(cells, 4, wire))


def _instant_parts(stored: IntArray, micro: IntArray) -> _Parts:
    """Return the calendar fields of seconds since 1970; second 0 is the zero date."""
    day = (stored // _DAY_SECONDS).astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    months = month.astype(np.int64) + _MONTHS_TO_EPOCH
    zero = (stored == 0) & (micro == 0)
    there = (~zero).astype(np.int64)
    return _Parts(
        months // 12 * there,
        (months % 12 + 1) * there,
        ((day - month).astype(np.int64) + 1) * there,
        stored % _DAY_SECONDS,
        micro,
    )


def _old_datetime_parts(cells: Cells, _wire: Wire) -> _Parts:
    """Return the calendar fields of DATETIME cells of before MySQL 5.6."""
    day, clock = np.divmod(cells.data.little(cells.offsets, 8), 1_000_000)
    none = np.zeros(len(day), np.int64)
    return _Parts(day // 10_000, day // 100 % 100, day % 100, _clock(clock), none)


def _old_timestamp_parts(cells: Cells, _wire: Wire) -> _Parts:
    """Return the calendar fields of TIMESTAMP cells of before MySQL 5.6."""
    stored = cells.data.little(cells.offsets, 4)
    return _instant_parts(stored, np.zeros(len(stored), np.int64))


_PARTS = {
    "date": _date_parts,
    "datetime": _datetime_parts,
    "timestamp": _timestamp_parts,
    "old datetime": _old_datetime_parts,
    "old timestamp": _old_timestamp_parts,
}


def _fraction(cells: Cells, behind: int, wire: Wire) -> IntArray:
    """Return the microseconds of cells' fractions, which follow `behind` bytes."""
    width = wire.width - behind
    if not width:
        return np.zeros(len(cells.offsets), np.int64)
    digits: IntArray = cells.data.big(cells.offsets + behind, width) * 10 ** (6 - 2 * width)
    return digits


def _no_day(parts: _Parts, row: int) -> ValueRefusedError:
    """Return the error for a zero or impossible date."""
    shown = f"{parts.year[row]:04d}-{parts.month[row]:02d}-{parts.day[row]:02d}"
    return ValueRefusedError(
        f"{shown} is no day of the calendar",
        risk="the sink has no such value",
        remedy="correct the row, or set source.zero_dates to null or text; then `reset` the "
        "pipeline, for the log keeps that value",
    )


def _as_text(parts: _Parts, nulls: BoolArray | None, wire: Wire) -> pa.Array:
    """Return dates as the server prints them, in texts of one width."""
    fields = [(parts.year, 4, ""), (parts.month, 2, "-"), (parts.day, 2, "-")]
    if wire.kind != "date":
        second = parts.second
        fields += [(second // 3600, 2, " "), (second // 60 % 60, 2, ":"), (second % 60, 2, ":")]
        if wire.length:
            fields.append((parts.micro // 10 ** (6 - wire.length), wire.length, "."))
    columns: list[ByteArray] = []
    for values, digits, before in fields:
        if before:
            columns.append(np.full(len(values), ord(before), np.uint8))
        columns.extend(
            (values // 10**power % 10 + ord("0")).astype(np.uint8)
            for power in range(digits - 1, -1, -1)
        )
    texts = np.column_stack(columns)
    rows, width = texts.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    validity, count = validity_of(nulls)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(texts))]
    return pa.Array.from_buffers(pa.string(), rows, buffers, count)
