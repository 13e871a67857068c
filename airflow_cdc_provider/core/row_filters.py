"""Which rows of a table are copied: conditions over its columns, as data.

A condition is true, false or unknown for a row, as in SQL: a comparison with NULL is unknown. Rows
are copied where it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

Literal = int | Decimal | str | bytes
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
class Like:
    """A text matched letter by letter: unknown where the column is NULL.

    `%` is any text, `_` one letter; behind a backslash each is itself.
    """

    column: str
    pattern: str


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


RowFilter = Comparison | Like | IsNull | Not | AllOf | AnyOf


def columns_in(condition: RowFilter) -> Iterator[str]:
    """Yield the columns that a condition speaks of, some maybe more than once."""
    match condition:
        case Comparison() | Like() | IsNull():
            yield condition.column
        case Not():
            yield from columns_in(condition.condition)
        case AllOf() | AnyOf():
            for each in condition.conditions:
                yield from columns_in(each)


def leaves_in(condition: RowFilter) -> Iterator[Comparison | Like | IsNull]:
    """Yield what a condition says of single columns."""
    match condition:
        case Not():
            yield from leaves_in(condition.condition)
        case AllOf() | AnyOf():
            for each in condition.conditions:
                yield from leaves_in(each)
        case _:
            yield condition


def with_values(condition: RowFilter, value_of: Callable[[str, Literal], Literal]) -> RowFilter:
    """Return a condition with other values, given by a column and what it is compared with."""
    match condition:
        case Comparison():
            return replace(condition, value=value_of(condition.column, condition.value))
        case Not():
            return Not(with_values(condition.condition, value_of))
        case AllOf() | AnyOf():
            found = tuple(with_values(each, value_of) for each in condition.conditions)
            return replace(condition, conditions=found)
        case _:
            return condition


def filter_to_json(condition: RowFilter) -> Sequence[Any]:
    """Return a condition as JSON: a list that begins with its operator."""
    match condition:
        case Comparison():
            return [condition.comparator.value, condition.column, _stored(condition.value)]
        case Like():
            return ["like", condition.column, condition.pattern]
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
        case "like":
            return Like(*parts)
        case "not":
            return Not(filter_from_json(parts[0]))
        case "all":
            return AllOf(tuple(map(filter_from_json, parts)))
        case "any":
            return AnyOf(tuple(map(filter_from_json, parts)))
        case _:
            column, value = parts
            return Comparison(column, Comparator(operator), _read(value))


def _stored(value: Literal) -> Any:
    """Return a value as JSON."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return {"number": str(value)} if isinstance(value, Decimal) else value


def _read(form: Any) -> Literal:
    """Read a value from its JSON."""
    if not isinstance(form, Mapping):
        value: Literal = form
        return value
    return bytes.fromhex(form["hex"]) if "hex" in form else Decimal(form["number"])
