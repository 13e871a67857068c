"""One canonical text for a row, computed by each server itself, so that only hashes travel.

Two rows are the same when their texts are, whatever family, charset or column type holds them:

- ENUM as its text, with a mark for index 0, which reads as the empty text but is no member;
- numbers by value, without zero padding; FLOAT is widened to DOUBLE;
- DOUBLE by its bits, taken out of a point's binary form: each family prints doubles in its own way,
  and MySQL cuts the digits of one that meets other texts. -0 is 0, as for any other comparison;
- texts as bytes of UTF-8, unless both sides keep them in one charset in which one text is always
  the same bytes (in `sjis` it is not: it has two backslashes);
- temporals as the servers write them, zero and impossible dates included, in UTC; where one side
  keeps more digits of a second, without those that are zeros;
- binary, GEOMETRY and VECTOR as bytes; JSON as the text the server gives out;
- UUID and addresses as their texts, which have no comma and so need no length.

NULL is not the empty text: each text carries a mark for every NULL, and the lengths of its parts,
so that no two rows run together to one text. Long values take part by their own hash, which keeps
the text small: a server answers NULL for a text larger than `max_allowed_packet`. The hash is
SHA-2, because MySQL 9.6 and later have MD5 only as a component.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.columns.verify_port import SHOWN_CHARACTERS
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.keys import KeyKind, KeyPart
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.charsets import is_one_to_one
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import TEXT_LENGTHS

_FLOATS = {"float", "double"}
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year", "decimal"}
_DATES = {"date", "datetime", "timestamp"}
_TEMPORALS = {*_DATES, "time"}
_LENGTHS = (31, 2, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of the months; that of the second depends on the year."""
_SHORT_TEXTS = {"char", "varchar", "enum", "set"}
_LONG_TEXTS = {"tinytext", "text", "mediumtext", "longtext", "json"}
_SHORT_BINARIES = {"binary", "varbinary"}
_UTF8 = {"utf8mb4", "utf8mb3", "utf8", "ascii"}

Pairs = dict[str, tuple[Column, Column]]
"""By name in lower case: this side's column and the other side's."""


@dataclass(frozen=True, slots=True)
class ColumnText:
    """SQL expressions for one column: the hash of its value, and the value as people read it."""

    column: str
    """Its name in lower case."""
    identity: str
    """SHA-256 of its canonical text, empty for NULL."""
    shown: str
    """What people are shown of it."""


@dataclass(frozen=True, slots=True)
class RowText:
    """SQL expressions for one side's rows: hash, key, size and columns."""

    hash: str
    """SHA-256 of the row's canonical text, in hexadecimal digits."""
    number: str
    """The first 64 bits of that, to be added up without regard to order."""
    key: tuple[str, ...]
    """The key's columns: as they are where they can bound a range, else as canonical text."""
    floats: frozenset[int]
    """The places of the key's FLOATs and DOUBLEs, whose canonical text is their bits."""
    size: str
    """About the bytes a row holds."""
    columns: tuple[ColumnText, ...]
    may_be_unmade: str = ""
    """True for a row whose text the server cannot make; empty where every text can be made."""

    def key_read(self, key: Sequence[KeyPart]) -> tuple[KeyPart, ...]:
        """Return a key as people read it, from what the server returned."""
        return tuple(
            _digits(str(part)) if at in self.floats else part for at, part in enumerate(key)
        )

    def key_asked(self, key: Sequence[KeyPart]) -> tuple[KeyPart, ...]:
        """Return a key as the server expects it: the inverse of `key_read`."""
        return tuple(
            float_bits(str(part)) if at in self.floats else part for at, part in enumerate(key)
        )


def row_texts(
    source: TableSchema, sink: TableSchema, *, nulls_dates: bool = False
) -> tuple[RowText, RowText]:
    """Return the SQL expressions for both sides' rows, over the source's copied columns.

    With `nulls_dates` dates of the source that are no day of the calendar are NULL.
    """
    theirs = {column.name.casefold(): column for column in sink.columns}
    pairs = [(column, theirs[column.name.casefold()]) for column in source.copied_columns]
    here = _row_text(source, pairs, nulled_dates(source) if nulls_dates else frozenset())
    there = _row_text(source, [(right, left) for left, right in pairs])
    return here, there


def key_texts(pairs: Sequence[tuple[Column, Column]]) -> tuple[str, ...]:
    """Return the SQL expressions of a key as texts that both sides make alike."""
    return tuple(f"CAST({_key_value(own, other)} AS CHAR)" for own, other in pairs)


