"""Fields of the text protocol become Arrow arrays of the value model.

The bytes stay where they were received until one C++ `take` gathers a column: an array over the
shared buffer with offsets `[start0, end0, start1, end1, ...]` has the values at its even indexes
and the gaps at its odd ones. Arrow's parsers then turn text into numbers and dates.

`select_expression` says how each column is to be selected so that its text is exact. The
session must have `SET NAMES utf8mb4` (the server converts texts), `time_zone = '+00:00'` and no
PAD_CHAR_TO_FULL_LENGTH in its sql_mode. A text in a charset that has bytes without a character is
selected as bytes, and turned into UTF-8 as those of the log are: the server would write `?` for
what it cannot convert, and say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, binaries_of
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.table_schema import Column, ColumnType
from airflow_cdc_provider.systems.mysql.dialect.charsets import is_total, to_utf8
from airflow_cdc_provider.systems.mysql.dialect.value_model import DATE_TYPES, ZeroDates, arrow_type
from airflow_cdc_provider.systems.mysql.dialect.zero_dates import no_day_in_text
from airflow_cdc_provider.systems.mysql.wire.text_numbers import parsed_number
from airflow_cdc_provider.systems.mysql.wire.text_protocol import Field

_BINARY = pa.binary()
_PLACES = 1 << 13
SESSION_STATEMENTS = ("SET NAMES utf8mb4", "SET time_zone = '+00:00'")
"""What a session that selects for these decoders must have set."""


class FieldRefusedError(ValueError):
    """A field whose text does not fit the Arrow type of its column, with its row."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason


def select_expression(column: Column) -> str:
    """Return the SELECT expression whose text is exactly the column's value.

    FLOAT as text has six digits, as DOUBLE all of them; `DOUBLE(m,d)` is rounded to d digits as
    text as well. BIT is bytes, as an integer it is digits. Index 0 of an ENUM is printed as the
    empty text, which may be a member.
    """
    name = quote_identifier(column.name)
    if column.type.name == "enum":
        name = f"IF({name} = 0, '{column.type.no_member}', {name})"
    match column.type.name:
        case "float":
            return f"CAST({name} AS DOUBLE)"
        case "double" if column.type.scale is not None:
            return f"CAST({name} AS DOUBLE)"
        case "bit":
            return f"CAST({name} AS UNSIGNED)"
        case _ if comes_as_bytes(column.type):
            return f"CAST({name} AS BINARY)"
        case _:
            return name


def comes_as_bytes(column_type: ColumnType) -> bool:
    """Tell whether a text is selected as bytes, since the server may not convert it losslessly."""
    charset = column_type.charset
    return charset not in {None, "binary"} and not is_total(str(charset))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column decoded to Arrow, and how many of its zero dates became NULL."""

    array: pa.Array
    nulled: int = 0


def decode_field(
    buffer: bytearray, located: Field, column_type: ColumnType, zero_dates: ZeroDates
) -> Decoded:
    """Decode one column's fields to Arrow; a field that does not fit raises `FieldRefusedError`."""
    wanted = arrow_type(column_type, zero_dates)
    if pa.types.is_duration(wanted):
        return Decoded(_durations(buffer, located, column_type.fraction))
    if pa.types.is_binary(wanted):
        return Decoded(gathered(buffer, located))
    if pa.types.is_string(wanted) and comes_as_bytes(column_type):
        return Decoded(_converted(gathered(buffer, located), str(column_type.charset)))
    if pa.types.is_string(wanted):
        return Decoded(_text(gathered(buffer, located)))
    number = parsed_number(buffer, located, wanted)
    if number is not None:
        return Decoded(number)
    raw = gathered(buffer, located, pa.string())
    if column_type.name in DATE_TYPES:
        return _dates(buffer, located, raw, wanted, zero_dates)
    return Decoded(_parsed(raw, wanted))


def gathered(buffer: bytearray, located: Field, kind: pa.DataType = _BINARY) -> pa.Array:
    """Copy one column's fields into an array; strings are not checked to be UTF-8."""
    rows = len(located.start)
    if rows == 0:
        return binaries_of([], kind)
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = located.start
    offsets[1::2] = located.start + located.length
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    with_gaps = pa.Array.from_buffers(kind, 2 * rows - 1, buffers)
    even = _even(rows)
    if located.null is not None:
        even = as_arrow(np.arange(0, 2 * rows, 2, dtype=np.int32), located.null, pa.int32())
    return with_gaps.take(even)


