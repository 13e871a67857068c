"""What the servers' type names mean, and what becomes of dates that are none; without Arrow.

Checking a pipeline asks only this, and should not have to load Arrow for it. What each type is in
Arrow is in `value_model`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from airflow_cdc_provider.core.errors import UnknownTypeError
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind


class TypeFacts(TypedDict, total=False):
    """The optional facts of a column type, as named in `ColumnType`."""

    unsigned: bool
    length: int | None
    precision: int | None
    scale: int | None
    fraction: int
    charset: str | None
    collation: str | None
    members: tuple[str, ...]
    is_json_text: bool


class ZeroDates(StrEnum):
    """How zero and partial dates are copied: refused, as NULL, or as text."""

    FAIL = "fail"
    """A named error with table, column and key."""
    NULL = "null"
    """NULL, and counted; in a key still an error, because a key is never NULL."""
    TEXT = "text"
    """The column is a string, for every one of its values."""


INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
GEOMETRY_TYPES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geomcollection",
        "geometrycollection",
    }
)
CHARACTER_TYPES = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARY_TYPES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
DATE_TYPES = frozenset({"date", "datetime", "timestamp"})
"""The types that can hold zero and partial dates."""
OTHER_TYPES = frozenset(
    {
        "bit",
        "decimal",
        "double",
        "enum",
        "float",
        "inet4",
        "inet6",
        "json",
        "set",
        "time",
        "uuid",
        "vector",
        "year",
    }
)
_KINDS: Mapping[str, TypeKind] = {
    **dict.fromkeys({*INTEGER_TYPES, "year"}, TypeKind.INTEGER),
    **dict.fromkeys(GEOMETRY_TYPES, TypeKind.GEOMETRY),
    **dict.fromkeys(CHARACTER_TYPES, TypeKind.TEXT),
    **dict.fromkeys(BINARY_TYPES, TypeKind.BINARY),
    **dict.fromkeys({*DATE_TYPES, "time"}, TypeKind.TEMPORAL),
    "bit": TypeKind.BITS,
    "decimal": TypeKind.DECIMAL,
    "double": TypeKind.FLOAT,
    "enum": TypeKind.ENUM,
    "float": TypeKind.FLOAT,
    "json": TypeKind.JSON,
    "point": TypeKind.POINT,
    "set": TypeKind.SET,
    "vector": TypeKind.VECTOR,
}
_KEY_KINDS: Mapping[str, KeyKind] = {
    **dict.fromkeys({*INTEGER_TYPES, "year"}, KeyKind.INTEGER),
    "decimal": KeyKind.DECIMAL,
    **dict.fromkeys(DATE_TYPES, KeyKind.TEMPORAL),
    **dict.fromkeys({"binary", "varbinary"}, KeyKind.BINARY),
    **dict.fromkeys(CHARACTER_TYPES, KeyKind.TEXT),
}
KNOWN_TYPES = (
    INTEGER_TYPES | GEOMETRY_TYPES | CHARACTER_TYPES | BINARY_TYPES | DATE_TYPES | OTHER_TYPES
)


def mysql_type(name: str, **facts: Unpack[TypeFacts]) -> ColumnType:
    """Return a MySQL column type; `name` is information_schema's DATA_TYPE in lower case."""
    kind = _KINDS.get(name, TypeKind.OTHER)
    if facts.get("is_json_text"):
        kind = TypeKind.JSON
    none = _no_member(facts.get("members", ())) if kind is TypeKind.ENUM else ""
    order = _KEY_KINDS.get(name, KeyKind.OTHER)
    return ColumnType(name, kind, order, **facts, no_member=none)


def type_of_before_kinds(form: Mapping[str, Any]) -> ColumnType:
    """Read a column type that was stored by a release before types had kinds."""
    return mysql_type(**{**form, "members": tuple(form["members"])})


def _no_member(members: tuple[str, ...]) -> str:
    """Return the text that is copied for index 0 of an ENUM, the value that is no member.

    The servers print it as the empty text, which may be a member, too. A zero is what MySQL
    itself reads as index 0; there are as many as it takes to be like no member.
    """
    taken = {_in_digits(member) for member in members}
    zeros = "0"
    while zeros in taken:
        zeros += "0"
    return zeros


def _in_digits(text: str) -> str:
    """Return a text with its digits in ASCII and without marks, as a lenient collation reads it."""
    digits = (unicodedata.digit(each, None) for each in text)
    return "".join(
        each if digit is None else str(digit)
        for each, digit in zip(text, digits, strict=True)
        if digit is not None or each.isalnum()
    )


def require_known(column_type: ColumnType) -> None:
    """Refuse a column type whose values are not known to be copied right."""
    name = column_type.name
    if name not in KNOWN_TYPES:
        raise UnknownTypeError(
            f"column type {name!r} is not in the value model",
            risk="its values could be copied wrong",
            remedy="leave the table out, or the column if the sink can do without it",
        )
    if name == "set" and "" in column_type.members:
        raise UnknownTypeError(
            "a SET has the empty text as a member",
            risk="a value of that member alone reads as no member at all, and would become that",
            remedy="give that member another name, or leave the table out",
        )
