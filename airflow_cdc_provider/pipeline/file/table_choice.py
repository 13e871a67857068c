"""Which of the file's settings of single tables are a table's.

A table's own name goes before patterns, and these go in the file's order: one section is a table's,
and nothing is put together of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.named_keys import NamedKeys
from airflow_cdc_provider.core.table_patterns import TablePattern, name_in
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, TableShape
from airflow_cdc_provider.pipeline.file.table_sections import TableSection


def shape_in(
    sections: Mapping[str, TableSection], table: TableId, *, ignore_case: bool = False
) -> TableShape:
    """Return how a table differs at the sink, apart from its name."""
    name = name_in(sections, table, ignore_case=ignore_case)
    return SAME_SHAPE if name is None else sections[name].shape_of(table)


def keys_in(sections: Mapping[str, TableSection]) -> NamedKeys:
    """Return the unique keys that the sections name for their tables."""
    return NamedKeys(tuple((name, section.key or "") for name, section in sections.items()))


def mistyped(names: Iterable[str], tables: Iterable[TableId]) -> list[tuple[str, TableId]]:
    """Return names of one table that none has, each with a table whose name has another case."""
    tables = tuple(tables)
    exact = [(name, TablePattern.parse(name)) for name in names]
    return [
        (name, near)
        for name, pattern in exact
        if pattern.is_exact and not any(map(pattern.matches, tables))
        for near in tables
        if pattern.matches(near, ignore_case=True)
    ]


def salts_in(sections: Mapping[str, TableSection]) -> tuple[str, ...]:
    """Return the names of the salts by which columns are masked, each once."""
    return tuple(
        {salt.name: None for each in sections.values() for salt in each.columns.salts.values()}
    )
