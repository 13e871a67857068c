"""Row images read by mysql-replication's event classes, with its mis-decoded types put right.

The library walks the row events; how one column's bytes become a value is decided here, because
its own answers are wrong or lossy for many types: signs of negative times, zero dates, YEAR 0,
BIT, BINARY padding, empty binaries, SET, ENUM and CHAR in charsets that Python reads otherwise.
What comes out are the scalars of the value model. A type or charset that is not known is refused
by name; nothing is guessed.

The library is untyped, so `Any` is confined to this module and `library_decoder`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pymysqlreplication.constants import CHARSET, FIELD_TYPE
from pymysqlreplication.json_binary import parse_json
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    MetadataFieldType,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from airflow_cdc_provider.columnar.value_model import ZeroDates
from airflow_cdc_provider.core.errors import UnknownTypeError, ValueRefusedError
from airflow_cdc_provider.core.table_schema import Column, ColumnType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BINARY_COLLATION = 63
_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
}
# The server's latin1 is cp1252 with the five holes filled by the control characters.
_LATIN1_HOLES = {code: chr(code) for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_LATIN1 = [
    _LATIN1_HOLES.get(code) or bytes([code]).decode("cp1252", "replace") for code in range(256)
]
_INTEGERS = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
}
_PLAIN = {
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
}
_FRACTIONAL = {
    FIELD_TYPE.TIME2: "time",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
}


class CapturedTableMap(TableMapEvent):  # type: ignore[misc]
    """A table map that keeps ENUM and SET members as bytes and steps over VECTOR's dimensions."""

    def _read_type_values(self, length: int) -> list[list[bytes]]:
        found = []
        until = self.packet.read_bytes + length
        while self.packet.read_bytes < until:
            count = self.packet.read_length_coded_binary()
            members = []
            for _ in range(count):
                size = self.packet.read_length_coded_binary()
                members.append(self.packet.read(size) if size else b"")
            found.append(members)
        return found

    def _get_optional_meta_data(self) -> Any:
        known = {kind.value for kind in MetadataFieldType}
        # The library raises on a kind it does not know: cut the block where such a kind begins.
        start = self.packet.read_bytes
        available = self.packet.bytes_to_read()
        block = self.packet.read(available)
        kept, at, end = bytearray(), 0, len(block) - 4
        while at < end:
            length, size = _length_coded(block, at + 1)
            after = at + 1 + size + length
            if block[at] in known:
                kept += block[at:after]
            at = after
        self.packet.unread(bytes(kept))
        self.packet.read_bytes = start
        # `bytes_to_read` looks at the packet below, which is at its end: drive the loop here.
        below = self.packet.bytes_to_read
        self.packet.bytes_to_read = lambda: start + len(kept) + 4 - self.packet.read_bytes
        try:
            return super()._get_optional_meta_data()
        finally:
            self.packet.bytes_to_read = below


def _length_coded(block: bytes, at: int) -> tuple[int, int]:
    first = block[at]
    width = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if width == 0:
        return first, 1
    return int.from_bytes(block[at + 1 : at + 1 + width], "little"), 1 + width


def captured_columns(table_map: Any, where: str) -> tuple[Column, ...]:
    """Return the columns a table map describes; the log must carry full metadata."""
    metadata = table_map.optional_metadata
    names = metadata.column_name_list
    collations = iter(metadata.charset_collation_list or ())
    list_collations = iter(metadata.enum_and_set_collation_list or ())
    columns = []
    for number, (name, column) in enumerate(zip(names, table_map.columns, strict=True)):
        unsigned = bool(metadata.unsigned_column_list and metadata.unsigned_column_list[number])
        if table_map._is_character_column(column.type, dbms=table_map.dbms):  # noqa: SLF001
            column.charset = _charset(next(collations), table_map.dbms, f"{where}.{name}")
        elif column.type in {FIELD_TYPE.ENUM, FIELD_TYPE.SET}:
            column.charset = _charset(next(list_collations), table_map.dbms, f"{where}.{name}")
        columns.append(Column(name, _column_type(column, unsigned, f"{where}.{name}")))
    return tuple(columns)


def _column_type(column: Any, unsigned: bool, where: str) -> ColumnType:  # noqa: FBT001
    kind = column.type
    if kind in _INTEGERS:
        return ColumnType(_INTEGERS[kind], unsigned=unsigned)
    if kind in _PLAIN:
        return ColumnType(_PLAIN[kind])
    if kind in _FRACTIONAL:
        return ColumnType(_FRACTIONAL[kind], fraction=column.fsp)
    if kind == FIELD_TYPE.NEWDECIMAL:
        return ColumnType("decimal", precision=column.precision, scale=column.decimals)
    if kind == FIELD_TYPE.BIT:
        return ColumnType("bit", length=column.bits)
    if kind in {FIELD_TYPE.ENUM, FIELD_TYPE.SET}:
        members = column.enum_values[1:] if kind == FIELD_TYPE.ENUM else column.set_values
        texts = tuple(_text(member, column.charset, where) for member in members)
        name = "enum" if kind == FIELD_TYPE.ENUM else "set"
        return ColumnType(name, members=texts, charset=column.charset)
    names = {
        FIELD_TYPE.VARCHAR: ("varbinary", "varchar"),
        FIELD_TYPE.VAR_STRING: ("varbinary", "varchar"),
        FIELD_TYPE.STRING: ("binary", "char"),
        FIELD_TYPE.BLOB: ("longblob", "longtext"),
    }.get(kind)
    if names is None:
        raise UnknownTypeError(
            f"column type number {kind} is not understood by the fall-back decoder",
            where,
            "its values could be copied wrong",
            "leave the table out",
        )
    binary = column.charset == "binary"
    length = getattr(column, "max_length", None)
    return ColumnType(names[0] if binary else names[1], length=length, charset=column.charset)


