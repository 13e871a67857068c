"""Decodes row events of few rows, one cell at a time, to Python values.

The vector steps of `row_walk` and the modules of cells take some microseconds each for one value as
for a thousand. Here a cell takes a fraction of one, and its value is the same. What needs more than
that, and all that is out of the ordinary (a zero date, a byte that is no text, an image that is not
whole), is not decided here: `NotFewError` sends the events to the vector steps, which have the
policies and name what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.few_changes import FewChange, Row, Value
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import UNREADABLE
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import json_text
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire
from airflow_cdc_provider.systems.mysql.dialect.charsets import UTF8_CHARSETS, decode_member

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import TableMap

Read = Callable[[bytes, int, int], Value]
"""Reads the cell at an offset; the last number is its length in bytes."""

OPS = {
    int(EventType.WRITE_ROWS_V1): int(Op.INSERT),
    int(EventType.WRITE_ROWS): int(Op.INSERT),
    int(EventType.UPDATE_ROWS_V1): int(Op.UPDATE),
    int(EventType.UPDATE_ROWS): int(Op.UPDATE),
    int(EventType.DELETE_ROWS_V1): int(Op.DELETE),
    int(EventType.DELETE_ROWS): int(Op.DELETE),
}
"""By the types of row events that are read here."""

_SECOND = 1_000_000
_DAY_SECONDS = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_INSERT, _UPDATE = int(Op.INSERT), int(Op.UPDATE)
_WITH_FACTS = int(EventType.WRITE_ROWS)
"""From this type on there are extra facts behind the table id."""
_TWO_BYTES = 0xFC
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


class NotFewError(Exception):
    """These row events are not plain: the vector steps must decode them."""


class FewRows:
    """Decodes few row events of one table, value by value."""

    def __init__(self, table_map: TableMap, schema: pa.Schema) -> None:
        self.schema = schema
        columns = len(table_map.wires)
        self._columns = columns
        self._bitmap_bytes = (columns + 7) // 8
        self._whole = (1 << columns) - 1
        self._cells: list[tuple[int, int, int, Read]] | None = _cells(table_map, schema)
        """Of each column: its bit in the bitmap, width, bytes of its length, what reads it."""

    @property
    def are_read(self) -> bool:
        """Tell whether all columns have types that can be decoded value by value."""
        return self._cells is not None

    def read(self, data: bytes, start: int, end: int) -> list[FewChange]:
        """Return the changes of a row event, which comes without its checksum."""
        kind = data[start + 4]
        at = start + HEADER_BYTES + 8
        if kind >= _WITH_FACTS:
            at += int.from_bytes(data[at : at + 2], "little")
        columns, at = data[at], at + 1
        if columns == _TWO_BYTES:
            columns, at = int.from_bytes(data[at : at + 2], "little"), at + 2
        op = OPS[kind]
        for _ in range(2 if op == _UPDATE else 1):
            present = int.from_bytes(data[at : at + self._bitmap_bytes], "little")
            if present & self._whole != self._whole:
                raise NotFewError
            at += self._bitmap_bytes
        if columns != self._columns:
            raise NotFewError
        try:
            images = self._images(data, at, end)
        except (CdcError, *UNREADABLE):
            raise NotFewError from None
        return _paired(op, images)

    def _images(self, data: bytes, at: int, end: int) -> list[Row]:
        """Decode the row images from an offset to the event's end."""
        if self._cells is None:
            raise NotFewError
        images: list[Row] = []
        size = self._bitmap_bytes
        while at < end:
            nulls = int.from_bytes(data[at : at + size], "little")
            at += size
            row: list[Value] = []
            for bit, width, prefix, read in self._cells:
                if nulls & bit:
                    row.append(None)
                    continue
                length = width
                if prefix:
                    length = int.from_bytes(data[at : at + prefix], "little")
                    at += prefix
                row.append(read(data, at, length))
                at += length
            images.append(tuple(row))
        if at != end:
            raise NotFewError
        return images


