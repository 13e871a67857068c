"""Choosing tables from a source's catalogue, for a pipeline file that is not written yet.

Names are compared as the source compares them: where it folds their case, a pattern does, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.name_patterns import QUOTED, REGEX
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.table_facts import TableKind
from airflow_cdc_provider.core.table_patterns import (
    ALL_TABLES,
    Route,
    TablePattern,
    parse_routes,
    sink_table,
)
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.registry import open_source, rights_at

_SIDES = re.compile(rf"((?:{QUOTED}|(?<![^\s.]){REGEX}|[^=])*?)=(.*)", re.DOTALL)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Offered:
    """A source table that a new pipeline could copy, with its size."""

    table: TableId
    estimated_rows: int
    estimated_bytes: int
    has_key: bool


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The base tables that the source's account can see, those with a key first."""

    tables: tuple[Offered, ...]
    names_fold_case: bool = False
    """Whether two names that differ by case alone are one."""

    @property
    def with_key(self) -> tuple[Offered, ...]:
        """Return the tables that have a primary key, or a unique key in its place."""
        return tuple(one for one in self.tables if one.has_key)

    def fitting(self, pattern: TablePattern) -> tuple[Offered, ...]:
        """Return the tables that a pattern picks."""
        fold = self.names_fold_case
        return tuple(one for one in self.tables if pattern.matches(one.table, ignore_case=fold))


@dataclass(frozen=True, slots=True)
class Choice:
    """The patterns that a person chose for `tables`, and the tables they pick now."""

    patterns: tuple[str, ...]
    keyless: tuple[TableId, ...]
    picked: tuple[Offered, ...]
    names_fold_case: bool = False

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the databases of the chosen tables."""
        return tuple(sorted({one.table.database for one in self.picked}))


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes that a person chose, and where each table goes by them."""

    entries: Mapping[str, str]
    targets: Mapping[TableId, TableId]

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the sink's databases that tables go to."""
        return tuple(sorted({target.database for target in self.targets.values()}))


def offered_tables(endpoint: Endpoint) -> SourceTables:
    """List the tables of a source that could be copied; refuse a source that has none."""
    with open_source(endpoint).catalogue(purpose="the list of tables") as catalogue:
        every = catalogue.picked([ALL_TABLES])
        facts = [fact for fact in every if fact.kind is TableKind.BASE]
        schemas = catalogue.schemas([fact.table for fact in facts])
        fold = catalogue.names_fold_case
    found = [
        Offered(
            fact.table,
            fact.estimated_rows,
            fact.estimated_bytes,
            bool(schemas[fact.table].primary_key),
        )
        for fact in facts
        if fact.table in schemas
    ]
    if not any(one.has_key for one in found):
        raise _no_table(endpoint)
    return SourceTables(tuple(sorted(found, key=lambda one: (not one.has_key, one.table))), fold)


def _no_table(endpoint: Endpoint) -> RefusedError:
    """Return the error for an account that sees no table with a key."""
    statements = " ".join(rights_at(endpoint, Part.SOURCE, ["DATABASE"]))
    return RefusedError(
        "the source's account sees no table with a primary key, nor with a unique key over "
        "NOT NULL columns",
        where=str(endpoint),
        risk=NOTHING_CHANGED,
        remedy="as an administrator there, with the database's name in the place of DATABASE: "
        f"{statements} Where tables have neither, add one",
    )


def choose(words: Sequence[str], offered: SourceTables) -> Choice:
    """Parse a choice of numbers, ranges and patterns; `WrongValueError` if it is wrong."""
    texts = [text for word in words for text in _patterns_of(word, offered.with_key)]
    patterns = tuple(dict.fromkeys(texts))
    fitting: set[TableId] = set()
    for pattern in map(TablePattern.parse, patterns):
        _require_a_keyed_table(pattern, offered)
        fitting |= {one.table for one in offered.fitting(pattern)}
    if not fitting:
        raise WrongValueError("no table is chosen", "give a number, a range or a pattern")
    chosen = [one for one in offered.tables if one.table in fitting]
    return Choice(
        patterns,
        tuple(one.table for one in chosen if not one.has_key),
        tuple(one for one in chosen if one.has_key),
        offered.names_fold_case,
    )


def route(entries: Mapping[str, str], choice: Choice) -> Routing:
    """Return where the chosen tables go by the routes; `WrongValueError` if one fits none."""
    for source, target in entries.items():
        _require_a_chosen_table(Route.parse(source, target), choice)
    routes, fold = parse_routes(entries), choice.names_fold_case
    targets = {one.table: sink_table(one.table, routes, ignore_case=fold) for one in choice.picked}
    return Routing(dict(entries), targets)


def read_routes(words: Sequence[str]) -> dict[str, str]:
    """Parse routes as typed, `shop.*=dr_shop.*`, into the file's entries."""
    entries: dict[str, str] = {}
    for word in words:
        source, mark, target = _sides_of(word)
        if not (source and mark and target):
            raise WrongValueError(
                f"{word!r} is no route", "write SOURCE=SINK, as in shop.*=dr_shop.*"
            )
        if entries.setdefault(source, target) != target:
            raise WrongValueError(f"{source!r} has two routes", "leave one of them out")
    return entries


def _sides_of(word: str) -> tuple[str, str, str]:
    """Split a route at its first `=` that is in no name in backticks, nor in a regex."""
    found = _SIDES.fullmatch(word)
    return (word, "", "") if found is None else (found[1].strip(), "=", found[2].strip())


def _patterns_of(word: str, keyed: Sequence[Offered]) -> list[str]:
    """Return the patterns of one word: a number or range of the list, or a pattern."""
    numbers = _RANGE.fullmatch(word)
    if numbers is None:
        return [str(TablePattern.parse(word))]
    first = int(numbers[1])
    last = int(numbers[2] or first)
    if not 1 <= first <= last <= len(keyed):
        raise WrongValueError(
            f"{word} is not among the numbers of the list", f"give numbers from 1 to {len(keyed)}"
        )
    return [str(TablePattern.of(one.table)) for one in keyed[first - 1 : last]]


def _require_a_keyed_table(pattern: TablePattern, offered: SourceTables) -> None:
    """Refuse a pattern that fits no table with a key."""
    fitting = offered.fitting(pattern)
    if not fitting:
        raise WrongValueError(
            f"no table fits {str(pattern)!r}",
            "correct the name, or grant SELECT on the table to the source's account",
        )
    if not any(one.has_key for one in fitting):
        raise WrongValueError(
            f"{str(pattern)!r} fits only tables without a primary key, or a unique key over "
            "NOT NULL columns, which a new file leaves out",
            "add one of them, or choose other tables, and pick these in the file",
        )


def _require_a_chosen_table(asked: Route, choice: Choice) -> None:
    """Refuse a route that fits none of the chosen tables."""
    fold = choice.names_fold_case
    if not any(asked.target_of(one.table, ignore_case=fold) for one in choice.picked):
        raise WrongValueError(
            f"the route {str(asked.source)!r} fits none of the tables that are copied",
            "correct it, or leave it out",
        )
