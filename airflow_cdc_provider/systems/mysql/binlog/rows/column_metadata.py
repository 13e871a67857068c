"""The optional metadata at the end of a table map: names, signs, charsets, members, keys.

Fields are type, length, value. Fields of a type unknown here are skipped by their length: they
only add facts (a column type that needs them is refused on its own).

A field names no columns: its values belong to all columns of a kind, in their order. Which columns
a server counts to a kind is its own matter (MySQL gives VECTOR a charset, MariaDB its geometries),
and a count that is off by one gives every later column its neighbour's charset. So each field must
be used up exactly, and columns that cannot be text must have the charset `binary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from airflow_cdc_provider.core.errors import UnknownTypeError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader, as_text
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire


class _Field(IntEnum):
    """The types of fields in a table map's optional metadata."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_MEMBERS = 5
    ENUM_MEMBERS = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    MEMBERS_DEFAULT_CHARSET = 10
    MEMBERS_COLUMN_CHARSET = 11
    VISIBILITY = 12
    VECTOR_DIMENSIONS = 13


_BINARY = 63
"""The collation of columns that hold no text."""
_NEVER_TEXT = frozenset({"vector", "geometry"})


@dataclass(slots=True)
class OptionalMetadata:
    """The optional metadata of a table map: facts on columns, by their index."""

    names: tuple[str, ...] = ()
    unsigned: dict[int, bool] = field(default_factory=dict)
    collations: dict[int, int] = field(default_factory=dict)
    members: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    geometries: dict[int, int] = field(default_factory=dict)
    dimensions: dict[int, int] = field(default_factory=dict)
    primary_key: tuple[int, ...] = ()
    visible: tuple[bool, ...] = ()

    @classmethod
    def read(cls, data: bytes, wires: Sequence[Wire]) -> OptionalMetadata:
        """Read all fields of a table map's optional metadata."""
        found = cls()
        reader = ByteReader(data)
        while reader.left:
            kind = reader.number(1)
            value = ByteReader(reader.counted())
            found._read_field(kind, value, wires)
            if value.left:
                raise _miscounted(f"field {kind} has {value.left} bytes more than columns")
        found._check_collations(wires)
        return found

    def _check_collations(self, wires: Sequence[Wire]) -> None:
        """Refuse a text collation at a column that cannot be text: fields were counted wrong."""
        for index, collation in self.collations.items():
            if wires[index].kind in _NEVER_TEXT and collation != _BINARY:
                raise _miscounted(f"a {wires[index].kind} column has collation {collation}")

    def _read_field(self, kind: int, value: ByteReader, wires: Sequence[Wire]) -> None:
        """Read one field of a usual type into the facts."""
        match kind:
            case _Field.SIGNEDNESS:
                indexes = _indexes(wires, "numeric")
                self.unsigned = dict(zip(indexes, _top_bits(value, len(indexes)), strict=True))
            case _Field.DEFAULT_CHARSET:
                self._default_charset(value, _indexes(wires, "text"))
            case _Field.MEMBERS_DEFAULT_CHARSET:
                self._default_charset(value, _indexes(wires, "members"))
            case _Field.COLUMN_CHARSET:
                self.collations.update({p: value.packed() for p in _indexes(wires, "text")})
            case _Field.MEMBERS_COLUMN_CHARSET:
                self.collations.update({p: value.packed() for p in _indexes(wires, "members")})
            case _Field.COLUMN_NAME:
                self.names = tuple(as_text(value.counted()) for _ in wires)
            case _Field.SET_MEMBERS:
                self._members(value, _indexes(wires, "set"))
            case _Field.ENUM_MEMBERS:
                self._members(value, _indexes(wires, "enum"))
            case _:
                self._read_rare(kind, value, wires)

    def _read_rare(self, kind: int, value: ByteReader, wires: Sequence[Wire]) -> None:
        """Read one field of a rare type into the facts; unknown types are skipped."""
        match kind:
            case _Field.GEOMETRY_TYPE:
                self.geometries = {p: value.packed() for p in _indexes(wires, "geometry")}
            case _Field.VECTOR_DIMENSIONS:
                self.dimensions = {p: value.packed() for p in _indexes(wires, "vector")}
            case _Field.SIMPLE_PRIMARY_KEY:
                self._primary_key(value, len(wires), prefixed=False)
            case _Field.PRIMARY_KEY_WITH_PREFIX:
                self._primary_key(value, len(wires), prefixed=True)
            case _Field.VISIBILITY:
                self.visible = tuple(_top_bits(value, len(wires)))
            case _:
                value.rest()

    def _default_charset(self, value: ByteReader, indexes: Sequence[int]) -> None:
        """Read a default charset and its exceptions by column."""
        default = value.packed()
        self.collations.update(dict.fromkeys(indexes, default))
        while value.left:
            index = value.packed()
            if index >= len(indexes):
                raise _miscounted(f"a charset is about text column {index} of {len(indexes)}")
            self.collations[indexes[index]] = value.packed()

    def _members(self, value: ByteReader, indexes: Sequence[int]) -> None:
        """Read the members of ENUM or SET columns."""
        for index in indexes:
            count = value.packed()
            self.members[index] = tuple(value.counted() for _ in range(count))

    def _primary_key(self, value: ByteReader, columns: int, *, prefixed: bool) -> None:
        """Read the column indexes of the primary key."""
        indexes = []
        while value.left:
            indexes.append(value.packed())
            if prefixed:
                value.packed()
        if any(index >= columns for index in indexes):
            raise _miscounted(f"the primary key holds column {max(indexes)} of {columns}")
        self.primary_key = tuple(indexes)


def _indexes(wires: Sequence[Wire], group: str) -> list[int]:
    """Return the indexes of the columns that belong to a metadata group."""
    return [index for index, wire in enumerate(wires) if group in wire.groups]


def _top_bits(value: ByteReader, count: int) -> list[bool]:
    """Read a bitmap of `count` bits, the highest bit first."""
    data = value.take((count + 7) // 8)
    return [bool(data[index // 8] >> 7 - index % 8 & 1) for index in range(count)]


def _miscounted(what: str) -> UnknownTypeError:
    """Return the error for a table map whose metadata does not fit its columns."""
    return UnknownTypeError(
        f"the table map counts its columns in another way than this reader: {what}",
        risk="columns would be read with each other's charsets and signs",
        remedy="leave the table out, and report its definition and the server's version",
    )
