"""Single values become SQL text, one by one: what `sql_text` does for whole columns.

The rules are its own, and so is the text of each value, but that floats are printed as Python does,
which is the same number. A value that its column's text cannot say is `NotPlainError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.few_changes import Value
from airflow_cdc_provider.core.table_schema import Column

Text = Callable[[Any], bytes]
"""Writes a value that is not NULL."""

_PLAIN = re.compile(rb"[ -&(-\[\]-~]*").fullmatch
"""Printable ASCII without quote and backslash."""
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


class NotPlainError(Exception):
    """A value that cannot be written as plain SQL text here; `sql_text` writes the whole column."""


def text_of(column: Column, kind: pa.DataType) -> Text:
    """Return the function that writes a column's values, of an Arrow type, as SQL text."""
    if pa.types.is_integer(kind):
        return _year if column.type.name == "year" else _integer
    if pa.types.is_decimal(kind):
        return _decimals(kind.scale)
    if pa.types.is_floating(kind):
        return _real
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_date32(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _moments(_timestamp, _after_second, column.type.fraction)
    if pa.types.is_duration(kind):
        return _moments(_duration, _beyond_second, column.type.fraction)
    raise NotPlainError


def cell(text: Text, value: Value) -> bytes:
    """Return a value as SQL text, NULL included."""
    return b"NULL" if value is None else text(value)


def _integer(value: int) -> bytes:
    """Return an integer as SQL text."""
    return b"%d" % value


def _year(value: int) -> bytes:
    """Return a YEAR as SQL text."""
    return b"'%04d'" % value  # bare, 0 would be 2000


def _real(value: float) -> bytes:
    """Return a float as SQL text."""
    return b"'%s'" % repr(value).encode()


def _decimals(scale: int) -> Text:
    """Return the function that writes decimals of a scale as SQL text."""

    def text(value: int) -> bytes:
        digits = b"%0*d" % (scale + 1, abs(value))
        sign = b"-" if value < 0 else b""
        return sign + (digits[:-scale] + b"." + digits[-scale:] if scale else digits)

    return text


def _binary(value: bytes) -> bytes:
    """Return bytes as SQL text, in hexadecimal."""
    return b"x'%s'" % value.hex().encode()


def _string(value: bytes) -> bytes:
    """Return a UTF-8 text as SQL text, in hexadecimal unless it is plain ASCII."""
    if _PLAIN(value):
        return b"'%s'" % value
    return b"_utf8mb4 x'%s'" % value.hex().encode()


def _day(days: int) -> str:
    """Return the date of so many days since 1970, as text."""
    return date.fromordinal(days + _EPOCH).isoformat()


def _date(value: int) -> bytes:
    """Return a date as SQL text."""
    return b"'%s'" % _day(value).encode()


def _moments(text: Callable[[int], str], micros: Callable[[int], int], fraction: int) -> Text:
    """Return the function that writes microseconds as a time with so many digits of fraction.

    `micros` gives those behind the second that `text` writes.
    """

    def moment(value: int) -> bytes:
        behind = ""
        if fraction:
            behind = f".{micros(value):06d}"[: 1 + fraction]
        if value % 10 ** (6 - fraction):
            raise NotPlainError
        return f"'{text(value)}{behind}'".encode()

    return moment


def _after_second(value: int) -> int:
    """Return the microseconds within the second of a timestamp."""
    return value % _SECOND


def _beyond_second(value: int) -> int:
    """Return the microseconds within the second of a duration, whatever its sign."""
    return abs(value) % _SECOND


def _timestamp(value: int) -> str:
    """Return a timestamp of microseconds as text, without its fraction."""
    days, micros = divmod(value, _DAY)
    return f"{_day(days)} {_clock(micros // _SECOND)}"


def _duration(value: int) -> str:
    """Return a duration of microseconds as text, without its fraction."""
    sign = "-" if value < 0 else ""
    return sign + _clock(abs(value) // _SECOND)


def _clock(seconds: int) -> str:
    """Return seconds as hh:mm:ss."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
