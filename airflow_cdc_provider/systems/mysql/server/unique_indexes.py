"""Which of a table's unique keys tells its rows apart: the server's own choice, or a named one.

InnoDB stores the rows of a table without a primary key by its first unique key over whole columns
that are all NOT NULL. Any other such key tells them apart as well, if the pipeline file names it.
One that servers do not read rows by is none, though it is unique: ranges of rows are read by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    KeyForm,
    ParsedKey,
    parse_keys,
)

PRIMARY = "PRIMARY"
"""The name of the primary key among a table's indexes."""
_BY_HASH = "HASH"
_HIDDEN = ("INVISIBLE", "IGNORED")
"""What MySQL and MariaDB say of an index that they do not read by."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One part of a unique index."""

    column: str | None
    """None: it is an expression."""
    prefix: int | None = None
    """How much of the column is in the index; None: all of it."""


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index, as the catalogue has it."""

    name: str
    parts: tuple[IndexPart, ...]
    kind: str = "BTREE"

    def problem(self, columns: Mapping[str, Column]) -> str:
        """Return why the index does not tell rows apart; empty if it does.

        What the catalogue does not say of it is in the table's statement: `problem_in_statement`.
        """
        if self.kind == _BY_HASH:
            return "is one by hash, so no ranges of rows can be read by it"
        for part in self.parts:
            if part.column is None:
                return "has an expression"
            column = columns.get(part.column)
            if column is None:
                return f"has column {part.column}, which the catalogue does not show"
            if part.prefix:
                return f"has only a prefix of column {column.name}"
            if column.generated:
                return f"has column {column.name}, which is computed"
            if column.nullable:
                return f"has column {column.name}, which may be NULL"
        return ""


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """The unique index that is a table's key, or why the named one is not."""

    name: str = ""
    """Empty: the primary key is, or there is none."""
    problem: str = ""


def named_key(
    named: str, indexes: Mapping[str, UniqueIndex], columns: Sequence[Column]
) -> KeyChoice:
    """Return the choice of the unique index that the pipeline file names.

    The primary key of a table goes before it.
    """
    if PRIMARY in indexes:
        return KeyChoice()
    called = (each for each in indexes.values() if is_called(each.name, named))
    found = indexes.get(named) or next(called, None)
    by_name = {column.name: column for column in columns}
    if found is None:
        return KeyChoice(problem=f"it has no unique key {named}{_others(indexes, by_name)}")
    if problem := found.problem(by_name):
        told = f"its unique key {found.name} {problem}{_others(indexes, by_name)}"
        return KeyChoice(problem=told)
    return KeyChoice(found.name)


def is_called(name: str, named: str) -> bool:
    """Tell whether two names of an index are one, as servers compare them."""
    return name.casefold() == named.casefold()


def _others(indexes: Mapping[str, UniqueIndex], columns: Mapping[str, Column]) -> str:
    """Return which unique keys could be named instead."""
    serving = sorted(each.name for each in indexes.values() if not each.problem(columns))
    if serving:
        return f" ({', '.join(serving)} could be named)"
    return "" if indexes else " (it has no unique key at all)"


def problem_in_statement(name: str, statement: str) -> str:
    """Return why a unique key does not tell rows apart by its table's statement; empty if it does.

    `name` is the key's; the catalogue says neither of these in every version of a server.
    """
    return next((f"its unique key {name} {problem}" for problem in _problems(name, statement)), "")


def _problems(name: str, statement: str) -> Iterator[str]:
    """Yield what a table's statement says against its unique key of that name."""
    for key in parse_keys(statement):
        if key.form is not KeyForm.UNIQUE or key.name != name:
            continue
        if any(token.is_word("OVERLAPS") for token in key.tokens):
            yield "is WITHOUT OVERLAPS: it is about periods, which no sink's key is"
        if hidden := _hidden(key):
            yield f"is {hidden}: the server reads no rows by it"


def _hidden(key: ParsedKey) -> str:
    """Return the word by which servers are told not to read by a key; empty if there is none."""
    behind = max(i for i, token in enumerate(key.tokens) if token.is_mark(")"))
    words = key.tokens[behind:]
    for before, token in pairwise(words):
        if token.is_word(*_HIDDEN) and not before.is_word("NOT"):
            return token.text.upper()
    return ""