def _paired(op: int, images: list[Row]) -> list[FewChange]:
    """Return the changes of an event's images, paired if it is an update."""
    if op == _UPDATE:
        if len(images) % 2:
            raise NotFewError
        return [FewChange(op, *pair) for pair in zip(images[0::2], images[1::2], strict=True)]
    if op == _INSERT:
        return [FewChange(op, None, image) for image in images]
    return [FewChange(op, image, None) for image in images]


def _cells(table_map: TableMap, schema: pa.Schema) -> list[tuple[int, int, int, Read]] | None:
    """Return each column's bit, width, length bytes and reader; None if one has no reader."""
    if table_map.row_end is not None:  # what counts of its changes is decided by columns
        return None
    found = []
    cells = zip(table_map.wires, table_map.columns, schema.types, strict=True)
    for number, (wire, column, wanted) in enumerate(cells):
        read = _reader(wire, column, wanted)
        if read is None:
            return None
        found.append((1 << number, wire.width, wire.prefix, read))
    return found


def _reader(wire: Wire, column: Column, wanted: pa.DataType) -> Read | None:
    """Return the function that decodes a column's cell; None if only vector steps can."""
    if wire.compressed or wire.is_old:
        return None
    if wire.kind in _TEMPORAL and pa.types.is_string(wanted):
        return None
    match wire.kind:
        case "integer":
            return _unsigned if pa.types.is_unsigned_integer(wanted) else _signed
        case "real":
            return _reals(wire)
        case "decimal":
            return _decimals(wire)
        case "bit":
            return _bits
        case "enum":
            return _enums(column)
        case "set":
            return _sets(column)
        case "char" | "varchar" | "blob" | "json" | "geometry" | "vector":
            return _variable(wire, column)
        case _:
            return _TEMPORAL[wire.kind](wire) if wire.kind in _TEMPORAL else None


# --- numbers --------------------------------------------------------------------------------------


def _signed(data: bytes, at: int, width: int) -> int:
    """Decode a signed integer."""
    return int.from_bytes(data[at : at + width], "little", signed=True)


def _unsigned(data: bytes, at: int, width: int) -> int:
    """Decode an unsigned integer."""
    return int.from_bytes(data[at : at + width], "little")


def _bits(data: bytes, at: int, width: int) -> int:
    """Decode BIT, whose bytes are big-endian."""
    return int.from_bytes(data[at : at + width], "big")


def _reals(wire: Wire) -> Read:
    """Return the decoder of a FLOAT or DOUBLE cell."""
    unpack = struct.Struct("<f" if wire.width == 4 else "<d").unpack_from
    return lambda data, at, _: unpack(data, at)[0]


def _decimals(wire: Wire) -> Read:
    """Return the decoder of a packed DECIMAL cell to an integer without its point."""
    whole, scale = wire.length - wire.scale, wire.scale
    digits = (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9)
    groups: list[tuple[int, int, int]] = []
    left = 8 * wire.width
    for count in digits:
        if count:
            bits = 8 * _DIGIT_BYTES[count]
            left -= bits
            groups.append((left, (1 << bits) - 1, 10**count))
    sign = 1 << (8 * wire.width - 1)
    every = (1 << (8 * wire.width)) - 1

    def read(data: bytes, at: int, width: int) -> int:
        packed = int.from_bytes(data[at : at + width], "big") ^ sign
        is_negative = packed & sign
        if is_negative:
            packed ^= every
        size = 0
        for shift, mask, limit in groups:
            group = packed >> shift & mask
            if group >= limit:
                raise NotFewError
            size = size * limit + group
        return -size if is_negative else size

    return read


# --- dates and times ------------------------------------------------------------------------------


def _year(data: bytes, at: int, _: int) -> int:
    """Decode YEAR."""
    stored = int(data[at])
    return stored + 1900 if stored else 0