def float_bits(digits: str) -> str:
    """Return the canonical text of a FLOAT or DOUBLE in a key, which is its bits, from digits."""
    return struct.pack("<d", float(digits)).hex().upper()


def nulled_dates(table: TableSchema) -> frozenset[str]:
    """Return the columns in which a date that is no day may be NULL at the sink: no key's."""
    dates = {column.name for column in table.copied_columns if column.type.name in _DATES}
    return frozenset(dates.difference(table.primary_key))


def no_day(column: Column) -> str:
    """Return the SQL condition that a date is no day of the calendar, by its text."""
    text = f"CAST({quote_identifier(column.name)} AS CHAR)"
    year, month, day = f"LEFT({text}, 4)", f"SUBSTR({text}, 6, 2)", f"SUBSTR({text}, 9, 2)"
    is_leap = f"{year} % 4 = 0 AND ({year} % 100 <> 0 OR {year} % 400 = 0)"
    days = ", ".join(f"IF({is_leap}, 29, 28)" if n == 2 else str(n) for n in _LENGTHS)
    last = f"ELT({month} + 0, {days})"
    return f"({month} = '00' OR {day} = '00' OR {day} + 0 > {last} + 0)"


def _row_text(
    source: TableSchema,
    pairs: Sequence[tuple[Column, Column]],
    nulled: frozenset[str] = frozenset(),
) -> RowText:
    """Return one side's SQL expressions, from pairs of its column and the other side's.

    Dates of the columns `nulled` are NULL where they are no day.
    """
    values, nulls, lengths, sizes, size = [], [], [], [], 0
    for own, other in pairs:
        name = quote_identifier(own.name)
        value = _value(own, other)
        may_be_null = own.nullable or other.nullable
        is_null = f"{name} IS NULL"
        if own.name in nulled:
            is_null = f"({is_null} OR {no_day(own)})"
        values.append(
            f"IF({is_null}, '', {value})" if own.nullable or own.name in nulled else value
        )
        if may_be_null:
            nulls.append(f"({is_null})")
        if own.type.name in _SHORT_TEXTS and other.type.name not in TEXT_LENGTHS:
            lengths.append(f"IFNULL(CHAR_LENGTH({name}), 0)")
        if own.type.name in _SHORT_TEXTS | _LONG_TEXTS | _SHORT_BINARIES or _is_blob(own):
            sizes.append(f"IFNULL(LENGTH({name}), 0)")
        else:
            size += 8
    parts = [*values, *lengths]
    if nulls:
        parts.append(f"CONCAT({', '.join(nulls)})")
    # every part is made bytes: collations never meet, and the hash is over bytes anyway
    text = ", ',', ".join(parts)
    hashed = _hash(f"CONCAT({text})")
    by_name = {own.name.casefold(): (own, other) for own, other in pairs}
    return RowText(
        hash=hashed,
        number=f"CAST(CONV(LEFT({hashed}, 16), 16, 10) AS UNSIGNED)",
        key=_key(source, by_name),
        floats=_float_places(source, by_name),
        size=" + ".join([*sizes, str(size)]),
        columns=tuple(
            _column_text(own, other, is_nulled=own.name in nulled) for own, other in pairs
        ),
        may_be_unmade=" OR ".join(
            _unmade(own, other) for own, other in pairs if _grows(own, other)
        ),
    )


def _column_text(own: Column, other: Column, *, is_nulled: bool) -> ColumnText:
    """Return the SQL expressions for one column."""
    name = quote_identifier(own.name)
    if own.type.name in _INTEGERS:
        shown = f"CAST({name} + 0 AS CHAR)"
    elif own.type.name.endswith("blob"):
        shown = f"CONCAT('0x', HEX(LEFT({name}, {SHOWN_CHARACTERS})))"
    elif own.type.name in _SHORT_BINARIES or _is_blob(own):
        shown = f"CONCAT('0x', HEX({name}))"
    else:
        shown = f"CONVERT({name} USING utf8mb4)"
    identity = f"IFNULL({_hash(_value(own, other))}, '')"
    if is_nulled:
        identity = f"IF({no_day(own)}, '', {identity})"
    return ColumnText(own.name.casefold(), identity, f"LEFT({shown}, {SHOWN_CHARACTERS + 1})")


