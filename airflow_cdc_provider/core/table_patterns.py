"""Table patterns and routes: `shop.*` picks tables, `shop.*: dr_shop.*` says where they go.

How names and patterns are written is in `core.name_patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.name_patterns import (
    QUOTED,
    REGEX,
    NameKind,
    NamePattern,
    read_patterns,
)
from airflow_cdc_provider.core.wrong_value import WrongValueError

MAX_NAME = 64
"""Characters that a name may have."""
_WORD = re.compile(rf"(?:{QUOTED}|(?<![^\s,.]){REGEX}|[^\s,])+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A pattern of database and table names."""

    database: NamePattern
    table: NamePattern

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Parse `database.table`; `WrongValueError` if it is not one."""
        return _parsed(text, is_target=False)

    @classmethod
    def parse_target(cls, text: str) -> TablePattern:
        """Parse the right side of a route; `WrongValueError` if it is none."""
        return _parsed(text, is_target=True)

    @classmethod
    def of(cls, table: TableId) -> TablePattern:
        """Return the pattern that picks one table."""
        return cls(NamePattern.literal(table.database), NamePattern.literal(table.table))

    @property
    def is_exact(self) -> bool:
        """Tell whether the pattern picks one table only."""
        return self.database.is_exact and self.table.is_exact

    @property
    def exact(self) -> TableId | None:
        """Return the one table that the pattern picks; None if it may pick several."""
        return TableId(self.database.text, self.table.text) if self.is_exact else None

    @property
    def has_regex(self) -> bool:
        """Tell whether a regular expression is in it."""
        return NameKind.REGEX in (self.database.kind, self.table.kind)

    def matches(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the pattern picks `table`."""
        return self.stars_of(table, ignore_case=ignore_case) is not None

    def stars_of(
        self, table: TableId, *, ignore_case: bool = False
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the texts of the stars or groups of both names; None if it does not fit."""
        database = self.database.fit(table.database, ignore_case=ignore_case)
        if database is None:
            return None
        name = self.table.fit(table.table, ignore_case=ignore_case)
        return None if name is None else (database, name)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


ALL_TABLES = TablePattern(NamePattern(NameKind.GLOB, "*"), NamePattern(NameKind.GLOB, "*"))


def every_table_of(table: TableId) -> str:
    """Return the pattern that picks all tables of a table's database."""
    return str(TablePattern(NamePattern.literal(table.database), ALL_TABLES.table))


@lru_cache(maxsize=1024)
def _parsed(text: str, *, is_target: bool) -> TablePattern:
    """Parse a pattern, or the right side of a route."""
    try:
        names = read_patterns(text, is_target=is_target)
    except ValueError as error:
        raise _wrong(text, f": {error}") from None
    if len(names) != 2:
        raise _wrong(text)
    for name in names:
        if name.kind is not NameKind.REGEX and len(name.text) > MAX_NAME:
            raise WrongValueError(
                f"{name.text!r} has more than {MAX_NAME} characters", "no server has such a name"
            )
    return TablePattern(*names)


def _wrong(text: str, why: str = "") -> WrongValueError:
    """Return the error for a text that is no pattern."""
    return WrongValueError(
        f"{text!r} is not 'database.table'{why}",
        f'write "{text}.*" for all tables of a database, and a name with a dot in it in backticks'
        if text and "." not in text
        else 'write "database.table"; * stands for any characters, a name with a dot in it is '
        "written in backticks, a regular expression between slashes",
    )


def words_of(text: str) -> list[str]:
    """Return the patterns of a line that has blanks or commas between them."""
    return [found[0] for found in _WORD.finditer(text)]


def name_in(names: Iterable[str], table: TableId, *, ignore_case: bool = False) -> str | None:
    """Return the one of these names and patterns that is a table's; None if there is none.

    The table's own name goes before patterns, and these go in their order.
    """
    ordered = sorted(names, key=lambda name: not TablePattern.parse(name).is_exact)
    fitting = (
        name for name in ordered if TablePattern.parse(name).matches(table, ignore_case=ignore_case)
    )
    return next(fitting, None)


@dataclass(frozen=True, slots=True)
class Route:
    """A rule of `sink.route`: where the tables of a pattern go.

    A `*` on the right is what it was on the left, and `{1}` the first group of the regular
    expressions there, those of the database before those of the table.
    """

    source: TablePattern
    target: TablePattern

    @classmethod
    def parse(cls, source: str, target: str) -> Route:
        """Parse one entry of `sink.route`."""
        route = cls(TablePattern.parse(source), TablePattern.parse_target(target))
        groups = route.source.database.groups + route.source.table.groups
        for left, right, part in (
            (route.source.database, route.target.database, "database"),
            (route.source.table, route.target.table, "table"),
        ):
            if left.stars > 1 or right.stars > 1:
                raise WrongValueError(
                    f"{source!r} -> {target!r} has more than one * in the {part}",
                    "use one * in each name, or name the tables one by one",
                )
            if right.stars and not left.stars:
                raise WrongValueError(
                    f"the * in the {part} of {target!r} stands for nothing in {source!r}",
                    f"write the {part}'s name, or a * in {source!r} as well",
                )
            if lost := [number for number in right.filled_by if not 1 <= number <= groups]:
                raise WrongValueError(
                    f"{{{lost[0]}}} in {target!r} stands for nothing: {source!r} has "
                    f"{groups or 'no'} {'group' if groups == 1 else 'groups'}",
                    "write (...) in a regular expression on the left, between slashes; a name that "
                    "has braces is written in backticks",
                )
        return route

    def target_of(self, table: TableId, *, ignore_case: bool = False) -> TableId | None:
        """Return the sink table for `table`, None if the route's pattern does not match it."""
        found = self.source.stars_of(table, ignore_case=ignore_case)
        if found is None:
            return None
        patterns = self.source.database, self.source.table
        groups = tuple(
            text
            for pattern, texts in zip(patterns, found, strict=True)
            if pattern.kind is NameKind.REGEX
            for text in texts
        )
        database, name = found
        return TableId(
            self.target.database.filled(database, groups), self.target.table.filled(name, groups)
        )


def parse_routes(entries: Mapping[str, str]) -> tuple[Route, ...]:
    """Parse `sink.route`: exact tables first, then patterns in the file's order."""
    routes = [Route.parse(source, target) for source, target in entries.items()]
    return tuple(sorted(routes, key=lambda route: not route.source.is_exact))


def sink_table(table: TableId, routes: Iterable[Route], *, ignore_case: bool = False) -> TableId:
    """Return the sink table for `table`: by the first route that matches, else its own name."""
    targets = (route.target_of(table, ignore_case=ignore_case) for route in routes)
    return next((target for target in targets if target is not None), table)