def _day(months: int, in_year: int, day: int) -> int:
    """Return the days since 1970; a day that is none, or in year 0, raises ValueError."""
    return date(months // in_year, months % in_year, day).toordinal() - _EPOCH


def _date(data: bytes, at: int, _: int) -> int:
    """Decode DATE to days since 1970."""
    packed = int.from_bytes(data[at : at + 3], "little")
    return _day(packed >> 5, 16, packed & 31)


def _fraction(wire: Wire, behind: int) -> Callable[[bytes, int], int]:
    """Return the decoder of a fraction that follows `behind` bytes, to microseconds."""
    width = wire.width - behind
    factor = 10 ** (6 - 2 * width)
    if not width:
        return lambda _data, _at: 0
    return lambda data, at: int.from_bytes(data[at + behind : at + behind + width], "big") * factor


def _datetimes(wire: Wire) -> Read:
    """Return the decoder of a DATETIME cell to microseconds since 1970."""
    fraction = _fraction(wire, 5)

    def read(data: bytes, at: int, _: int) -> int:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        day = _day(packed >> 22, 13, packed >> 17 & 31)
        second = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        return (day * _DAY_SECONDS + second) * _SECOND + fraction(data, at)

    return read


def _timestamps(wire: Wire) -> Read:
    """Return the decoder of a TIMESTAMP cell to microseconds since 1970."""
    fraction = _fraction(wire, 4)

    def read(data: bytes, at: int, _: int) -> int:
        value = int.from_bytes(data[at : at + 4], "big") * _SECOND + fraction(data, at)
        if not value:  # the zero date
            raise NotFewError
        return value

    return read


def _times(wire: Wire) -> Read:
    """Return the decoder of a TIME cell to microseconds."""
    extra = wire.width - 3
    zero, factor = 0x800000 << (8 * extra), int(10 ** (6 - 2 * extra))

    def read(data: bytes, at: int, width: int) -> int:
        packed = int.from_bytes(data[at : at + width], "big") - zero
        size = abs(packed)
        whole, part = size >> (8 * extra), size & ((1 << (8 * extra)) - 1)
        second = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        value = second * _SECOND + part * factor
        return -value if packed < 0 else value

    return read


_TEMPORAL: dict[str, Callable[[Wire], Read]] = {
    "date": lambda _: _date,
    "datetime": _datetimes,
    "timestamp": _timestamps,
    "time": _times,
    "year": lambda _: _year,
}


# --- texts and bytes ------------------------------------------------------------------------------


def _enums(column: Column) -> Read:
    """Return the decoder of an ENUM cell to its member's name."""
    members = [name.encode() for name in (column.type.no_member, *column.type.members)]
    return lambda data, at, width: members[int.from_bytes(data[at : at + width], "little")]


def _sets(column: Column) -> Read:
    """Return the decoder of a SET cell to its members' names."""
    members = column.type.members

    def read(data: bytes, at: int, width: int) -> bytes:
        mask = int.from_bytes(data[at : at + width], "little")
        if mask >> len(members):
            raise NotFewError
        return ",".join([name for bit, name in enumerate(members) if mask >> bit & 1]).encode()

    return read


_OF_MARIADB = frozenset({"uuid", "inet4", "inet6"})
"""Types that read as text and lie in the log as bytes."""


def _variable(wire: Wire, column: Column) -> Read | None:
    """Return the decoder of a text, bytes or JSON cell; None for UUID and INET."""
    kind = column.type
    if kind.name in _OF_MARIADB:
        return None
    if kind.name == "binary":
        return _padded(wire.length)
    if kind.name == "json":
        return lambda data, at, length: json_text(data[at : at + length]).encode()
    if kind.charset is None or kind.charset == "binary":
        return lambda data, at, length: data[at : at + length]
    return _texts(kind.charset)


def _padded(width: int) -> Read:
    """Return the decoder of a BINARY cell, with the zeros at its end put back."""

    def read(data: bytes, at: int, length: int) -> bytes:
        if length > width:
            raise NotFewError
        return data[at : at + length].ljust(width, b"\0")

    return read


def _texts(charset: str) -> Read:
    """Return the decoder of a text cell to UTF-8."""
    if charset not in UTF8_CHARSETS:
        return lambda data, at, length: decode_member(data[at : at + length], charset).encode()

    def read(data: bytes, at: int, length: int) -> bytes:
        text = data[at : at + length]
        if not text.isascii():
            text.decode()
        return text

    return read