def _charset(collation: int, dbms: str, where: str) -> str:
    if collation == _BINARY_COLLATION:
        return "binary"
    found = CHARSET.charset_by_id(collation, dbms) or CHARSET.charset_by_id(str(collation), dbms)
    if found is None:
        raise UnknownTypeError(
            f"collation number {collation} is not known",
            where,
            "its text could be read wrong",
            "give the column a collation of utf8mb4",
        )
    return str(found.name)


def _text(octets: bytes, charset: str, where: str) -> str:
    if charset == "latin1":
        return "".join([_LATIN1[octet] for octet in octets])
    codec = _CODECS.get(charset)
    if codec is None:
        raise UnknownTypeError(
            f"charset {charset} is not known to the fall-back decoder",
            where,
            "its text could be read wrong",
            "let the column decoder read this table",
        )
    try:
        return octets.decode(codec)
    except UnicodeDecodeError as error:
        raise ValueRefusedError(
            f"bytes that are no {charset}: {octets[:40].hex()}",
            where,
            "the text would be changed",
            "repair the row at the source",
        ) from error


class _ExactValues:
    """Mixed into the library's row events: reads one column's value of the value model."""

    packet: Any
    table_map: Mapping[int, Any]
    table_id: int
    schema: str
    table: str
    zero_dates: ZeroDates = ZeroDates.FAIL

    def _RowsEvent__read_values_name(  # noqa: N802 - the library's name and arguments
        self,
        column: Any,
        null_bitmap: bytes,
        null_bitmap_index: int,
        _is_partial: bool,  # noqa: FBT001
        _cols_bitmap: bytes,
        unsigned: bool,  # noqa: FBT001
        _number: int,
    ) -> Any:
        if null_bitmap[null_bitmap_index // 8] & (1 << (null_bitmap_index % 8)):
            return None
        where = f"{self.schema}.{self.table}.{column.name}"
        kind = column.type
        if kind in _WIDTHS:
            return int.from_bytes(self.packet.read(_WIDTHS[kind]), "little", signed=not unsigned)
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self.packet, column, where, self.zero_dates)
        # DECIMAL, FLOAT and DOUBLE are right in the library.
        return super()._RowsEvent__read_values_name(  # type: ignore[misc]
            column, null_bitmap, null_bitmap_index, _is_partial, _cols_bitmap, unsigned, _number
        )


class ExactWriteRows(_ExactValues, WriteRowsEvent):  # type: ignore[misc]
    """Inserted rows."""


class ExactUpdateRows(_ExactValues, UpdateRowsEvent):  # type: ignore[misc]
    """Updated rows."""


class ExactDeleteRows(_ExactValues, DeleteRowsEvent):  # type: ignore[misc]
    """Deleted rows."""


_WIDTHS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}


def _read_year(packet: Any, _column: Any, _where: str, _policy: ZeroDates) -> int:
    stored = packet.read(1)[0]
    return 1900 + stored if stored else 0


def _read_bit(packet: Any, column: Any, _where: str, _policy: ZeroDates) -> int:
    return int.from_bytes(packet.read(column.bytes), "big")


def _read_enum(packet: Any, column: Any, where: str, _policy: ZeroDates) -> str:
    index = packet.read_uint_by_size(column.size)
    return _text(column.enum_values[index], column.charset, where) if index else ""


def _read_set(packet: Any, column: Any, where: str, _policy: ZeroDates) -> str:
    mask = packet.read_uint_by_size(column.size)
    chosen = [member for bit, member in enumerate(column.set_values) if mask & (1 << bit)]
    return ",".join(_text(member, column.charset, where) for member in chosen)


def _read_string(packet: Any, column: Any, where: str, _policy: ZeroDates) -> str | bytes:
    octets = packet.read_length_coded_pascal_string(2 if column.max_length > 255 else 1)
    octets = octets or b""
    if column.charset != "binary":
        return _text(octets, column.charset, where)
    if column.type == FIELD_TYPE.STRING:
        return bytes(octets.ljust(column.max_length, b"\0"))
    return bytes(octets)


