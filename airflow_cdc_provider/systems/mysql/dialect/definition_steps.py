"""A table's definition after the first of several statements, from the one after the last.

The catalogue tells what a table was before and what it is after all of them. A column that only
one statement touches has one of these two definitions at any time in between; so its definition
there is known without reading types and defaults in the text. The text tells names and places,
and is believed only if all statements together lead to the columns that the catalogue has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.statement_effect import (
    ColumnStep,
    StatementEffect,
    StatementKind,
    StepKind,
)
from airflow_cdc_provider.core.table_schema import Column, TableSchema, UniqueKey
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    KeyForm,
    ParsedKey,
    parse_keys,
    parts_of,
    rendered,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind

Names = Mapping[str, str]
"""What columns are called behind the first statement, by a name of theirs in lower case."""


class _UntoldError(Exception):
    """Statements and definitions do not show what the table was in between."""


@dataclass(eq=False)
class _Line:
    """One column followed through several statements, with its definition before and after."""

    name: str
    old: Column | None = None
    new: Column | None = None
    touched: set[int] = field(default_factory=set)
    """The statements that gave it another definition, made it or dropped it."""


def definition_after_first(
    old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
) -> TableSchema | None:
    """Return a table's definition between the first of several statements and the second, or None.

    None if texts and definitions do not show it.
    `old` is the definition before, `new` the one behind all of `statements`, which are all that
    named the table in between. Nothing is left out of the result.
    """
    try:
        return _Course(old, new, statements).after_first()
    except _UntoldError:
        return None


class _Course:
    """The definitions of a table through several statements, from the old one to the new."""

    def __init__(
        self, old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
    ) -> None:
        self.old, self.new = old, new
        self.lines = [_Line(column.name, column) for column in old.columns]
        self.first: list[tuple[_Line, str]] = []
        """Columns behind the first statement, with their names there."""
        self.key_changes = {i for i, each in enumerate(statements) if each.unique_keys}
        keys = (*old.unique_keys, *new.unique_keys)
        keyed = {name.casefold() for key in keys for name in key.columns}
        keyed |= {name.casefold() for name in (*old.primary_key, *new.primary_key)}
        has_promoted = bool(old.key_name or new.key_name)
        for at, statement in enumerate(statements):
            is_alter = statement.kind is StatementKind.ALTER
            steps = statement.column_steps if is_alter or not statement.harmless else ()
            if steps is None:
                raise _UntoldError
            self.lines = list(_stepped(self.lines, steps, at))
            if has_promoted and _may_promote(statement, steps, keyed):
                raise _UntoldError
            dropped = {step.name.casefold() for step in steps if step.kind is StepKind.DROP}
            # a key of an earlier statement may have been of a dropped column alone: gone with it
            if dropped and (self.key_changes & set(range(at)) or not keyed.isdisjoint(dropped)):
                self.key_changes.add(at)
            if at == 0:
                self.first = [(line, line.name) for line in self.lines]
        self._arrive()

    def _arrive(self) -> None:
        """Match the columns after all statements with those of the new definition."""
        if _folded(line.name for line in self.lines) != _folded(c.name for c in self.new.columns):
            raise _UntoldError
        for line, column in zip(self.lines, self.new.columns, strict=True):
            line.new = column
        self.first = [(line, _written(line, name)) for line, name in self.first]

    def after_first(self) -> TableSchema:
        """Return the definition after the first statement."""
        old, new = self.old, self.new
        was = {line.old.name.casefold(): name for line, name in self.first if line.old}
        will = {line.new.name.casefold(): name for line, name in self.first if line.new}
        primary_key = _named(old.primary_key, was)
        same_key = primary_key == _named(new.primary_key, will)
        if not same_key or old.key_prefixes != new.key_prefixes or old.engine != new.engine:
            raise _UntoldError
        if 0 not in self.key_changes:
            unique, has_new_keys = _unique_keys(old, was), False
            if not self.key_changes and {*unique} != {*_unique_keys(new, will)}:
                raise _UntoldError
        elif self.key_changes == {0}:
            unique, has_new_keys = _unique_keys(new, will), True
        else:
            raise _UntoldError
        columns, texts = zip(*self._columns(was, will), strict=True)
        texts += tuple(_keys(old, was, unique=not has_new_keys))
        if has_new_keys:
            texts += tuple(_keys(new, will, unique=True, others=False))
        _, options = parts_of(old.create_statement)
        body = ",\n  ".join(texts)
        return replace(
            old,
            columns=columns,
            primary_key=primary_key,
            unique_keys=unique,
            collation=new.collation,
            create_statement=f"CREATE TABLE {quote_table(old.table)} (\n  {body}\n) "
            + rendered(options, old.create_statement),
        )

    def _columns(self, was: Names, will: Names) -> Iterator[tuple[Column, str]]:
        """Yield the columns after the first statement, with the text of their definitions."""
        texts_before, texts_now = _column_texts(self.old, was), _column_texts(self.new, will)
        for line, name in self.first:
            if line.touched - {0}:  # it is what it was, until a later statement
                found, texts = line.old, texts_before
                if 0 in line.touched:
                    raise _UntoldError
            else:
                found, texts = line.new, texts_now
            if found is None or found.name.casefold() not in texts:
                raise _UntoldError
            if not line.touched and not self._is_same(line, texts_before, texts_now):
                raise _UntoldError
            text = texts[found.name.casefold()]
            yield replace(found, name=name, ignored=False), f"{quote_identifier(name)} {text}"

    def _is_same(self, line: _Line, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
        """Tell whether an untouched column has the same type and expression before and after."""
        old, new = line.old, line.new
        if old is None or new is None:
            return False
        if old.generated and before.get(old.name.casefold()) != now.get(new.name.casefold()):
            return False
        return replace(old, name="", ignored=False) == replace(new, name="", ignored=False)


def _may_promote(statement: StatementEffect, steps: Sequence[ColumnStep], keyed: Set[str]) -> bool:
    """Tell whether another unique key may be a table's key after a statement.

    The server takes the first one without NULL, so each change of a unique key or of its columns
    may give the table another key, or none for a while.
    """
    defined = {step.name.casefold() for step in steps if step.kind is not StepKind.RENAME}
    return statement.unique_keys or not keyed.isdisjoint(defined)


def _written(line: _Line, name: str) -> str:
    """Return a column's name as the catalogue writes it, or as the statement wrote it."""
    catalogued = (each.name for each in (line.new, line.old) if each is not None)
    return next((each for each in catalogued if each.casefold() == name.casefold()), name)


