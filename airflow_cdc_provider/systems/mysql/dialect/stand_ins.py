"""Types that a sink lacks, and the types that hold their values there.

The values of these types travel in one form everywhere: UUID, INET4 and INET6 as the text that
MariaDB prints, VECTOR as its bytes. A column of the sink that keeps such a text or such bytes
unchanged therefore holds every value. The texts are ASCII with a collation that compares bytes, so
equal texts are equal values, in keys too. A VECTOR becomes a BLOB, which does not count towards the
size of a row and is long enough for each VECTOR, so a wider one needs no change there.

A definition is changed as text and as columns, before the sink's statements are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import Comparison, RowFilter, leaves_in
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.systems.mysql.dialect.addresses import canonical_text
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    Attribute,
    AttributeKind,
    ParsedColumn,
    parse_create_statement,
    parts_of,
    rendered,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind, tokens
from airflow_cdc_provider.systems.mysql.dialect.type_text import type_text

TEXT_LENGTHS: Mapping[str, int] = {"uuid": 36, "inet4": 15, "inet6": 39}
"""Types whose values are ASCII texts, and the characters of the longest one."""
_SINCE = {"inet6": (10, 5, 0), "uuid": (10, 7, 0), "inet4": (10, 10, 0)}
"""The first version of MariaDB that has each."""
_VECTORS_IN_MYSQL, _VECTORS_IN_MARIADB = (9, 0, 0), (11, 7, 1)
_BLOBS = {"tinyblob": 255, "blob": 65535, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1}
_LONGEST = {"char": 255, "varchar": 16383, "varbinary": 65535}
_FLOAT_BYTES = 4
_MOST_DIMENSIONS = 16383
_NAMED = re.compile(r"(char|varchar|varbinary) ?\( ?([0-9]{1,5}) ?\)|(tiny|medium|long)?blob")


def lacked_types(
    source_family: str, *, is_mariadb: bool, version: tuple[int, int, int]
) -> frozenset[str]:
    """Return the types of the other family, or of later versions, that a sink's server lacks.

    `is_mariadb` and `version` are the sink's. MariaDB's VECTOR has a fixed number of dimensions,
    and MySQL's a greatest number of them, so MariaDB does not have MySQL's.
    """
    if not is_mariadb:
        return frozenset({*TEXT_LENGTHS, *(["vector"] if version < _VECTORS_IN_MYSQL else [])})
    lacked = {name for name, since in _SINCE.items() if version < since}
    if source_family != "mariadb" or version < _VECTORS_IN_MARIADB:
        lacked.add("vector")
    return frozenset(lacked)


def stand_in(kind: ColumnType) -> ColumnType:
    """Return the type that holds every value of a type that the sink lacks."""
    if kind.name == "vector":
        return mysql_type("blob")
    name = "char" if kind.name == "uuid" else "varchar"
    return _text_type(name, TEXT_LENGTHS[kind.name])


def may_be_named(kind: ColumnType) -> bool:
    """Tell whether another type may be named for columns of this type."""
    return kind.name == "vector" or kind.name in TEXT_LENGTHS


def named_types(schema: TableSchema, shape: TableShape) -> Mapping[str, ColumnType]:
    """Return the types that a shape names for columns of the sink, by the names there.

    `ValueError` names the column whose values such a type does not all hold.
    """
    found = {}
    for name, (source, text) in shape.types.items():
        try:
            found[name] = named_type(text, schema.column(source).type)
        except ValueError as error:
            raise ValueError(f"the type of {source} of {schema.table}: {error}") from None
    return found


def named_type(text: str, kind: ColumnType) -> ColumnType:
    """Parse the type that a person names for a column of type `kind`.

    `ValueError` says why it does not hold every value, and what may be written.
    """
    if not may_be_named(kind):
        raise ValueError(
            f"it is {type_text(kind)}, and another type can be named for UUID, INET4, INET6 and "
            "VECTOR only"
        )
    named, wanted = parse_type(text), smallest(kind)
    if not stands_in(named, kind):
        raise ValueError(
            f"{text} does not hold every {type_text(kind).upper()}; the smallest that does is "
            f"{wanted}"
        )
    return named


def parse_type(text: str) -> ColumnType:
    """Parse a type that a person may name; `ValueError` says which ones there are."""
    found = _NAMED.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is no type that can be named: write char(n) or varchar(n) for texts, "
            "varbinary(n), blob, mediumblob or longblob for a VECTOR"
        )
    name, digits = found[1], found[2]
    if name is None:
        return mysql_type(found[0])
    length = int(digits)
    if not 1 <= length <= _LONGEST[name]:
        raise ValueError(f"{text!r}: a {name} has a length of 1 to {_LONGEST[name]}")
    return mysql_type(name, length=length) if name == "varbinary" else _text_type(name, length)


def smallest(kind: ColumnType) -> str:
    """Return the smallest type that can be named for a type, as text."""
    if kind.name == "vector":
        return f"varbinary({_most_bytes(kind)})"
    return f"{'char' if kind.name == 'uuid' else 'varchar'}({TEXT_LENGTHS[kind.name]})"


def stands_in(sink: ColumnType, source: ColumnType) -> bool:
    """Tell whether a type of another name holds each value of a UUID, INET4, INET6 or VECTOR."""
    if source.name == "vector":
        room = sink.length if sink.name == "varbinary" else _BLOBS.get(sink.name)
        return room is not None and room >= _most_bytes(source)
    if source.name not in TEXT_LENGTHS or sink.name not in {"char", "varchar"}:
        return False
    is_text = sink.charset not in {None, "binary"}
    return is_text and (sink.length or 0) >= TEXT_LENGTHS[source.name]


def _most_bytes(kind: ColumnType) -> int:
    """Return the bytes of a VECTOR's longest value."""
    return _FLOAT_BYTES * (kind.length or _MOST_DIMENSIONS)


