"""The CREATE TABLE of a table that differs at the sink, in the source's own dialect.

It is made from the source's statement, so that types, defaults and comments are the source's own
words; what makes a sink's statement of a source's then makes one of this, in either family. Left
out are keys, checks and computed columns over columns that are not there as they were, and all
foreign keys: rows that are filtered, or that are only marked as deleted, would not meet them.

The statement of a shard is one for a table that others share. A column that they lack is NULL in
their rows, so none has a default, a check or an expression of its own; and a unique key is a plain
one, because they may have its columns without the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.core.table_shape import MaskKind, OutputColumn, TableShape
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    Attribute,
    AttributeKind,
    KeyForm,
    ParsedColumn,
    ParsedKey,
    parse_create_statement,
    rendered,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, TokenKind, tokens
from airflow_cdc_provider.systems.mysql.dialect.type_text import type_text

_VALUES = {
    AttributeKind.NULLABILITY,
    AttributeKind.DEFAULT_LITERAL,
    AttributeKind.DEFAULT_NOW,
    AttributeKind.DEFAULT_EXPRESSION,
    AttributeKind.ON_UPDATE,
}
"""What says which values a column has where none is written."""
_OF_ONE_TABLE = {*_VALUES, AttributeKind.CHECK, AttributeKind.INVISIBLE}
"""What a column of a table that is shared does not have."""
_WITHOUT_LENGTH = {MaskKind.NULL, MaskKind.SHA256}
_LONGEST_NAME = 64
_NAMED = re.compile("[\u0001-\uffff]*")
_OF_THE_TYPE = {AttributeKind.NUMBER, AttributeKind.CHARSET, AttributeKind.COLLATION}


def with_statement(target: TableSchema, schema: TableSchema, shape: TableShape) -> TableSchema:
    """Return a sink's definition with its CREATE TABLE, made from that of the source's `schema`.

    Computed columns over columns that are not there as they were are left out.
    """
    if shape.is_identity or not schema.create_statement:
        return target
    return _Shaped(target, schema, shape).definition()


def require_unpadded(schema: TableSchema, shape: TableShape) -> None:
    """Raise `ValueError` for a mask of bytes that the server would fill up with zeros again."""
    for each in shape.columns:
        if each.mask is None or each.mask.kind in _WITHOUT_LENGTH or not each.source:
            continue
        kind = schema.column(each.source).type
        is_fixed = each.mask.kind is MaskKind.FIXED
        kept = len(each.mask.text.encode()) if is_fixed else each.mask.length
        if kind.name == "binary" and kept < (kind.length or 1):
            raise ValueError(
                f"{each.source} of {schema.table} is padded with zeros to {kind.length} bytes: "
                "it can be masked by SHA-256 or NULL"
            )


def require_names(schema: TableSchema, shape: TableShape) -> None:
    """Raise `ValueError` for a name that no server takes for a column."""
    for name in (*(each.name for each in shape.columns), *shape.marks):
        if not 0 < len(name) <= _LONGEST_NAME or name.endswith(" ") or not _NAMED.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of a column of {schema.table} at the sink: it has 1 to "
                f"{_LONGEST_NAME} characters of the basic plane, and no blank at its end"
            )


class _Shaped:
    """Makes the statement of one table from the source's."""

    def __init__(self, target: TableSchema, schema: TableSchema, shape: TableShape) -> None:
        self._target = target
        self._schema = schema
        self._shape = shape
        self._parsed = parse_create_statement(schema.create_statement)
        self._stated = {column.name: column for column in self._parsed.columns}
        outputs = [each for each in shape.columns_of(schema) if each.source]
        nulled = {each.source: each.name for each in outputs if _is_nulled(each)}
        named = {**nulled, **shape.names_of(schema), **_computed_names(target)}
        self._names = {source.casefold(): name for source, name in named.items()}
        self._gone = {column.name.casefold() for column in schema.columns} - self._names.keys()
        for column in filter(lambda each: each.generated, target.columns):
            self._note_computed(column.name)  # in order: one may be computed from another

    def definition(self) -> TableSchema:
        """Return the sink's definition with its statement."""
        columns = dict(self._columns())
        kept = tuple(column for column in self._target.columns if column.name in columns)
        body = ",\n  ".join((*columns.values(), *self._keys()))
        statement = (
            f"CREATE TABLE {quote_table(self._target.table)} (\n  {body}\n) {self._options()}"
        )
        return replace(self._target, columns=kept, create_statement=statement)

    def _note_computed(self, name: str) -> None:
        """Note a computed column as gone if a column that it is computed from is."""
        attributes = self._stated[name].attributes
        texts = [each.text for each in attributes if each.kind is AttributeKind.GENERATED]
        if not all(self._has_all(tokens(text)) for text in texts):
            self._gone.add(name.casefold())

    def _columns(self) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of the columns in the sink's order."""
        outputs = {each.name: each for each in self._shape.columns_of(self._schema)}
        for column in self._target.columns:
            output = outputs.get(column.name)
            if output is None and column.generated:
                stated = self._stated[column.name]
                if column.name.casefold() not in self._gone:
                    yield column.name, self._column(column, stated, None)
            elif output is None or not output.source or output.is_hashed:
                yield column.name, added_column(column)
            else:
                stated = self._stated[output.source]
                yield column.name, self._column(column, stated, output)

    def _column(self, column: Column, stated: ParsedColumn, output: OutputColumn | None) -> str:
        """Return a column that the source has, by its name at the sink."""
        kept = [each for each in stated.attributes if self._keeps(each, column, output)]
        early = [self._named(each.text) for each in kept if each.kind in _OF_THE_TYPE]
        late = [self._named(each.text) for each in kept if each.kind not in _OF_THE_TYPE]
        if not column.generated:
            early.append("NULL" if column.nullable else "NOT NULL")
        return " ".join((quote_identifier(column.name), stated.type_text, *early, *late))

    def _keeps(self, attribute: Attribute, column: Column, output: OutputColumn | None) -> bool:
        """Tell whether a column has an attribute at the sink, but for NULL and NOT NULL."""
        kind = attribute.kind
        if self._shape.shard and kind in _OF_ONE_TABLE:
            # MariaDB's check makes its JSON what it is
            is_masked = output is not None and output.mask is not None
            return kind is AttributeKind.CHECK and column.type.is_json_text and not is_masked
        if kind is AttributeKind.NULLABILITY:
            return column.generated
        if kind is AttributeKind.AUTO_INCREMENT:
            return False
        if kind in _VALUES and output is not None:
            if _is_nulled(output):
                return False
            if not column.nullable and attribute.text.upper() == "DEFAULT NULL":
                return False  # it is in the sink's key
        if kind is AttributeKind.CHECK and output is not None and output.mask is not None:
            return _is_nulled(output) and self._has_all(tokens(attribute.text))
        return kind is AttributeKind.GENERATED or self._has_all(tokens(attribute.text))

    def _keys(self) -> Iterator[str]:
        """Yield the primary key, and the other keys and checks whose columns are all there."""
        unique = {self._target.key_name, *(key.name for key in self._target.unique_keys)}
        shape = self._shape
        has_own_key = bool(shape.key or shape.shard or shape.hashes_key_of(self._schema))
        if has_own_key:
            yield f"PRIMARY KEY ({', '.join(self._key_parts())})"
        for key in self._parsed.keys:
            if self._shape.shard and key.form is not KeyForm.PRIMARY:
                yield from self._shared_key(key)
            elif key.form is KeyForm.UNIQUE:
                if key.name in unique:
                    yield self._key(key)
            elif key.form is KeyForm.PRIMARY and has_own_key:
                continue
            elif key.form is not KeyForm.FOREIGN and self._has_all(_grouped(key)[1]):
                yield self._key(key)

    def _key_parts(self) -> Iterator[str]:
        """Yield the columns of the sink's own key, with the lengths of prefixes."""
        key = self._target.primary_key
        prefixes = self._target.key_prefixes or (0,) * len(key)
        for name, prefix in zip(key, prefixes, strict=True):
            yield quote_identifier(name) + (f"({prefix})" if prefix else "")

    def _shared_key(self, key: ParsedKey) -> Iterator[str]:
        """Yield a secondary key as a table has it that is shared: as a plain one; maybe none."""
        before, group, _ = _grouped(key)
        if key.form not in {KeyForm.UNIQUE, KeyForm.PLAIN, KeyForm.FULLTEXT}:
            return  # a SPATIAL key takes no NULL
        if not group or not self._has_all(group) or _has_expression(group):
            return
        if key.form is KeyForm.UNIQUE:
            if key.name == self._schema.key_name:
                return
            before = tuple(token for token in before if not token.is_word("UNIQUE"))
        statement = self._parsed.statement
        yield f"{rendered(before, statement)} {rendered(group, statement, self._names)}"

    def _key(self, key: ParsedKey) -> str:
        """Return a key or a check with its own name, over the sink's columns."""
        before, group, behind = _grouped(key)
        statement = self._parsed.statement
        text = f"{rendered(before, statement)} {rendered(group, statement, self._names)}"
        text += f" {rendered(behind, statement)}" if behind else ""
        is_named = key.form is KeyForm.CHECK and key.name
        return f"CONSTRAINT {quote_identifier(key.name)} {text}" if is_named else text

    def _has_all(self, parts: Iterable[Token]) -> bool:
        """Tell whether all columns that a text names are there, with their values or only NULLs."""
        names = {token.text.casefold() for token in parts if token.kind is TokenKind.NAME}
        return not names & self._gone

    def _named(self, text: str) -> str:
        """Return a text of the source's statement by the sink's names."""
        return rendered(tuple(tokens(text)), text, self._names)

    def _options(self) -> str:
        """Return the source's options, without its partitions."""
        options = self._parsed.options
        end = next((i for i, each in enumerate(options) if each.is_word("PARTITION")), len(options))
        return rendered(options[:end], self._parsed.statement)