def _stepped(lines: Sequence[_Line], steps: Sequence[ColumnStep], at: int) -> list[_Line]:
    """Return the columns after a statement, in the server's order.

    A statement's steps name columns as they were before it, but AFTER as they are behind it: what
    has a place of its own is put there last, one step after another.
    """
    by_name = {line.name.casefold(): line for line in lines}
    gone: set[_Line] = set()
    placed: list[tuple[_Line, str | None]] = []
    names: dict[_Line, str] = {}
    for step in steps:
        is_new = step.kind is StepKind.ADD
        line = _Line(step.name) if is_new else by_name.get(step.name.casefold())
        if line is None or line in gone:
            raise _UntoldError
        if step.kind is not StepKind.RENAME:
            line.touched.add(at)
        if step.to:
            names[line] = step.to
        if step.kind is StepKind.DROP or step.after is not None:
            gone.add(line)
        if is_new or step.after is not None:
            placed.append((line, step.after))
    for line, name in names.items():
        line.name = name
    result = [line for line in lines if line not in gone]
    for line, after in placed:
        result.insert(_place(result, after), line)
    if len(set(_folded(line.name for line in result))) < len(result):
        raise _UntoldError
    return result


def _place(lines: Sequence[_Line], after: str | None) -> int:
    """Return the index at which a column goes: after `after`, first if empty, last if None."""
    if after is None:
        return len(lines)
    if not after:
        return 0
    for index, line in enumerate(lines):
        if line.name.casefold() == after.casefold():
            return index + 1
    raise _UntoldError


def _folded(names: Iterator[str]) -> list[str]:
    """Return names in folded case."""
    return [name.casefold() for name in names]


def _named(columns: Sequence[str], names: Names) -> tuple[str, ...]:
    """Return the names of columns after the first statement."""
    if any(name.casefold() not in names for name in columns):
        raise _UntoldError
    return tuple(names[name.casefold()] for name in columns)


def _unique_keys(schema: TableSchema, names: Names) -> tuple[UniqueKey, ...]:
    """Return a table's unique keys with column names after the first statement."""
    return tuple(UniqueKey(key.name, _named(key.columns, names)) for key in schema.unique_keys)


# --- the text, as SHOW CREATE TABLE would print it ------------------------------------------------


def _column_texts(schema: TableSchema, names: Names) -> dict[str, str]:
    """Return the text of each column's definition with new names, by old name in lower case.

    Those that name a column which is not there are left out.
    """
    items, _ = parts_of(schema.create_statement)
    columns = {column.name.casefold() for column in schema.columns}
    found = {}
    for item in items:
        mentioned = {token.text.casefold() for token in item if token.kind is TokenKind.NAME}
        if item[0].kind is TokenKind.NAME and mentioned & columns <= names.keys():
            found[item[0].text.casefold()] = rendered(item[1:], schema.create_statement, names)
    return found


def _keys(schema: TableSchema, names: Names, *, unique: bool, others: bool = True) -> Iterator[str]:
    """Yield the texts of a table's keys, with new column names.

    Only of keys that can be carried.
    """
    changed = {name for name, now in names.items() if name != now.casefold()}
    missing = {column.name.casefold() for column in schema.columns} - names.keys()
    for key in parse_keys(schema.create_statement):
        mentioned = {t.text.casefold() for t in key.tokens if t.kind is TokenKind.NAME}
        if key.form is KeyForm.OTHER:
            raise _UntoldError
        if key.form is KeyForm.UNIQUE:
            if unique:
                yield _key_text(key, schema.create_statement, names)
        elif not others or mentioned & missing:
            continue
        elif key.form in {KeyForm.FOREIGN, KeyForm.CHECK}:
            if not mentioned & changed:
                constraint = f"CONSTRAINT {quote_identifier(key.name)} " if key.name else ""
                yield f"{constraint}{key.text}"
        else:
            yield _key_text(key, schema.create_statement, names)


def _key_text(key: ParsedKey, statement: str, names: Names) -> str:
    """Return a key's text with new column names."""
    opening = next(i for i, token in enumerate(key.tokens) if token.is_mark("("))
    head = rendered(key.tokens[:opening], statement)
    return f"{head} {rendered(key.tokens[opening:], statement, names)}"
