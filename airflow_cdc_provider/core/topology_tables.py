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
from airflow_cdc_provider.core.name_patterns import NamePattern
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.topology_edges import TableScope

MOST_NAMES = 5_000
"""Names tried for two pipelines; a difference that shows in none of them is not found."""
_LETTERS = f"x{string.ascii_lowercase}{string.digits}"


def no_way_back(there: TableScope, back: TableScope) -> tuple[TableId, TableId] | None:
    """Return a table that goes there and does not come back as itself, with its name there."""
    for table in _names(there, back):
        target = there.target_of(table)
        if target is not None and back.target_of(target) != table:
            return table, target
    return None


def brought_past(
    outside: TableScope,
    *,
    read_there: Sequence[TableScope],
    written_there: Sequence[TableScope],
    read_here: Sequence[TableScope],
) -> TableId | None:
    """Return a table that a pipeline brings from one node to another beside the edges, or None.

    Edges read or write it at the node that the pipeline reads, and read at the other node what the
    pipeline makes of it.
    """
    for far in read_here:
        for table in _at_node(read_there, written_there, (outside, far)):
            target = outside.target_of(table)
            if target is not None and far.picks(target):
                return table
    return None


def _at_node(
    read: Sequence[TableScope], written: Sequence[TableScope], others: Sequence[TableScope]
) -> Iterator[TableId]:
    """Yield names of tables that edges read or write at a node."""
    for near in read:
        yield from filter(near.picks, _names(near, *others))
    for near in written:
        yield from filter(None, map(near.target_of, _names(near, *others)))


def _names(*scopes: TableScope) -> list[TableId]:
    """Return names of tables that show differences between pipelines, the likely ones first."""
    names = _filled(
        [
            pattern
            for scope in scopes
            for pattern in (
                *scope.patterns,
                *scope.excluded,
                *(route.source for route in scope.routes),
                *(route.target for route in scope.routes),
            )
        ]
    )
    came = (scope.target_of(table) for scope in scopes for table in names)
    return list(dict.fromkeys([*names, *filter(None, came)]))


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


def _fillings(patterns: Sequence[NamePattern]) -> list[str]:
    """Return texts for a star: a letter of no name, nothing, and what other names may be.

    Of regular expressions none are made: they are compared by the names of the other patterns.
    """
    names = [each.text for each in patterns if each.is_exact or each.stars]
    used = "".join(names)
    letter = next((each for each in _LETTERS if each not in used.lower()), "\N{BULLET}")
    parts = [part for name in names for part in name.split("*") if part]
    whole = [name.replace("*", letter) for name in names]
    return list(dict.fromkeys([letter, *whole, *parts, ""]))


def _with_stars(pattern: NamePattern, fillings: Iterable[str]) -> Iterable[str]:
    """Return names that a pattern fits: with its stars filled in each way."""
    if pattern.is_exact:
        return [pattern.text]
    if pattern.stars:
        return [pattern.text.replace("*", each) for each in fillings]
    return [each for each in fillings if pattern.fit(each) is not None]
