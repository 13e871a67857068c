"""What became of a table between two of its definitions, and whether its rows changed with it.

The definitions are the catalogue's; the statement's text only tells which columns have another
name now, and whether rows were moved. What is not known to leave each value as it is counts as a
change of rows: then the table is read again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from airflow_cdc_provider.core.schema_changes import Difference, names_behind
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    AttributeKind,
    ParsedColumn,
    parse_create_statement,
)

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_NARROW_CHARSETS = {"ascii", "utf8", "utf8mb3"}
"""Each of their texts is the same characters in utf8mb4."""
_NOT_CONSTANT = {
    AttributeKind.DEFAULT_NOW,
    AttributeKind.DEFAULT_EXPRESSION,
    AttributeKind.AUTO_INCREMENT,
}
_NUMBERS = {TypeKind.INTEGER, TypeKind.DECIMAL, TypeKind.FLOAT}
_QUOTED = re.compile(r"(?:_\w+\s*)?'(.*)'", re.DOTALL)
_PLAIN_DEFAULT = {
    *(TypeKind.INTEGER, TypeKind.BITS, TypeKind.DECIMAL, TypeKind.TEXT, TypeKind.BINARY),
    *(TypeKind.ENUM, TypeKind.SET),
}
"""Kinds whose defaults are the same values on each server, as the catalogue prints them."""


def difference(
    old: TableSchema,
    new: TableSchema,
    statements: Sequence[StatementEffect],
    *,
    keeps_columns: bool = False,
) -> Difference:
    """Return what statements changed between two definitions of a table, and whether rows changed.

    Columns that are left out are nothing to it. Where the sink's table `keeps_columns`, because
    others share it or its rows are never altered, a new one is NULL in the rows that are there.
    """
    left_out = {renamed.casefold() for renamed in _left_out(old, new, statements)}
    old, new = old.as_copied, new.as_copied
    pair = _Pair(old, new, _renames(old, new, statements))
    refused, traded = pair.refusal(), pair.traded()
    if keeps_columns:
        traded = tuple(pair.renames.items())
    if traded:
        pair = _Pair(old, new, {})
        refused = refused or pair.refusal()
    found = Difference(
        added=tuple(name for name in pair.now if name not in pair.was),
        dropped=tuple(c.name for name, c in pair.was.items() if name not in pair.now),
        renamed=tuple(pair.renames.items()),
        modified=tuple(pair.modified()),
        unique_added=_other_keys(pair.unique_now, pair.unique_was),
        unique_dropped=_other_keys(pair.unique_was, pair.unique_now),
        moved="; ".join(dict.fromkeys(_moved_rows(statements))),
        refused=refused or _unknown(statements),
        traded=traded,
    )
    reasons = [*_doubts(statements), *_new_values(found, pair)]
    taken = "and the sink's table keeps its columns" if keeps_columns else "as another column was"
    reasons += [f"{before} is called {after} now, {taken}" for before, after in traded]
    reasons += _filled(found, pair) if keeps_columns else ()
    reasons += [f"{name} was left out before" for name in pair.now if name.casefold() in left_out]
    return replace(found, reread="; ".join(dict.fromkeys(reasons)))


def _left_out(
    old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
) -> Iterator[str]:
    """Yield the columns that were left out of the copy, by their present names."""
    names = _renames(old, new, statements)
    for name in old.ignored:
        yield names.get(name, name)


class _Pair:
    """Two definitions of a table, before and after, with columns by their new names."""

    def __init__(self, old: TableSchema, new: TableSchema, renames: Mapping[str, str]) -> None:
        self.old, self.new, self.renames = old, new, renames
        self.was = {self.now_called(column.name): column for column in old.columns}
        self.now = {column.name: column for column in new.columns}
        self.unique_was = {
            key.name: tuple(map(self.now_called, key.columns)) for key in old.unique_keys
        }
        self.unique_now = {key.name: key.columns for key in new.unique_keys}

    def now_called(self, name: str) -> str:
        """Return the new name of a column."""
        return self.renames.get(name, name)

    def modified(self) -> Iterator[str]:
        """Yield the columns whose type, nullability or expression changed."""
        for name in self.now:
            if name in self.was and not self._is_same(name):
                yield name

    def _is_same(self, name: str) -> bool:
        """Tell whether a column has the same definition in both."""
        old, new = self.was[name], self.now[name]
        if old.generated and new.generated:  # nobody writes it, and each side computes its own
            return _text(self.old, old.name) == _text(self.new, name)
        return (old.type, old.nullable, old.generated) == (new.type, new.nullable, new.generated)

    def refusal(self) -> str:
        """Return why a change cannot be followed, empty if it can."""
        old, new = self.old, self.new
        if tuple(map(self.now_called, old.primary_key)) != new.primary_key:
            return "its key is another one now"
        if _prefixes(old) != _prefixes(new):
            return "its key takes other parts of its columns now"
        for name in self.modified():
            if name in new.primary_key and not _orders_alike(self.was[name], self.now[name]):
                return f"its key column {name} orders otherwise now"
        if old.engine.casefold() != new.engine.casefold():
            return f"its engine is {new.engine} now"
        return ""

    def traded(self) -> tuple[tuple[str, str], ...]:
        """Return all renamed columns if any took a name that another column had before."""
        were = {column.name for column in self.old.columns}
        return tuple(self.renames.items()) if were & {*self.renames.values()} else ()


def _prefixes(schema: TableSchema) -> tuple[int, ...]:
    """Return the lengths of the primary key's column prefixes, 0 for a whole column."""
    return schema.key_prefixes or (0,) * len(schema.primary_key)


