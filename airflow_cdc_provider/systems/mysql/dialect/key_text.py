"""Keys that people write or that verify names, in the form that the servers' own keys have here.

A bound that means one thing to the server and another to code would leave rows out, so whatever
is not plainly a value of its column is refused: a blank beside it, a number out of range, a
fraction that the column does not keep, a day that is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal
from typing import assert_never

from airflow_cdc_provider.core.keys import Key, KeyKind, KeyPart, bounding_whole
from airflow_cdc_provider.core.splits import KeyList
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.core.windows import Clock

_LONGEST = 8192  # InnoDB's keys have 3072 bytes
_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CLOCKS: Mapping[str, Clock] = {
    "timestamp": Clock.INSTANT,
    "datetime": Clock.WALL,
    "date": Clock.DAY,
    **dict.fromkeys(_BITS, Clock.COUNT),
}
_YEARS = range(1901, 2156)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_BYTES = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?)?"
)
_SAY_THEIR_VALUE = frozenset({"uuid", "inet4", "inet6"})
"""Types that cannot bound a range, and whose texts the server takes for their values."""
_EXACT = Context(prec=100)  # the servers keep 65 digits
_STAMPS = "1970-01-01 00:00:01", "2038-01-19 03:14:07"
"""What every server's TIMESTAMP can hold, in UTC."""


def key_of(schema: TableSchema, texts: Sequence[str]) -> Key:
    """Parse a key, or its first parts; `ValueError` says which part is wrong."""
    names = schema.primary_key
    if not 1 <= len(texts) <= len(names):
        raise ValueError(f"{len(texts)} parts; the key has {len(names)}: {', '.join(names)}")
    columns = map(schema.column, names)
    pairs = zip(columns, schema.key_kinds, texts, strict=False)
    return tuple(_part(column, kind, text) for column, kind, text in pairs)


def key_list(schema: TableSchema, keys: Sequence[Key]) -> KeyList | None:
    """Return a list of the keys that verify printed.

    None if a text may not be its column's value.
    """
    types = {schema.column(name).type.name for name in schema.primary_key}
    say = bounding_whole(schema.key_kinds) or types <= _SAY_THEIR_VALUE
    return KeyList(schema.primary_key, tuple(keys)) if keys and say else None


def clock_of(column: Column) -> Clock | None:
    """Return how a column tells time (instant, wall clock, day or count); None if it does not."""
    return _CLOCKS.get(column.type.name)


def value_of(column: Column, text: str) -> KeyPart:
    """Parse a value of a column; `ValueError` says what is wrong with it."""
    return _part(column, column.type.key_kind, text)


def _part(column: Column, kind: KeyKind, text: str) -> KeyPart:
    """Parse one part of a key by its kind."""
    try:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        match kind:
            case KeyKind.INTEGER:
                return _integer(column.type, text)
            case KeyKind.DECIMAL:
                return _decimal(column.type, text)
            case KeyKind.TEMPORAL:
                return _temporal(column.type, text)
            case KeyKind.BINARY:
                return _binary(column.type, text)
            case KeyKind.TEXT | KeyKind.OTHER:
                raise ValueError("its order is the server's own")
            case _:
                assert_never(kind)
    except ValueError as error:
        raise ValueError(
            f"{text[:80]!r} is no {column.type.name} for {column.name}: {error}"
        ) from None


def _integer(column: ColumnType, text: str) -> int:
    """Parse an integer within its column's range."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("write a whole number")
    number = int(text)
    if column.name == "year":
        within = number == 0 or number in _YEARS  # the servers read 5 as 2005
    else:
        bits = _BITS[column.name]
        least = 0 if column.unsigned else -(1 << (bits - 1))
        within = least <= number < least + (1 << bits)
    if not within:
        raise ValueError("out of the column's range; an end of a range of keys may be left open")
    return number


def _decimal(column: ColumnType, text: str) -> Decimal:
    """Parse a decimal within its column's range and scale."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError("write a decimal number")
    scale, exact = column.scale or 0, Decimal(text)
    if exact.copy_abs() >= 10 ** ((column.precision or 0) - scale):
        raise ValueError("out of the column's range; an end of a range of keys may be left open")
    number = exact.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if number != exact:
        raise ValueError(f"the column keeps {scale} digits behind the point")
    return _EXACT.add(number, 0)  # no negative zero


def _temporal(column: ColumnType, text: str) -> str:
    """Parse a date or time that its column can hold, in the server's form."""
    if column.name == "date":
        if not _DATE.fullmatch(text):
            raise ValueError("write YYYY-MM-DD")
        return _day(text)
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("write YYYY-MM-DD, or YYYY-MM-DD hh:mm:ss with a fraction if need be")
    day, time, fraction = found[1], found[2] or "00:00:00", (found[3] or ".")[1:]
    if fraction[column.fraction :].strip("0"):
        raise ValueError(f"the column keeps {column.fraction} digits of a second's fraction")
    whole = f"{_day(day)} {_valid(time, '%H:%M:%S', 'there is no such time of day')}"
    if column.name == "timestamp" and not _STAMPS[0] <= whole <= _STAMPS[1]:
        raise ValueError("out of the column's range; an end of a range of keys may be left open")
    kept = fraction[: column.fraction].ljust(column.fraction, "0")
    return f"{whole}.{kept}" if kept else whole


def _day(text: str) -> str:
    """Return a date's text; one that is no day is refused."""
    return _valid(text, "%Y-%m-%d", "there is no such day")


def _valid(text: str, form: str, otherwise: str) -> str:
    """Return a text if it has this date format, else raise `ValueError`."""
    try:
        datetime.strptime(f"{text}+0000", f"{form}%z")
    except ValueError:
        raise ValueError(otherwise) from None
    return text


def _binary(column: ColumnType, text: str) -> bytes:
    """Parse hexadecimal digits to bytes that their column can hold."""
    found = _BYTES.fullmatch(text)
    if found is None:
        raise ValueError("write 0x and pairs of hexadecimal digits")
    value = bytes.fromhex(found[1])
    length = column.length or 0
    if len(value) > length:
        raise ValueError(f"the column holds {length} bytes")
    # the servers pad BINARY with zeros, and leave VARBINARY as it is
    return value.ljust(length, b"\0") if column.name == "binary" else value
