"""Whether two pipelines, there and back, copy the same tables, by their patterns and routes.

Patterns fit names without end, so names are tried that stand for all others: each pattern with its
stars filled by nothing, by a letter that no pattern has, and by what the other patterns fit. A
difference is shown by one of these names, which is then wrong without doubt.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.topology_edges import TableScope

MOST_NAMES = 20_000
"""Names tried for one pipeline; beyond them nothing is looked at."""
_LETTERS = f"x{string.ascii_lowercase}{string.digits}"


def no_way_back(there: TableScope, back: TableScope) -> tuple[TableId, TableId] | None:
    """Return a table that goes there and does not come back as itself, with its name there."""
    for table in _names(there, back):
        target = there.target_of(table)
        if target is not None and back.target_of(target) != table:
            return table, target
    return None


def shared_table(one: TableScope, other: TableScope) -> TableId | None:
    """Return a table that both pipelines read, None if none was found."""
    names = islice(_names(one, other), MOST_NAMES)
    return next((table for table in names if one.picks(table) and other.picks(table)), None)


def _names(mine: TableScope, other: TableScope) -> Iterator[TableId]:
    """Yield names of tables at `mine`'s source, the likely ones first."""
    of_mine = (*mine.patterns, *mine.excluded, *(route.source for route in mine.routes))
    of_other = (*other.patterns, *other.excluded, *(route.source for route in other.routes))
    at_source = (*of_mine, *(route.target for route in other.routes), *of_other)
    names = _filled(at_source)
    came = (other.target_of(each) for each in _filled((*of_other, *of_mine)))
    return iter(dict.fromkeys([*names, *filter(None, came)]))


def _filled(patterns: Sequence[TablePattern]) -> list[TableId]:
    """Return names that patterns fit."""
    patterns = list(dict.fromkeys(patterns))
    databases = _fillings([pattern.database for pattern in patterns])
    tables = _fillings([pattern.table for pattern in patterns])
    pairs = (
        TableId(database, table)
        for pattern in patterns
        for database, table in product(
            _with_stars(pattern.database, databases), _with_stars(pattern.table, tables)
        )
        if database and table
    )
    return list(islice(pairs, MOST_NAMES))


def _fillings(names: Sequence[str]) -> list[str]:
    """Return texts for a star: a letter of no name, nothing, and what other names may be."""
    used = "".join(names)
    letter = next((each for each in _LETTERS if each not in used.lower()), "\N{BULLET}")
    parts = [part for name in names for part in name.split("*") if part]
    whole = [name.replace("*", letter) for name in names]
    return list(dict.fromkeys([letter, *whole, *parts, ""]))


def _with_stars(name: str, fillings: Iterable[str]) -> Iterable[str]:
    """Return a name with its stars filled in each way."""
    return [name.replace("*", each) for each in fillings] if "*" in name else [name]
