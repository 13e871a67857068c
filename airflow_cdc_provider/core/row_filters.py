"""Which rows of a table are copied: conditions over its columns, as data.

A condition is true, false or unknown for a row, as in SQL: a comparison with NULL is unknown. Rows
are copied where it is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Literal = int | str | bytes
"""What a column is compared with; its values must be of the same kind."""


class Comparator(StrEnum):
    """How a column is compared with a value."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a value: unknown where the column is NULL."""

    column: str
    comparator: Comparator
    value: Literal


@dataclass(frozen=True, slots=True)
class IsNull:
    """True where the column is NULL, else false."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """The contrary of a condition; the contrary of unknown is unknown."""

    condition: RowFilter


@dataclass(frozen=True, slots=True)
class AllOf:
    """True where all of its conditions are."""

    conditions: tuple[RowFilter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True where one of its conditions is."""

    conditions: tuple[RowFilter, ...]


RowFilter = Comparison | IsNull | Not | AllOf | AnyOf


def columns_in(condition: RowFilter) -> Iterator[str]:
    """Yield the columns that a condition speaks of, some maybe more than once."""
    match condition:
        case Comparison() | IsNull():
            yield condition.column
        case Not():
            yield from columns_in(condition.condition)
        case AllOf() | AnyOf():
            for each in condition.conditions:
                yield from columns_in(each)


def filter_to_json(condition: RowFilter) -> Sequence[Any]:
    """Return a condition as JSON: a list that begins with its operator."""
    match condition:
        case Comparison():
            value = condition.value
            stored = {"hex": value.hex()} if isinstance(value, bytes) else value
            return [condition.comparator.value, condition.column, stored]
        case IsNull():
            return ["null", condition.column]
        case Not():
            return ["not", filter_to_json(condition.condition)]
        case AllOf() | AnyOf():
            name = "all" if isinstance(condition, AllOf) else "any"
            return [name, *map(filter_to_json, condition.conditions)]


def filter_from_json(form: Sequence[Any]) -> RowFilter:
    """Read a condition from its JSON."""
    operator, *parts = form
    match operator:
        case "null":
            return IsNull(*parts)
        case "not":
            return Not(filter_from_json(parts[0]))
        case "all":
            return AllOf(tuple(map(filter_from_json, parts)))
        case "any":
            return AnyOf(tuple(map(filter_from_json, parts)))
        case _:
            column, value = parts
            literal = bytes.fromhex(value["hex"]) if isinstance(value, Mapping) else value
            return Comparison(column, Comparator(operator), literal)
