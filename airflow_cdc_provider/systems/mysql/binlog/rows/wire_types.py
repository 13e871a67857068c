"""How each column type lies in a row of the log, and which type of the server it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import UnknownTypeError
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader, damaged
from airflow_cdc_provider.systems.mysql.dialect.charsets import decode_member
from airflow_cdc_provider.systems.mysql.dialect.collations import charset_of, longest_character
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.binlog.rows.column_metadata import OptionalMetadata

_INTEGERS = {
    1: ("tinyint", 1),
    2: ("smallint", 2),
    9: ("mediumint", 3),
    3: ("int", 4),
    8: ("bigint", 8),
}
_GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
)
_BLOBS = {1: "tinyblob", 2: "blob", 3: "mediumblob", 4: "longblob"}
_TEXTS = {1: "tinytext", 2: "text", 3: "mediumtext", 4: "longtext"}
_REFUSED = {
    0: "DECIMAL of before MySQL 5.0",
    20: "TYPED_ARRAY",
}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MOST_DIGITS, _MOST_DECIMALS = 65, 38
_MOST_BITS, _MOST_FRACTION, _LONGEST_LENGTH = 64, 6, 4
_MEMBER_BYTES = {"enum": 2, "set": 8}
_OLD = "old "
"""Before the names of temporal types in the formats of before MySQL 5.6."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A column's form in a logged row: fixed `width` bytes, or a length of `prefix` bytes first."""

    kind: str
    width: int = 0
    prefix: int = 0
    length: int = 0
    """Bytes of CHAR, VARCHAR; bits of BIT; precision of DECIMAL; digits of a fraction."""
    scale: int = 0
    groups: frozenset[str] = frozenset()
    """Which fields of the optional metadata are about this column."""
    compressed: bool = False
    """MariaDB's COMPRESSED columns: each cell is packed on its own."""

    @property
    def is_old(self) -> bool:
        """Tell whether the column is of a temporal type in the format of before MySQL 5.6."""
        return self.kind.startswith(_OLD)


def decimal_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a packed DECIMAL has."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def _require(possible: bool, what: str) -> None:  # noqa: FBT001 - a condition
    """Raise an error for a column form that no server has, unless it is possible."""
    if not possible:
        raise damaged(f"a table map holds {what}, which no server has")


def _refused(what: str) -> UnknownTypeError:
    """Return the error for a column type that is not decoded."""
    return UnknownTypeError(
        f"the log holds {what}, which is not decoded",
        risk="its values, and all columns behind it, would be read wrong",
        remedy="leave the table out, or rebuild it with a current type "
        "(ALTER TABLE ... FORCE; MariaDB: mysql56_temporal_format=ON)",
    )


_NUMERIC = frozenset({"numeric"})
_TEXT = frozenset({"text"})

_PLAIN = {
    **{code: Wire("integer", width, groups=_NUMERIC) for code, (_, width) in _INTEGERS.items()},
    7: Wire(f"{_OLD}timestamp", width=4),
    11: Wire(f"{_OLD}time", width=3),
    12: Wire(f"{_OLD}datetime", width=8),
    10: Wire("date", width=3),
    13: Wire("year", width=1, groups=_NUMERIC),
    14: Wire("date", width=3),
}
"""Types without field metadata."""