def _even(rows: int) -> pa.Array:
    """Return the even indexes for so many rows, as a part of a longer array that is cached."""
    return _even_places(-(-rows // _PLACES) * _PLACES).slice(0, rows)


@lru_cache(maxsize=16)
def _even_places(count: int) -> pa.Array:
    """Return the first even indexes, cached."""
    return as_arrow(np.arange(0, 2 * count, 2, dtype=np.int32), None, pa.int32())


_ASCII = 0x7F


def _text(raw: pa.Array) -> pa.Array:
    """Return binary values as strings; a value that is not UTF-8 is refused.

    ASCII is UTF-8 and seen at one glance over all values; else the cast looks at each.
    """
    buffers = raw.buffers()
    if buffers[2] is not None and buffers[2].size:
        data = np.frombuffer(buffers[2], np.uint8)
        if int(data.max()) <= _ASCII:
            return pa.Array.from_buffers(pa.string(), len(raw), buffers, offset=raw.offset)
    return _parsed(raw, pa.string())


def _parse(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse texts to numbers, dates or strings by Arrow."""
    if pa.types.is_float32(wanted):
        return text.cast(pa.float64()).cast(pa.float32())
    if pa.types.is_timestamp(wanted):
        return text.cast(pa.timestamp("us")).cast(wanted)
    return text.cast(wanted)


def _parsed(raw: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse texts by Arrow; the first one that fails raises `FieldRefusedError` with its row."""
    try:
        return _parse(raw, wanted)
    except pa.ArrowInvalid as error:
        row = _first_bad(raw, lambda part: _parse(part, wanted))
        raise FieldRefusedError(row, _reason(raw, row, wanted)) from error


def _reason(raw: pa.Array, row: int, wanted: pa.DataType) -> str:
    """Return the reason why a row's text does not fit its type."""
    shown = raw[row].as_buffer().to_pybytes()[:64].decode(errors="backslashreplace")
    return f"the server's text {shown!r} is no {wanted}"


def _converted(raw: pa.Array, charset: str) -> pa.Array:
    """Convert texts from a charset to UTF-8; the first that fails raises `FieldRefusedError`."""
    try:
        return to_utf8(raw, charset)
    except ValueRefusedError as error:
        row = _first_bad(raw, lambda part: to_utf8(part, charset))
        raise FieldRefusedError(row, error.what) from error


def _first_bad(raw: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> int:
    """Return the first row that does not parse, found by halving."""
    low, high = 0, len(raw)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(raw.slice(low, middle - low))
        except (pa.ArrowInvalid, ValueRefusedError):
            high = middle
        else:
            low = middle
    return low


def _dates(
    buffer: bytearray, located: Field, raw: pa.Array, wanted: pa.DataType, zero_dates: ZeroDates
) -> Decoded:
    """Parse dates; those that are no day of the calendar are treated by the policy."""
    try:
        return Decoded(_parse(raw, wanted))
    except pa.ArrowInvalid:
        data = np.frombuffer(buffer, np.uint8)
        no_day = no_day_in_text(data, located.start, located.length)
    if not no_day.any():
        return Decoded(_parsed(raw, wanted))
    if zero_dates is ZeroDates.FAIL:
        row = int(np.flatnonzero(no_day)[0])
        shown = raw[row].as_buffer().to_pybytes().decode(errors="backslashreplace")
        raise FieldRefusedError(row, f"{shown!r} is no day of the calendar")
    null = no_day if located.null is None else no_day | located.null
    kept = Field(located.start, located.length, null, short=False)
    return Decoded(_parsed(gathered(buffer, kept, pa.string()), wanted), nulled=int(no_day.sum()))


def _durations(buffer: bytearray, located: Field, fraction: int) -> pa.Array:
    """Parse TIME texts `[-]h[h]h:mm:ss[.ffffff]` to durations."""
    data = np.frombuffer(buffer, np.uint8)
    null = located.null
    rows = np.arange(len(located.start)) if null is None else np.flatnonzero(~null)
    micros = np.zeros(len(located.start), np.int64)
    if len(rows):
        micros[rows] = _microseconds(data, located.start[rows], located.length[rows], fraction)
        bad = np.flatnonzero(micros[rows] == _NO_TIME)
        if len(bad):
            row = int(rows[bad[0]])
            start, length = int(located.start[row]), int(located.length[row])
            shown = bytes(buffer[start : start + min(length, 64)])
            raise FieldRefusedError(row, f"the server's text {shown!r} is no TIME({fraction})")
    return as_arrow(micros, null, pa.duration("us"))


_NO_TIME = np.iinfo(np.int64).min
_HOUR_DIGITS = 3
_SHORTEST_TIME = 8


def _microseconds(data: ByteArray, start: IntArray, length: IntArray, fraction: int) -> IntArray:
    """Return the microseconds of TIME texts, `_NO_TIME` where a text has another form."""
    tail = fraction + 1 if fraction else 0
    negative = data[start] == ord("-")
    hours = length - tail - negative - len(":mm:ss")
    formed = (length >= _SHORTEST_TIME + tail) & (hours >= 1) & (hours <= _HOUR_DIGITS)
    end = start + length

    def digit(from_end: int) -> IntArray:
        nonlocal formed
        value: IntArray = data[np.maximum(end - from_end, 0)].astype(np.int64) - ord("0")
        formed &= (value >= 0) & (value <= 9)
        return value

    total = np.zeros(len(start), np.int64)
    for digit_number in range(fraction):
        total += digit(fraction - digit_number) * 10 ** (5 - digit_number)
    seconds = digit(tail + 2) * 10 + digit(tail + 1)
    minutes = digit(tail + 5) * 10 + digit(tail + 4)
    hour = np.zeros(len(start), np.int64)
    for digit_number in range(_HOUR_DIGITS):
        present = hours > digit_number
        at = np.where(present, end - tail - 7 - digit_number, start + length - 1)
        value = data[at].astype(np.int64) - ord("0")
        formed &= ~present | ((value >= 0) & (value <= 9))
        hour += np.where(present, value, 0) * 10**digit_number
    formed &= data[np.maximum(end - tail - 3, 0)] == ord(":")
    formed &= data[np.maximum(end - tail - 6, 0)] == ord(":")
    total += (hour * 3600 + minutes * 60 + seconds) * 1_000_000
    signed: IntArray = np.where(formed, np.where(negative, -total, total), _NO_TIME)
    return signed
