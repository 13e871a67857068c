"""Table patterns and routes: `shop.*` picks tables, `shop.*: dr_shop.*` says where they go.

A `*` stands for any characters of a database's or a table's name; everything else is literal. A
dot inside a name is written doubled, as in `core.identifiers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.wrong_value import WrongValueError

_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A pattern of database and table names, each with any number of `*`."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Parse `database.table`; `WrongValueError` if it is not one."""
        try:
            parsed = TableId.parse(text)
        except ValueError:
            raise WrongValueError(
                f"{text!r} is not 'database.table'",
                f'write "{text}.*" for all tables of a database, double a dot inside a name'
                if text and "." not in text
                else 'write "database.table"; * stands for any characters',
            ) from None
        for name in (parsed.database, parsed.table):
            if len(name) > _MAX_NAME:
                raise WrongValueError(
                    f"{name!r} has more than {_MAX_NAME} characters", "no server has such a name"
                )
        return cls(parsed.database, parsed.table)

    @property
    def is_exact(self) -> bool:
        """Tell whether the pattern has no star."""
        return "*" not in self.database and "*" not in self.table

    def matches(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the pattern picks `table`."""
        return self.stars_of(table, ignore_case=ignore_case) is not None

    def stars_of(
        self, table: TableId, *, ignore_case: bool = False
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the texts that the stars of both names match; None if the pattern does not fit."""
        flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        database = re.fullmatch(_regex(self.database), table.database, flags)
        name = re.fullmatch(_regex(self.table), table.table, flags)
        if database is None or name is None:
            return None
        return database.groups(), name.groups()

    def __str__(self) -> str:
        return str(TableId(self.database, self.table))


def _regex(name: str) -> str:
    """Return the regular expression of a name with stars."""
    return "(.*)".join(re.escape(part) for part in name.split("*"))


@dataclass(frozen=True, slots=True)
class Route:
    """A rule of `sink.route`: where the tables of a pattern go.

    A `*` on the right is what it was on the left.
    """

    source: TablePattern
    target: TablePattern

    @classmethod
    def parse(cls, source: str, target: str) -> Route:
        """Parse one entry of `sink.route`."""
        route = cls(TablePattern.parse(source), TablePattern.parse(target))
        for left, right, part in (
            (route.source.database, route.target.database, "database"),
            (route.source.table, route.target.table, "table"),
        ):
            if left.count("*") > 1 or right.count("*") > 1:
                raise WrongValueError(
                    f"{source!r} -> {target!r} has more than one * in the {part}",
                    "use one * in each name, or name the tables one by one",
                )
            if "*" in right and "*" not in left:
                raise WrongValueError(
                    f"the * in the {part} of {target!r} stands for nothing in {source!r}",
                    f"write the {part}'s name, or a * in {source!r} as well",
                )
        return route

    def target_of(self, table: TableId, *, ignore_case: bool = False) -> TableId | None:
        """Return the sink table for `table`, None if the route's pattern does not match it."""
        stars = self.source.stars_of(table, ignore_case=ignore_case)
        if stars is None:
            return None
        names = zip((self.target.database, self.target.table), stars, strict=True)
        database, name = (
            target.replace("*", found[0]) if "*" in target else target for target, found in names
        )
        return TableId(database, name)


def parse_routes(entries: Mapping[str, str]) -> tuple[Route, ...]:
    """Parse `sink.route`: exact tables first, then patterns in the file's order."""
    routes = [Route.parse(source, target) for source, target in entries.items()]
    return tuple(sorted(routes, key=lambda route: not route.source.is_exact))


def sink_table(table: TableId, routes: Iterable[Route], *, ignore_case: bool = False) -> TableId:
    """Return the sink table for `table`: by the first route that matches, else its own name."""
    targets = (route.target_of(table, ignore_case=ignore_case) for route in routes)
    return next((target for target in targets if target is not None), table)