def read_wire(code: int, details: ByteReader) -> Wire:
    """Read one column's wire type: its code and its details in the table map."""
    if code in _PLAIN:
        return _PLAIN[code]
    match code:
        case 4 | 5:
            width = details.number(1)
            _require(width == {4: 4, 5: 8}[code], f"a FLOAT or DOUBLE of {width} bytes")
            return Wire("real", width=width, groups=_NUMERIC)
        case 15 | 253 | 141:
            return _varchar_wire(details.number(2), compressed=code == 141)
        case 16:
            bits, whole = details.number(1), details.number(1)
            length = whole * 8 + bits
            _require(bits < 8 and 0 < length <= _MOST_BITS, f"BIT({length})")
            return Wire("bit", width=whole + (bits > 0), length=length)
        case 17 | 18 | 19:
            name, plain = {17: ("timestamp", 4), 18: ("datetime", 5), 19: ("time", 3)}[code]
            fraction = details.number(1)
            _require(fraction <= _MOST_FRACTION, f"a {name} with {fraction} digits of a fraction")
            return Wire(name, width=plain + (fraction + 1) // 2, length=fraction)
        case 246:
            precision, scale = details.number(1), details.number(1)
            fits = 0 < precision <= _MOST_DIGITS and scale <= min(precision, _MOST_DECIMALS)
            _require(fits, f"DECIMAL({precision},{scale})")
            size = decimal_bytes(precision, scale)
            return Wire("decimal", size, length=precision, scale=scale, groups=_NUMERIC)
        case 140 | 242 | 245 | 252 | 255 | 249 | 250 | 251:
            kind, group = {
                242: ("vector", {"vector", "text"}),  # MySQL counts it among the texts
                245: ("json", set()),
                255: ("geometry", {"geometry"}),
            }.get(code, ("blob", {"text"}))
            prefix, packed = details.number(1), code == 140
            _require(0 < prefix <= _LONGEST_LENGTH, f"a {kind} whose length takes {prefix} bytes")
            return Wire(kind, prefix=prefix, groups=frozenset(group), compressed=packed)
        case 247 | 248 | 254:
            return _string_wire(details.number(1), details.number(1))
        case _:
            raise _refused(_REFUSED.get(code, f"a column of wire type {code}"))


def _varchar_wire(length: int, *, compressed: bool) -> Wire:
    """Return the wire type of a VARCHAR of so many bytes."""
    prefix = 1 if length < 256 else 2
    if compressed:
        length -= 1  # the byte that tells how a cell is packed
    return Wire("varchar", 0, prefix, length, groups=_TEXT, compressed=compressed)


def _string_wire(first: int, second: int) -> Wire:
    """Return the wire type of CHAR, ENUM or SET from its two bytes of details."""
    if first in {247, 248}:
        kind = "enum" if first == 247 else "set"
        _require(0 < second <= _MEMBER_BYTES[kind], f"a {kind} of {second} bytes")
        return Wire(kind, width=second, groups=frozenset({kind, "members"}))
    length = second
    if first & 0x30 != 0x30:  # lengths over 255 keep their high bits in the type byte, inverted
        length |= ((first & 0x30) ^ 0x30) << 4
        first |= 0x30
    if first != 254:
        raise _refused(f"a string of wire type {first}")
    return Wire("char", prefix=1 if length < 256 else 2, length=length, groups=_TEXT)


def logged_type(wire: Wire, metadata: OptionalMetadata, index: int) -> ColumnType:
    """Return a column's MySQL type, as far as the log describes it."""
    match wire.kind:
        case "integer":
            name = next(name for name, width in _INTEGERS.values() if width == wire.width)
            return mysql_type(name, unsigned=_unsigned(metadata, index))
        case "real":
            name = "float" if wire.width == 4 else "double"
            return mysql_type(name, unsigned=_unsigned(metadata, index))
        case "decimal":
            return mysql_type(
                "decimal",
                unsigned=_unsigned(metadata, index),
                precision=wire.length,
                scale=wire.scale,
            )
        case "bit":
            return mysql_type("bit", length=wire.length)
        case "time" | "datetime" | "timestamp":
            return mysql_type(wire.kind, fraction=wire.length)
        case "vector":
            return mysql_type("vector", length=metadata.dimensions.get(index))
        case "geometry":
            number = metadata.geometries.get(index, 0)
            _require(number < len(_GEOMETRIES), f"a geometry of kind {number}")
            return mysql_type(_GEOMETRIES[number])
        case "enum" | "set":
            return _member_type(wire, metadata, index)
        case "char" | "varchar" | "blob":
            return _text_type(wire, metadata, index)
        case _:
            return mysql_type(wire.kind.removeprefix(_OLD))


def _unsigned(metadata: OptionalMetadata, index: int) -> bool:
    """Tell whether a number is unsigned; an error if the log does not say."""
    if index not in metadata.unsigned:
        raise UnknownTypeError(
            "the log does not say whether a number is unsigned",
            risk="large unsigned numbers would turn negative",
            remedy="SET GLOBAL binlog_row_metadata = 'FULL'",
        )
    return metadata.unsigned[index]


def _charset(metadata: OptionalMetadata, index: int) -> str:
    """Return a column's charset; an error if the log does not say."""
    if index not in metadata.collations:
        raise UnknownTypeError(
            "the log does not say which charset a column has",
            risk="texts could be decoded wrong",
            remedy="SET GLOBAL binlog_row_metadata = 'FULL'",
        )
    return charset_of(metadata.collations[index])


def _member_type(wire: Wire, metadata: OptionalMetadata, index: int) -> ColumnType:
    """Return the type of an ENUM or SET column with its members."""
    charset = _charset(metadata, index)
    _require(index in metadata.members, f"a {wire.kind} without its members")
    members = tuple(decode_member(name, charset) for name in metadata.members[index])
    return mysql_type(wire.kind, charset=charset, members=members)


def _text_type(wire: Wire, metadata: OptionalMetadata, index: int) -> ColumnType:
    """Return the type of a CHAR, VARCHAR, TEXT or binary column."""
    charset = _charset(metadata, index)
    if wire.kind == "blob":
        names = _BLOBS if charset == "binary" else _TEXTS
        return mysql_type(names[wire.prefix], charset=None if charset == "binary" else charset)
    if charset == "binary":
        return mysql_type("binary" if wire.kind == "char" else "varbinary", length=wire.length)
    characters = wire.length // longest_character(charset)
    return mysql_type(wire.kind, length=characters, charset=charset)
