"""Choosing tables from a source's catalogue, for a pipeline file that is not written yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_facts import TableKind
from airflow_cdc_provider.pipeline.file.patterns import TablePattern
from airflow_cdc_provider.pipeline.file.problems import WrongValueError
from airflow_cdc_provider.systems.registry import open_source

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Offered:
    """A table of the source that could be copied."""

    table: TableId
    estimated_rows: int
    estimated_bytes: int
    has_key: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """What is written as `tables` and `exclude`, and the tables they pick now."""

    patterns: tuple[str, ...]
    keyless: tuple[TableId, ...]
    picked: tuple[Offered, ...]

    @property
    def databases(self) -> tuple[str, ...]:
        return tuple(sorted({one.table.database for one in self.picked}))


def offered_tables(endpoint: Endpoint) -> tuple[Offered, ...]:
    """Return the base tables that the account may see, those with a primary key first."""
    with open_source(endpoint).catalogue(purpose="the list of tables") as catalogue:
        every = catalogue.picked([TablePattern("*", "*")])
        facts = [fact for fact in every if fact.kind is TableKind.BASE]
        schemas = catalogue.schemas([fact.table for fact in facts])
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
    return tuple(sorted(found, key=lambda one: (not one.has_key, one.table)))


def choose(words: Sequence[str], offered: Sequence[Offered]) -> Choice:
    """Read numbers, ranges and patterns, or raise `WrongValueError` with the reason."""
    keyed = [one for one in offered if one.has_key]
    texts = [text for word in words for text in _patterns_of(word, keyed)]
    patterns = tuple(dict.fromkeys(texts))
    parsed = [TablePattern.parse(text) for text in patterns]
    for pattern in parsed:
        _require_a_keyed_table(pattern, offered)
    fitting = [one for one in offered if any(p.matches(one.table) for p in parsed)]
    if not fitting:
        raise WrongValueError("no table is chosen", "give a number, a range or a pattern")
    return Choice(
        patterns,
        tuple(one.table for one in fitting if not one.has_key),
        tuple(one for one in fitting if one.has_key),
    )


def _patterns_of(word: str, keyed: Sequence[Offered]) -> list[str]:
    numbers = _RANGE.fullmatch(word)
    if numbers is None:
        return [str(TablePattern.parse(word))]
    first = int(numbers[1])
    last = int(numbers[2] or first)
    if not 1 <= first <= last <= len(keyed):
        raise WrongValueError(
            f"{word} is not among the numbers of the list", f"give numbers from 1 to {len(keyed)}"
        )
    return [str(one.table) for one in keyed[first - 1 : last]]


def _require_a_keyed_table(pattern: TablePattern, offered: Sequence[Offered]) -> None:
    fitting = [one for one in offered if pattern.matches(one.table)]
    if not fitting:
        raise WrongValueError(
            f"no table fits {str(pattern)!r}",
            "correct the name, or grant SELECT on the table to the source's account",
        )
    if not any(one.has_key for one in fitting):
        raise WrongValueError(
            f"{str(pattern)!r} fits only tables without a primary key: rows could not be told "
            "apart",
            "add a primary key, or choose other tables",
        )