def _text_type(name: str, length: int) -> ColumnType:
    """Return a type for ASCII texts that are equal where their bytes are."""
    return mysql_type(name, length=length, charset="ascii", collation="ascii_bin")


# --- a whole definition ------------------------------------------------------------------------


def carried(plan: TablePlan, lacked: Collection[str]) -> TablePlan:
    """Return a plan whose target has none of the types that the sink's server lacks.

    `UnsupportedTableError` names a computed column that depends on such a type.
    """
    types = lacking_columns(plan.target, lacked)
    if not types:
        return plan
    try:
        return replace(plan, target=with_types(plan.target, types))
    except ValueError as error:
        raise UnsupportedTableError(
            f"{plan.schema.table}: {error}",
            where=f"definition of {plan.schema.table}",
            risk="the sink would compute other values, or none; nothing was created",
            remedy="leave that column out, in the pipeline file under tables: "
            f'"{plan.schema.table}": {{columns: {{exclude: [...]}}}}',
        ) from None


def lacking_columns(schema: TableSchema, lacked: Collection[str]) -> Mapping[str, ColumnType]:
    """Return the stand-ins of the columns whose types the sink's server lacks."""
    return {c.name: stand_in(c.type) for c in schema.columns if c.type.name in lacked}


def with_types(target: TableSchema, types: Mapping[str, ColumnType]) -> TableSchema:
    """Return a definition with other types of some columns, in its columns and its statement.

    `ValueError` names a computed column that has such a type, or depends on a column that does.
    """
    _require_plain(target, types)
    columns = (
        replace(column, type=types[column.name]) if column.name in types else column
        for column in target.columns
    )
    statement = _with_types_stated(target, types) if target.create_statement else ""
    return replace(target, columns=tuple(columns), create_statement=statement)


def has_expression_default(schema: TableSchema, name: str) -> bool:
    """Tell whether a column's default is an expression, which other families do not get."""
    if not schema.create_statement:
        return False
    stated = {each.name: each for each in parse_create_statement(schema.create_statement).columns}
    return name in stated and stated[name].has(AttributeKind.DEFAULT_EXPRESSION)


def _require_plain(target: TableSchema, types: Collection[str]) -> None:
    """Raise `ValueError` for a computed column that would compute from, or be, another type."""
    changed = {name.casefold() for name in types}
    computed = {c.name for c in target.as_copied.columns if c.generated}
    if not computed:
        return
    own = sorted(computed & {*types})
    if own:
        raise ValueError(f"{own[0]} is computed, and the sink does not have its type")
    if not target.create_statement:
        return
    for column in parse_create_statement(target.create_statement).columns:
        if column.name not in computed:
            continue
        texts = (a.text for a in column.attributes if a.kind is AttributeKind.GENERATED)
        if named := sorted(changed & {name for text in texts for name in _names(text)}):
            raise ValueError(
                f"{column.name} is computed from {named[0]}, which has another type at the sink"
            )


def _with_types_stated(target: TableSchema, types: Mapping[str, ColumnType]) -> str:
    """Return a CREATE TABLE with other types of some columns; checks of these are left out."""
    statement = target.create_statement
    items, options = parts_of(statement)
    parsed = {column.name: column for column in parse_create_statement(statement).columns}
    changed = {name.casefold() for name in types}
    texts = []
    for item in items:
        text, is_column = rendered(item, statement), item[0].kind is TokenKind.NAME
        if is_column and item[0].text in types:
            text = _stated(parsed[item[0].text], types[item[0].text])
        elif any(token.is_word("CHECK") for token in item[:3]) and changed & _names(text):
            continue
        texts.append(text)
    body = ",\n  ".join(texts)
    made = f"CREATE TABLE {quote_table(target.table)} (\n  {body}\n) "
    return made + rendered(options, statement)


def _stated(column: ParsedColumn, kind: ColumnType) -> str:
    """Return a column's definition with another type."""
    charset = f" CHARACTER SET {kind.charset} COLLATE {kind.collation}" if kind.charset else ""
    kept = [attribute.text for attribute in column.attributes if _keeps(attribute, kind)]
    return " ".join((quote_identifier(column.name), type_text(kind) + charset, *kept))


def _keeps(attribute: Attribute, kind: ColumnType) -> bool:
    """Tell whether a column keeps an attribute with another type."""
    if attribute.kind in {AttributeKind.CHARSET, AttributeKind.COLLATION, AttributeKind.CHECK}:
        return False
    if attribute.kind is AttributeKind.DEFAULT_EXPRESSION:
        return kind.charset is not None  # to_vector() gives no BLOB
    return True


def _names(text: str) -> set[str]:
    """Return the quoted names in a text of a definition, in folded case."""
    return {token.text.casefold() for token in tokens(text) if token.kind is TokenKind.NAME}


# --- conditions on rows ------------------------------------------------------------------------


def require_as_printed(schema: TableSchema, where: RowFilter) -> None:
    """Raise `ValueError` for a filter with an address or UUID that MariaDB prints otherwise.

    Values are compared as texts, so `::FFFF:1` or `0:0::1` would be equal to no row.
    """
    for each in leaves_in(where):
        kind = schema.column(each.column).type.name
        if kind in TEXT_LENGTHS and isinstance(each, Comparison):
            wanted = canonical_text(kind, str(each.value))
            if wanted is None:
                raise ValueError(f"{each.value!r} is no {kind.upper()}, as {each.column} has them")
            if wanted != each.value:
                raise ValueError(
                    f"{each.column} is compared with {each.value!r}, which the server prints as "
                    f"{wanted!r}: write it so"
                )
