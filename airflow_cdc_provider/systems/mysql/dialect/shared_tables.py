"""The definition of a sink table that several tables of the source share, as its shards.

It has the columns of all of them by name; one that a shard lacks is NULL in the shard's rows. Where
two shards have a column of one name, one of the two definitions must hold the values of the other,
by the rules for a sink table that is there already; that one is the sink's. The keys are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    parse_keys,
    parts_of,
    rendered,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind
from airflow_cdc_provider.systems.mysql.dialect.table_match import (
    Mismatch,
    MismatchKind,
    column_mismatches,
    key_mismatches,
    mismatches,
)

_OF_COLUMNS = {
    MismatchKind.COLUMN,
    MismatchKind.COLUMN_TYPE,
    MismatchKind.COLUMN_NULL,
    MismatchKind.COLUMN_CHARSET,
}


_INDEXED = {"varchar", "varbinary"}
"""Types that an index takes without the length of a prefix."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two shards whose definitions one table cannot have both."""

    table: TableId
    """The later one."""
    other: TableId
    what: str

    def __str__(self) -> str:
        return f"{self.other} and {self.table} cannot share a table: {self.what}"


@dataclass(frozen=True, slots=True)
class Extension:
    """What a sink table that is there still needs to hold one more shard's rows."""

    added: tuple[str, ...] = ()
    """Columns that it lacks."""
    widened: tuple[str, ...] = ()
    """Columns whose values all fit into the shard's definition, which holds more."""
    unfit: tuple[Mismatch, ...] = ()
    """Why it cannot hold them, whatever is added."""


def disagreements(shards: Sequence[TablePlan]) -> Iterator[Disagreement]:
    """Yield why tables that go to one sink table cannot share it, by pairs."""
    columns: dict[str, tuple[Column, TablePlan]] = {}
    for plan in shards:
        first = shards[0]
        for found in key_mismatches(plan.target, first.target):
            yield _of_two(first, plan, found)
        for column in plan.target.as_copied.columns:
            kept, owner = columns.setdefault(column.name.lower(), (column, plan))
            if _holds(kept, column):
                continue
            if _holds(column, kept):
                columns[column.name.lower()] = column, plan
                continue
            yield _of_two(owner, plan, next(column_mismatches(column, kept)))


def united(shards: Sequence[TablePlan]) -> TablePlan:
    """Return the first of a table's shards, its target the definition that holds all of them.

    There must be no `disagreements` among them.
    """
    first, *others = shards
    target = first.target
    for other in others:
        target = _with(target, other.target)
    return replace(first, target=target)


def extension(shard: TableSchema, found: TableSchema) -> Extension:
    """Return what a sink table needs so that it holds a shard's rows beside those of others."""
    there = {column.name.lower(): column for column in found.columns}
    added, widened = [], []
    for column in shard.as_copied.columns:
        other = there.get(column.name.lower())
        if other is None:
            added.append(column.name)
        elif not _holds(other, column) and _holds(column, other):
            widened.append(column.name)
    mended = {*added, *widened}
    unfit = (
        each
        for each in mismatches(shard, found, may_be_wider=True)
        if each.kind not in _OF_COLUMNS or each.subject not in mended
    )
    return Extension(tuple(added), tuple(widened), tuple(unfit))


def _holds(one: Column, other: Column) -> bool:
    """Tell whether a column of a shared table has each value of another column.

    A TEXT has those of a VARCHAR, but cannot be in each index that the other one is in.
    """
    is_indexed = other.type.name in _INDEXED and one.type.name not in _INDEXED
    return not is_indexed and next(column_mismatches(other, one, may_be_wider=True), None) is None


def _of_two(one: TablePlan, other: TablePlan, found: Mismatch) -> Disagreement:
    """Return what differs between two tables of the source, in words for both."""
    table = other.schema.table
    text = found.text.replace("the source's is", f"that of {table} is")
    text = text.replace("at the source it is", f"in {table} it is")
    return Disagreement(table, one.schema.table, f"in {one.schema.table} {text}")


def _with(target: TableSchema, other: TableSchema) -> TableSchema:
    """Return a definition with the columns and plain keys of another one, too."""
    columns = {column.name.lower(): column for column in target.as_copied.columns}
    taken = set()
    for column in other.as_copied.columns:
        kept = columns.get(column.name.lower())
        if kept is None or not _holds(kept, column):
            # the name stays as it was: the key is given by it
            name = column.name if kept is None else kept.name
            columns[column.name.lower()] = replace(column, name=name)
            taken.add(column.name.lower())
    statement = ""
    if target.create_statement and other.create_statement:
        statement = _statement(target, other, taken)
    return replace(target, columns=tuple(columns.values()), create_statement=statement)


def _statement(target: TableSchema, other: TableSchema, taken: set[str]) -> str:
    """Return the CREATE TABLE of a definition with the columns `taken` from another one."""
    items, options = parts_of(target.create_statement)
    others, _ = parts_of(other.create_statement)
    columns = {
        item[0].text.lower(): rendered(item, target.create_statement)
        for item in items
        if item[0].kind is TokenKind.NAME
    }
    for item in others:
        if item[0].kind is TokenKind.NAME and item[0].text.lower() in taken:
            columns[item[0].text.lower()] = rendered(item, other.create_statement)
    keys = {key.name.lower(): key.text for key in parse_keys(other.create_statement)}
    keys |= {key.name.lower(): key.text for key in parse_keys(target.create_statement)}
    body = ",\n  ".join((*columns.values(), *keys.values()))
    made = f"CREATE TABLE {quote_table(target.table)} (\n  {body}\n) "
    return made + rendered(options, target.create_statement)
