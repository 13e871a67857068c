"""Which column types are known, and what becomes of dates that are none; without Arrow.

Checking a pipeline asks only this, and should not have to load Arrow for it. What each type is in
Arrow is in `value_model`.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_cdc_provider.core.errors import UnknownTypeError
from airflow_cdc_provider.core.table_schema import ColumnType


class ZeroDates(StrEnum):
    """What becomes of dates that are no days of the calendar."""

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
KNOWN_TYPES = (
    INTEGER_TYPES | GEOMETRY_TYPES | CHARACTER_TYPES | BINARY_TYPES | DATE_TYPES | OTHER_TYPES
)


def require_known(column_type: ColumnType) -> None:
    """Refuse a type whose values are not known to be copied right."""
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