def _other_keys(
    keys: Mapping[str, tuple[str, ...]], others: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the names of keys that the others lack, or have with other columns."""
    return tuple(name for name, columns in keys.items() if others.get(name) != columns)


def _renames(
    old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
) -> dict[str, str]:
    """Return the new names of renamed columns by their old ones, as the statements say."""
    if len(statements) == 1:
        renames = statements[0].column_renames
    else:
        renames = tuple((names_behind(old, statements) or {}).items())
    were = {column.name.casefold(): column.name for column in old.columns}
    are = {column.name.casefold(): column.name for column in new.columns}
    pairs = {
        were[before.casefold()]: are[after.casefold()]
        for before, after in renames
        if before.casefold() in were and after.casefold() in are
    }
    return {before: after for before, after in pairs.items() if before != after}


def _text(schema: TableSchema, name: str) -> tuple[str, ...]:
    """Return a column's definition without its name."""
    stated = _stated(schema).get(name)
    return () if stated is None else (stated.type_text, *(a.text for a in stated.attributes))


def _unknown(statements: Sequence[StatementEffect]) -> str:
    """Return why a statement did more than definitions and rows show, empty if none did."""
    alters = (effect for effect in statements if effect.kind is StatementKind.ALTER)
    if all(effect.is_told for effect in alters):
        return ""
    return "the statement does more than its definition and its rows tell"


def _moved_rows(statements: Sequence[StatementEffect]) -> Iterator[str]:
    """Yield why the table's rows may not be those that the log has."""
    for effect in statements:
        if effect.kind is not StatementKind.ALTER:
            yield f"other rows may stand there now ({effect.kind.value})"
        elif effect.unlogged_rows:
            yield "rows came or went that are not in the log"
        elif effect.cascades:
            yield "a foreign key may have changed rows that are not in the log"


def _doubts(statements: Sequence[StatementEffect]) -> Iterator[str]:
    """Yield why two definitions do not show what became of the values."""
    if any(effect.is_doubtful for effect in statements):
        yield "a column may have taken the place of another"
    if len(statements) > 1 and not all(effect.only_adds for effect in statements):
        yield "it was changed more than once"


def _new_values(found: Difference, pair: _Pair) -> Iterator[str]:
    """Yield why added or modified columns may have values that the log does not have."""
    stated = _stated(pair.new)
    for name in found.added:
        if not pair.now[name].generated and not _has_constant(pair.now[name], stated.get(name)):
            yield f"the source has computed the values of {name}"
    for name in found.modified:
        if not _keeps_values(pair.was[name], pair.now[name]):
            yield f"the values of {name} may have been converted"


def _filled(found: Difference, pair: _Pair) -> Iterator[str]:
    """Yield why new columns have values in rows that are there, and not NULL."""
    stated = _stated(pair.new)
    for name in found.added:
        column = pair.now[name]
        is_null = column.nullable and name in stated and _defaults_to_null(stated[name])
        if not (is_null or column.generated):
            yield f"the rows that were there have the default of {name}"


def _stated(schema: TableSchema) -> Mapping[str, ParsedColumn]:
    """Return the parsed columns of a table's definition, by name."""
    if not schema.create_statement:
        return {}
    columns = parse_create_statement(schema.create_statement).columns
    return {column.name: column for column in columns}


def needed_columns(schema: TableSchema, names: Collection[str]) -> Collection[str]:
    """Return those of some columns that each new row has to name: they have no default."""
    stated = _stated(schema)
    own = [column for column in schema.columns if column.name in names]
    return [
        column.name
        for column in own
        if not (column.nullable or column.generated)
        and (
            column.name not in stated or not stated[column.name].has(AttributeKind.DEFAULT_LITERAL)
        )
    ]


def other_defaults(one: TableSchema, other: TableSchema, names: Collection[str]) -> Collection[str]:
    """Return those of some columns that have another constant default in one of two tables."""
    here, there = _defaults(one), _defaults(other)
    lower = {name: name.lower() for name in names}
    return [n for n, key in lower.items() if key in here.keys() & there and here[key] != there[key]]


def _defaults(schema: TableSchema) -> Mapping[str, str | Decimal | None]:
    """Return the constant defaults of a table's columns, by their names in lower case."""
    kinds = {column.name: column.type.kind for column in schema.columns}
    stated = _stated(schema)
    return {name.lower(): _default(stated[name], kinds[name]) for name in stated if name in kinds}


def _default(stated: ParsedColumn, kind: TypeKind) -> str | Decimal | None:
    """Return a column's constant default, however it is spelled; None for NULL or none."""
    texts = [a.text for a in stated.attributes if a.kind is AttributeKind.DEFAULT_LITERAL]
    text = texts[0][len("DEFAULT") :].strip() if texts else "NULL"
    if text.upper() == "NULL":
        return None
    quoted = _QUOTED.fullmatch(text)
    value = text if quoted is None else quoted[1]
    if kind in _NUMBERS:
        with suppress(InvalidOperation):
            return Decimal(value)
    if kind is TypeKind.TEMPORAL and "." in value:  # with or without the zeros of its fraction
        return value.rstrip("0").rstrip(".")
    return value


def _has_constant(column: Column, stated: ParsedColumn | None) -> bool:
    """Tell whether a new column has one constant value, the same at every server."""
    if stated is None or any(stated.has(kind) for kind in _NOT_CONSTANT):
        return False
    if column.nullable and _defaults_to_null(stated):
        return True
    if column.type.name in {*_TEXTS, *_BLOBS}:  # not every server takes their defaults
        return not stated.has(AttributeKind.DEFAULT_LITERAL)
    return column.type.kind in _PLAIN_DEFAULT or _is_date(column, stated)


def _is_date(column: Column, stated: ParsedColumn) -> bool:
    """Tell whether a column is a date or time with a literal default; not a TIMESTAMP."""
    named = column.type.name in {"date", "datetime", "time"}
    return named and stated.has(AttributeKind.DEFAULT_LITERAL)


def _defaults_to_null(stated: ParsedColumn) -> bool:
    """Tell whether a column's default is NULL."""
    defaults = [a.text for a in stated.attributes if a.kind is AttributeKind.DEFAULT_LITERAL]
    return all(text.upper() == "DEFAULT NULL" for text in defaults)


def _keeps_values(old: Column, new: Column) -> bool:
    """Tell whether all values of a column stay the same in its new type."""
    if old.generated and new.generated:
        return True
    if old.generated or new.generated or (old.nullable and not new.nullable):
        return False
    return widens(old.type, new.type)


def widens(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a column type can hold every value of another unchanged."""
    if old == new:
        return True
    if old.is_json_text != new.is_json_text:
        return False
    if old.name in _INTEGERS and new.name in _INTEGERS:
        return _widens_integer(old, new)
    if old.name == new.name == "decimal":
        return _widens_decimal(old, new)
    if old.name == new.name and old.name in {"datetime", "timestamp", "time"}:
        return old.fraction <= new.fraction
    if old.name == new.name and old.name in {"enum", "set"}:
        return _same_charset(old, new) and new.members[: len(old.members)] == old.members
    if old.kind is new.kind is TypeKind.TEXT:
        return _same_charset(old, new) and _widens_text(old, new, "varchar", _TEXTS)
    if old.kind is new.kind is TypeKind.BINARY:
        return _widens_text(old, new, "varbinary", _BLOBS)
    return False


def _widens_integer(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether an integer type can hold every value of another."""
    wider = _INTEGERS.index(new.name) - _INTEGERS.index(old.name)
    if old.unsigned == new.unsigned:
        return wider >= 0
    return old.unsigned and wider > 0


def _widens_decimal(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a DECIMAL type can hold every value of another."""
    scale, new_scale = old.scale or 0, new.scale or 0
    whole, new_whole = (old.precision or 0) - scale, (new.precision or 0) - new_scale
    signs = old.unsigned == new.unsigned or old.unsigned
    return signs and scale <= new_scale and whole <= new_whole


def _same_charset(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether texts of the old charset are the same characters in the new one."""
    if old.charset == new.charset:
        return True
    return old.charset in _NARROW_CHARSETS and new.charset == "utf8mb4"


def _widens_text(old: ColumnType, new: ColumnType, varying: str, large: Sequence[str]) -> bool:
    """Tell whether a text or binary type can hold every value of another."""
    if old.name == new.name:
        return old.name in large or (old.length or 0) <= (new.length or 0)
    if old.name == varying:
        return new.name in large and _room(new, large) >= 4 * (old.length or 0)
    return (
        old.name in large and new.name in large and large.index(old.name) <= large.index(new.name)
    )


def _room(kind: ColumnType, large: Sequence[str]) -> int:
    """Return the bytes that a TEXT or BLOB type can hold."""
    return int((1 << 8 * (large.index(kind.name) + 1)) - 1)


def _orders_alike(old: Column, new: Column) -> bool:
    """Tell whether a key column orders its values in the new type as in the old."""
    same_order = old.type.key_kind is new.type.key_kind
    return same_order and old.type.collation == new.type.collation and widens(old.type, new.type)
