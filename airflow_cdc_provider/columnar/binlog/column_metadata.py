"""The optional metadata at the end of a table map: names, signs, charsets, members, keys.

Fields are type, length, value. Fields of a type unknown here are skipped by their length: they
only add facts (a column type that needs them is refused on its own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.columnar.binlog.byte_reader import ByteReader
from airflow_cdc_provider.columnar.binlog.wire_types import Wire

_SIGNEDNESS = 1
_DEFAULT_CHARSET = 2
_COLUMN_CHARSET = 3
_COLUMN_NAME = 4
_SET_MEMBERS = 5
_ENUM_MEMBERS = 6
_GEOMETRY_TYPE = 7
_SIMPLE_PRIMARY_KEY = 8
_PRIMARY_KEY_WITH_PREFIX = 9
_MEMBERS_DEFAULT_CHARSET = 10
_MEMBERS_COLUMN_CHARSET = 11
_VISIBILITY = 12
_VECTOR_DIMENSIONS = 13


@dataclass(slots=True)
class OptionalMetadata:
    """Facts by column place."""

    names: tuple[str, ...] = ()
    unsigned: dict[int, bool] = field(default_factory=dict)
    collations: dict[int, int] = field(default_factory=dict)
    members: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    geometries: dict[int, int] = field(default_factory=dict)
    dimensions: dict[int, int] = field(default_factory=dict)
    primary_key: tuple[int, ...] = ()
    visible: tuple[bool, ...] = ()

    @classmethod
    def read(cls, octets: bytes, wires: Sequence[Wire]) -> OptionalMetadata:
        """Read all fields; places of a field count only the columns it is about."""
        found = cls()
        reader = ByteReader(octets)
        while reader.left:
            kind = reader.number(1)
            found._read_field(kind, ByteReader(reader.counted()), wires)
        return found

    def _read_field(self, kind: int, value: ByteReader, wires: Sequence[Wire]) -> None:
        match kind:
            case 1:
                self.unsigned = dict(zip(_places(wires, "numeric"), _top_bits(value), strict=False))
            case 2 | 10:
                self._default_charset(value, _places(wires, "text" if kind == 2 else "members"))
            case 3 | 11:
                places = _places(wires, "text" if kind == 3 else "members")
                self.collations.update({place: value.packed() for place in places})
            case 4:
                self.names = tuple(value.counted().decode() for _ in wires)
            case 5 | 6:
                self._members(value, _places(wires, "set" if kind == 5 else "enum"))
            case 7:
                self.geometries = {place: value.packed() for place in _places(wires, "geometry")}
            case 8 | 9:
                self._primary_key(value, prefixed=kind == 9)
            case 12:
                self.visible = tuple(_top_bits(value))[: len(wires)]
            case 13:
                self.dimensions = {place: value.packed() for place in _places(wires, "vector")}
            case _:
                return

    def _default_charset(self, value: ByteReader, places: Sequence[int]) -> None:
        default = value.packed()
        self.collations.update(dict.fromkeys(places, default))
        while value.left:
            place = value.packed()
            self.collations[places[place]] = value.packed()

    def _members(self, value: ByteReader, places: Sequence[int]) -> None:
        for place in places:
            count = value.packed()
            self.members[place] = tuple(value.counted() for _ in range(count))

    def _primary_key(self, value: ByteReader, *, prefixed: bool) -> None:
        places = []
        while value.left:
            places.append(value.packed())
            if prefixed:
                value.packed()
        self.primary_key = tuple(places)


def _places(wires: Sequence[Wire], group: str) -> list[int]:
    return [place for place, wire in enumerate(wires) if group in wire.groups]


def _top_bits(value: ByteReader) -> list[bool]:
    return [bool(octet >> bit & 1) for octet in value.rest() for bit in range(7, -1, -1)]