def _read_blob(packet: Any, column: Any, where: str, _policy: ZeroDates) -> str | bytes:
    octets = packet.read_length_coded_pascal_string(column.length_size) or b""
    if column.type == FIELD_TYPE.GEOMETRY or column.charset == "binary":
        return bytes(octets)
    return _text(octets, column.charset, where)


def _read_date(packet: Any, _column: Any, where: str, policy: ZeroDates) -> Any:
    stored = int.from_bytes(packet.read(3), "little")
    year, month, day = stored >> 9, (stored >> 5) & 15, stored & 31
    text = f"{year:04d}-{month:02d}-{day:02d}"
    if policy is ZeroDates.TEXT:
        return text
    try:
        return date(year, month, day)
    except ValueError:
        return _impossible(text, where, policy)


def _fraction(packet: Any, digits: int) -> int:
    size = (digits + 1) // 2
    if size == 0:
        return 0
    stored = int.from_bytes(packet.read(size), "big")
    return int(stored * 10 ** (6 - 2 * size))


def _with_fraction(text: str, micros: int, digits: int) -> str:
    return f"{text}.{micros:06d}"[: len(text) + 1 + digits] if digits else text


def _read_datetime(packet: Any, column: Any, where: str, policy: ZeroDates) -> Any:
    stored = int.from_bytes(packet.read(5), "big") - 0x8000000000
    micros = _fraction(packet, column.fsp)
    days, clock = stored >> 17, stored & 0x1FFFF
    year, month = divmod(days >> 5, 13)
    day = days & 31
    hour, minute, second = clock >> 12, (clock >> 6) & 63, clock & 63
    text = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
    text = _with_fraction(text, micros, column.fsp)
    if policy is ZeroDates.TEXT:
        return text
    try:
        return datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001 - wall clock
    except ValueError:
        return _impossible(text, where, policy)


def _read_timestamp(packet: Any, column: Any, where: str, policy: ZeroDates) -> Any:
    seconds = int.from_bytes(packet.read(4), "big")
    micros = _fraction(packet, column.fsp)
    if seconds == 0 and micros == 0:  # the epoch itself cannot be stored
        text = _with_fraction("0000-00-00 00:00:00", 0, column.fsp)
        return text if policy is ZeroDates.TEXT else _impossible(text, where, policy)
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    if policy is ZeroDates.TEXT:
        return _with_fraction(moment.strftime("%Y-%m-%d %H:%M:%S"), micros, column.fsp)
    return moment


def _read_time(packet: Any, column: Any, _where: str, _policy: ZeroDates) -> timedelta:
    # One signed number over the whole width: a negative time borrows from its seconds.
    size = (column.fsp + 1) // 2
    stored = int.from_bytes(packet.read(3 + size), "big") - (0x800000 << (8 * size))
    magnitude = abs(stored)
    clock, fraction = magnitude >> (8 * size), magnitude & ((1 << (8 * size)) - 1)
    micros = fraction * 10 ** (6 - 2 * size)
    length = timedelta(
        hours=(clock >> 12) & 0x3FF,
        minutes=(clock >> 6) & 63,
        seconds=clock & 63,
        microseconds=micros,
    )
    return -length if stored < 0 else length


def _read_json(packet: Any, column: Any, where: str, _policy: ZeroDates) -> str:
    octets = packet.read(packet.read_uint_by_size(column.length_size))
    if not octets:
        return "null"
    return json.dumps(_plain_json(parse_json(octets[0], octets[1:]), where), ensure_ascii=False)


def _plain_json(value: Any, where: str) -> Any:
    """Return JSON whose text is the same in Python and in MySQL; refuse the rest by name."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_plain_json(part, where) for part in value]
    if isinstance(value, dict):
        return {_plain_json(key, where): _plain_json(part, where) for key, part in value.items()}
    raise UnknownTypeError(
        f"JSON with a {type(value).__name__} in it is not read by the fall-back decoder",
        where,
        "its text could differ from the server's",
        "let the column decoder read this table",
    )


def _impossible(text: str, where: str, policy: ZeroDates) -> None:
    if policy is ZeroDates.NULL:
        return
    raise ValueRefusedError(
        f"the date {text!r} is no day of the calendar",
        where,
        "it would be stored as something else",
        "choose a policy for zero dates, or repair the row at the source",
    )


_READERS = {
    FIELD_TYPE.YEAR: _read_year,
    FIELD_TYPE.BIT: _read_bit,
    FIELD_TYPE.ENUM: _read_enum,
    FIELD_TYPE.SET: _read_set,
    FIELD_TYPE.VARCHAR: _read_string,
    FIELD_TYPE.VAR_STRING: _read_string,
    FIELD_TYPE.STRING: _read_string,
    FIELD_TYPE.BLOB: _read_blob,
    FIELD_TYPE.GEOMETRY: _read_blob,
    FIELD_TYPE.DATE: _read_date,
    FIELD_TYPE.DATETIME2: _read_datetime,
    FIELD_TYPE.TIMESTAMP2: _read_timestamp,
    FIELD_TYPE.TIME2: _read_time,
    FIELD_TYPE.JSON: _read_json,
}