def _key(source: TableSchema, pairs: Pairs) -> tuple[str, ...]:
    """Return the SQL expressions of the key's columns: plain, or as canonical text."""
    columns = [pairs[name.casefold()] for name in source.primary_key]
    if all(kind.splittable for kind in source.key_kinds):
        return tuple(plain_key(*pair, quote_identifier(pair[0].name)) for pair in columns)
    return key_texts(columns)


def plain_key(own: Column, other: Column, selected: str) -> str:
    """Return the SQL expression of a key column's value that both sides make alike."""
    if own.type.name in _TEMPORALS and own.type.fraction > other.type.fraction:
        return _without_more_zeros(own, other, f"CAST({selected} AS CHAR)")
    return selected


def _without_more_zeros(own: Column, other: Column, text: str) -> str:
    """Return a temporal's text without zeros in the digits that the other side does not have."""
    more = own.type.fraction - other.type.fraction
    if more <= 0:
        return text
    zeros = "0" * more if other.type.fraction else "." + "0" * more
    count = len(zeros)
    cut = f"LEFT({text}, CHAR_LENGTH({text}) - {count})"
    return f"IF(RIGHT({text}, {count}) = '{zeros}', {cut}, {text})"


def _float_places(source: TableSchema, pairs: Pairs) -> frozenset[int]:
    """Return the places of the key's FLOAT and DOUBLE columns."""
    kinds = [{side.type.name for side in pairs[n.casefold()]} for n in source.primary_key]
    return frozenset(at for at, kind in enumerate(kinds) if kind <= _FLOATS)


def _digits(bits: str) -> str:
    """Return a double's digits from its bits in hexadecimal."""
    return repr(struct.unpack("<d", bytes.fromhex(bits))[0])


def _key_value(own: Column, other: Column) -> str:
    """Return the SQL expression of a key column's canonical text."""
    if own.type.key_kind is KeyKind.BINARY or _is_blob(own):
        return f"HEX({quote_identifier(own.name)})"
    if own.type.name in _LONG_TEXTS:
        return quote_identifier(own.name)
    return _value(own, other)


def _value(own: Column, other: Column) -> str:
    """Return the SQL expression of a column's canonical text, if not NULL."""
    name, kind = quote_identifier(own.name), own.type.name
    if kind in _INTEGERS:
        return f"({name} + 0)"
    if kind in _FLOATS:
        return f"HEX(SUBSTR(ST_AsBinary(POINT({name} + 0e0, 0)), 6, 8))"
    if kind in _TEMPORALS:
        return _without_more_zeros(own, other, f"CAST({name} AS CHAR)")
    if kind == "enum":  # the value that is no member reads as the empty text, which may be one
        return f"CONCAT({name} = 0, CAST({_text(own, other)} AS BINARY))"
    if kind in _SHORT_TEXTS:
        return f"CAST({_text(own, other)} AS BINARY)"
    if kind == "json":
        return _hash(f"CAST({name} AS CHAR)")
    if kind in _LONG_TEXTS:
        return _hash(_text(own, other))
    if _is_blob(own) or other.type.name == "vector":  # a VARBINARY may stand in for it
        return _hash(name)
    if kind in _SHORT_BINARIES:
        return f"HEX({name})"
    return f"CAST({name} AS CHAR)"


def _hash(text: str) -> str:
    """Return the SQL expression of a text's SHA-256."""
    return f"SHA2({text}, 256)"


def _text(own: Column, other: Column) -> str:
    """Return the SQL expression of a text in a charset that compares the same on both sides."""
    name, here, there = quote_identifier(own.name), own.type.charset, other.type.charset
    same_bytes = here == there and (here is None or is_one_to_one(here))
    if same_bytes or (here in _UTF8 and (there in _UTF8 or there is None)):
        return name
    return f"CONVERT({name} USING utf8mb4)"


def _grows(own: Column, other: Column) -> bool:
    """Tell whether a column's canonical text may be larger than its value."""
    return own.type.name in _LONG_TEXTS and _text(own, other) != quote_identifier(own.name)


def _unmade(own: Column, other: Column) -> str:
    """Return the SQL condition that a value is not NULL and its canonical text is NULL."""
    return f"({quote_identifier(own.name)} IS NOT NULL AND {_text(own, other)} IS NULL)"


def _is_blob(column: Column) -> bool:
    """Tell whether a column is a BLOB, VECTOR or geometry."""
    kind = column.type.name
    return kind.endswith("blob") or kind == "vector" or _is_geometry(kind)


def _is_geometry(kind: str) -> bool:
    """Tell whether a type's name is that of a geometry."""
    return kind in {"point", "linestring", "polygon"} or kind.startswith(("geom", "multi"))