def _is_nulled(output: OutputColumn) -> bool:
    """Tell whether all values of a column are NULL at the sink."""
    return output.mask is not None and output.mask.kind is MaskKind.NULL


def _computed_names(target: TableSchema) -> Mapping[str, str]:
    """Map each generated column of a sink to its own name: these are not renamed."""
    return {column.name: column.name for column in target.columns if column.generated}


def _grouped(key: ParsedKey) -> tuple[Sequence[Token], Sequence[Token], Sequence[Token]]:
    """Return a key's tokens before its list of columns or its check, those of it, and the rest."""
    start = next((i for i, each in enumerate(key.tokens) if each.is_mark("(")), len(key.tokens))
    depth = 0
    for end in range(start, len(key.tokens)):
        depth += key.tokens[end].is_mark("(") - key.tokens[end].is_mark(")")
        if depth == 0:
            return key.tokens[:start], key.tokens[start : end + 1], key.tokens[end + 1 :]
    return key.tokens, (), ()


def _has_expression(group: Sequence[Token]) -> bool:
    """Tell whether a key's list of columns has an expression among them."""
    pairs = pairwise(group[1:])
    return any(left.is_mark(",") and right.is_mark("(") for left, right in pairs) or (
        len(group) > 1 and group[1].is_mark("(")
    )


def added_column(column: Column) -> str:
    """Return the definition of a column that the source does not have."""
    default = "" if column.nullable else " NOT NULL"
    return f"{quote_identifier(column.name)} {_type_text(column.type)}{default}"


def _type_text(kind: ColumnType) -> str:
    """Return the SQL of one of a sink's types for added columns."""
    if kind.charset is None:
        return type_text(kind)
    return f"{type_text(kind)} CHARACTER SET {kind.charset} COLLATE {kind.collation}"
