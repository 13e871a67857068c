"""The sink's CREATE TABLE, derived from the source's own definition.

What makes a row what it is stays: columns in their order with types, charsets and collations,
the primary key, generated and invisible columns, checks. Plain indexes stay too. What would
refuse or slow rows that arrive out of order comes after the consistent point, by `deferred_keys`:
secondary unique keys and foreign keys. What belongs to one server is left out: the AUTO_INCREMENT
counter, directories, tablespaces, encryption, statistics settings, and partitions (rows are the
same without them, and a copy's partitioning is its owner's to choose).

Between MySQL and MariaDB a definition is carried over where the meaning is the same. A key
column's collation must be one both families have, under one name or two (`collation_order`):
another order or equality at the sink could merge two rows. Other columns get the nearest
collation; defaults that are expressions, checks and functional indexes, which do not change what
rows hold, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.collation_order import counterpart
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    Attribute,
    AttributeKind,
    KeyForm,
    ParsedColumn,
    ParsedKey,
    ParsedTable,
    not_understood,
    parse_create_statement,
    rendered,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, TokenKind

MARIADB = "mariadb"
MYSQL = "mysql"


class DeferredKind(StrEnum):
    """The kind of key that is added after the consistent point."""

    UNIQUE = "unique"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key's columns, and the table and columns that they refer to at the sink."""

    columns: tuple[str, ...]
    table: TableId
    """As it is called at the sink."""
    referenced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeferredKey:
    """A key of the source that is added to a sink table after the consistent point."""

    kind: DeferredKind
    name: str
    statement: str
    reference: Reference | None = None
    """Of a foreign key."""


def sink_create_statement(schema: TableSchema, target: TableId, *, sink_flavour: str) -> str:
    """Return the CREATE TABLE of the sink's table for the rows of a source table."""
    return _Derivation(schema, sink_flavour).create_statement(target)


def deferred_keys(
    schema: TableSchema,
    target: TableId,
    *,
    sink_flavour: str,
    route: Callable[[TableId], TableId | None],
) -> tuple[DeferredKey, ...]:
    """Return the unique and foreign keys that a sink table gets after the consistent point.

    `route` tells where a referenced table went, None if it is not copied: then neither is the key.
    """
    derivation = _Derivation(schema, sink_flavour)
    return (*derivation.unique_keys(target), *derivation.foreign_keys(target, route))


def column_definition(schema: TableSchema, name: str, *, sink_flavour: str) -> str:
    """Return the definition that a column of the source gets at the sink."""
    return _Derivation(schema, sink_flavour).column(name)


def uncounted_definition(schema: TableSchema, name: str, *, sink_flavour: str) -> str:
    """Return the definition that a column of the source gets while no key lets it count."""
    return _Derivation(schema, sink_flavour).uncounted_column(name)


def counts_from_the_start(schema: TableSchema, name: str) -> bool:
    """Tell whether a column counts at the sink by a key that is there from the start."""
    return _Derivation(schema, schema.flavour).counts_from_the_start(name)


def nullable_definition(schema: TableSchema, name: str, *, sink_flavour: str) -> str:
    """Return a column's definition at the sink with NULL allowed: it gets no more values."""
    return _Derivation(schema, sink_flavour).nullable_column(name)


class _Derivation:
    """Derives a sink table's definition from the source's, across families if need be."""

    def __init__(self, schema: TableSchema, sink_flavour: str) -> None:
        if not schema.create_statement:
            raise ValueError(f"the schema of {schema.table} was read without its statement")
        self.schema = schema
        self.sink_flavour = sink_flavour
        self.crosses = bool(schema.flavour) and schema.flavour != sink_flavour
        self.parsed: ParsedTable = _without(
            parse_create_statement(schema.create_statement), schema.ignored
        )

    def create_statement(self, target: TableId) -> str:
        """Return the CREATE TABLE of the sink's table."""
        self._refuse_periods()
        lines = [self._column(column, counts=self._may_count(column)) for column in self._columns]
        lines += [_as_primary(key, self.parsed) for key in self._serving()]
        for form in (KeyForm.PRIMARY, KeyForm.PLAIN, KeyForm.FULLTEXT, KeyForm.SPATIAL):
            lines += [text for key in self._keys(form) if (text := self._key(key))]
        if not self.crosses:
            # names of checks are unique in a database, and two tables may be routed to one
            lines += [key.text for key in self._keys(KeyForm.CHECK)]
        body = ",\n  ".join(lines)
        return f"CREATE TABLE {quote_table(target)} (\n  {body}\n) {self._options()}"

    def column(self, name: str) -> str:
        """Return a column's definition at the sink."""
        column = self._named(name)
        return self._column(column, counts=self._may_count(column))

    def uncounted_column(self, name: str) -> str:
        """Return a column's definition at the sink without AUTO_INCREMENT."""
        return self._column(self._named(name), counts=False)

    def counts_from_the_start(self, name: str) -> bool:
        """Tell whether a column is AUTO_INCREMENT by a key that is no deferred one."""
        return any(c.name == name and self._may_count(c) for c in self._columns)

    def nullable_column(self, name: str) -> str:
        """Return a column's definition at the sink with NULL as its default."""
        kept = tuple(a for a in self._named(name).attributes if a.kind is AttributeKind.NUMBER)
        column = replace(self._named(name), attributes=kept)
        return f"{self._column(column, counts=False)} NULL DEFAULT NULL"

    def _named(self, name: str) -> ParsedColumn:
        """Return the parsed column of that name."""
        return next(column for column in self._columns if column.name == name)

    def unique_keys(self, target: TableId) -> list[DeferredKey]:
        """Return the unique keys to be added later, with AUTO_INCREMENT where it needs one."""
        found = []
        for key in self._keys(KeyForm.UNIQUE):
            if key in self._serving():
                continue  # it is the primary key at the sink
            text = self._key(key)
            if not text:
                continue
            # a column can count only once its key is there
            counting = [c for c in self._columns if _counts(c) and not self._may_count(c)]
            changes = [f"ADD {text}"]
            changes += [
                f"MODIFY COLUMN {self._column(column, counts=True)}"
                for column in counting
                if _first_column(key) == column.name
            ]
            statement = f"ALTER TABLE {quote_table(target)} {', '.join(changes)}"
            found.append(DeferredKey(DeferredKind.UNIQUE, key.name, statement))
        return found

    def foreign_keys(
        self, target: TableId, route: Callable[[TableId], TableId | None]
    ) -> list[DeferredKey]:
        """Return the foreign keys to be added later, to tables that are copied."""
        found = []
        for key in self._keys(KeyForm.FOREIGN):
            at = next(i for i, token in enumerate(key.tokens) if token.is_word("REFERENCES"))
            names, behind = _name_parts(key.tokens, at + 1)
            database = names[0] if len(names) == 2 else self.schema.table.database
            routed = route(TableId(database, names[-1]))
            if routed is None:
                continue
            text = " ".join(
                (
                    f"ALTER TABLE {quote_table(target)} ADD CONSTRAINT",
                    quote_identifier(key.name),
                    _text(key.tokens[: at + 1], self.parsed),
                    quote_table(routed),
                    _text(key.tokens[behind:], self.parsed),
                )
            )
            reference = Reference(_listed(key.tokens[:at]), routed, _listed(key.tokens[behind:]))
            found.append(DeferredKey(DeferredKind.FOREIGN, key.name, text, reference))
        return found

    def _serving(self) -> list[ParsedKey]:
        """Return the unique key that is the key of a table without a primary one; none or one."""
        name = self.schema.key_name
        return [key for key in self._keys(KeyForm.UNIQUE) if name and key.name == name]

    @property
    def _columns(self) -> tuple[ParsedColumn, ...]:
        """Return the parsed columns of the source's definition."""
        return self.parsed.columns

    def _keys(self, form: KeyForm) -> list[ParsedKey]:
        """Return the parsed keys of a form."""
        return [key for key in self.parsed.keys if key.form is form]

    def _refuse_periods(self) -> None:
        """Refuse periods and system versioning, which cannot be carried over."""
        for key in self._keys(KeyForm.OTHER):
            raise not_understood(key.text, "cannot be carried over")
        if any(token.is_word("VERSIONING") for token in self.parsed.options):
            raise not_understood("WITH SYSTEM VERSIONING", "cannot be carried over")

    def _may_count(self, column: ParsedColumn) -> bool:
        """Tell whether a column can be AUTO_INCREMENT from the start: its key is there."""
        early = (*self._keys(KeyForm.PRIMARY), *self._keys(KeyForm.PLAIN), *self._serving())
        return _counts(column) and any(_first_column(key) == column.name for key in early)

    def _column(self, column: ParsedColumn, *, counts: bool) -> str:
        """Return a column's definition at the sink; `counts`: with AUTO_INCREMENT."""
        parts = [quote_identifier(column.name), self._type(column)]
        parts += [attribute.text for attribute in column.attributes if self._keeps_early(attribute)]
        parts += self._charset(column)
        for attribute in column.attributes:
            if attribute.kind is AttributeKind.AUTO_INCREMENT and not counts:
                continue
            if not self._keeps_early(attribute) and self._keeps(attribute, column):
                parts.append(self._stated(attribute))
        return " ".join(parts)

    def _stated(self, attribute: Attribute) -> str:
        """Return an attribute that is carried over as the sink states it.

        MariaDB takes documents for JSON that MySQL does not, such as `1.`. They are copied.
        """
        lenient = self.crosses and self.sink_flavour == MYSQL
        is_check = attribute.kind is AttributeKind.CHECK
        return f"{attribute.text} NOT ENFORCED" if lenient and is_check else attribute.text

    def _type(self, column: ParsedColumn) -> str:
        """Return a column's type at the sink; one that the sink's family lacks is refused."""
        foreign = {"uuid", "inet4", "inet6", "xmltype"}
        if self.crosses and self.sink_flavour == MYSQL and column.type_name in foreign:
            raise not_understood(column.type_text, f"is a type {self.sink_flavour} does not have")
        if self.crosses and column.type_name == "geomcollection":
            return "geometrycollection"
        return column.type_text

    def _keeps_early(self, attribute: Attribute) -> bool:
        """Tell whether an attribute comes before the charset: UNSIGNED or ZEROFILL."""
        return attribute.kind is AttributeKind.NUMBER

    def _keeps(self, attribute: Attribute, column: ParsedColumn) -> bool:
        """Tell whether an attribute of a column is carried over to the sink."""
        kind = attribute.kind
        if kind is AttributeKind.ROW_PERIOD:
            raise not_understood(f"{column.name} {attribute.text}", "cannot be carried over")
        if kind in {AttributeKind.CHARSET, AttributeKind.COLLATION}:
            return False
        if "nextval" in attribute.text.lower() and kind is AttributeKind.DEFAULT_EXPRESSION:
            return False  # the sequence stays at the source
        if not self.crosses:
            return True
        if kind is AttributeKind.CHECK:
            return self._is_json_text(column)
        if kind is AttributeKind.NULLABILITY:
            # MariaDB takes no NOT NULL on a generated column
            return not (column.has(AttributeKind.GENERATED) and self.sink_flavour == MARIADB)
        if kind is AttributeKind.DEFAULT_LITERAL:
            # MariaDB gives texts literal defaults, MySQL does not take them
            is_long = column.type_name.endswith(("text", "blob"))
            return not is_long or attribute.text.upper() == "DEFAULT NULL"
        return kind not in {
            AttributeKind.DEFAULT_EXPRESSION,
            AttributeKind.REFERENCE_SYSTEM,
            AttributeKind.STORAGE,
        }

    def _is_json_text(self, column: ParsedColumn) -> bool:
        """Tell whether a column is MariaDB's JSON, a text with a check."""
        return any(c.name == column.name and c.type.is_json_text for c in self.schema.columns)

    def _charset(self, column: ParsedColumn) -> list[str]:
        """Return a column's charset and collation clauses, both always stated."""
        found = next((c for c in self.schema.columns if c.name == column.name), None)
        if found is None or found.type.charset is None or found.type.collation is None:
            return []
        collation = self._collation(found.type.collation, found.type.charset)
        if column.name in self.schema.primary_key and found.type.key_kind is KeyKind.TEXT:
            collation = self._key_collation(column.name, found.type.collation)
        return [f"CHARACTER SET {found.type.charset}", f"COLLATE {collation}"]

    def _key_collation(self, column: str, collation: str) -> str:
        """Return the sink's collation that orders keys as the source's.

        Refused if there is none.
        """
        if not self.crosses:
            return collation
        found = counterpart(collation, self.schema.flavour, self.sink_flavour)
        if found is None:
            raise UnsupportedTableError(
                f"key column {column} of {self.schema.table} has the collation {collation}, "
                f"whose order {self.sink_flavour} does not have, or not under a name that is known",
                where=f"table {self.schema.table}",
                risk="another order or equality of keys at the sink could merge two rows",
                remedy="give the column a collation both have, such as utf8mb4_bin or "
                "utf8mb4_unicode_ci, or make it VARBINARY",
            )
        return found

    def _collation(self, collation: str, charset: str) -> str:
        """Return the sink's same collation, or the nearest one."""
        if not self.crosses:
            return collation
        if charset == "gb18030":
            raise not_understood("gb18030", f"is a charset {self.sink_flavour} does not have")
        found = counterpart(collation, self.schema.flavour, self.sink_flavour)
        if found is not None:
            return found
        nearest = _near_in_mariadb if self.sink_flavour == MARIADB else _near_in_mysql
        return nearest(collation, charset)

    def _key(self, key: ParsedKey) -> str:
        """Return a key's text at the sink, empty if the sink's family cannot have it."""
        if not self.crosses:
            return key.text
        if self.sink_flavour == MARIADB and _is_functional(key):
            return ""
        # visibility and parsers are written differently by each family
        ends = ("INVISIBLE", "VISIBLE", "IGNORED", "NOT", "WITH")
        kept = []
        for token in key.tokens:
            if token.is_word(*ends):
                break
            kept.append(token)
        return _text(tuple(kept), self.parsed)

    def _options(self) -> str:
        """Return the table options at the sink: engine, charset, comment and row format."""
        parts = ["ENGINE=InnoDB"]
        if self.schema.collation:
            charset = self.schema.collation.split("_", 1)[0]
            collation = self._collation(self.schema.collation, charset)
            parts.append(f"DEFAULT CHARSET={charset} COLLATE={collation}")
        options = self.parsed.options
        for at, token in enumerate(options):
            if token.is_word("PARTITION"):
                break
            named = at + 2 < len(options) and options[at + 1].is_mark("=")
            value = options[at + 2] if named else token
            if named and token.is_word("COMMENT") and value.kind is TokenKind.STRING:
                parts.append(_text((token, options[at + 1], value), self.parsed))
            elif named and token.is_word("ROW_FORMAT") and value.is_word(*_ROW_FORMATS):
                parts.append(f"ROW_FORMAT={value.text}")
        return " ".join(parts)


_ROW_FORMATS = ("DYNAMIC", "COMPACT", "REDUNDANT")


def _near_in_mariadb(collation: str, charset: str) -> str:
    """Return MariaDB's collation that is nearest to one of MySQL's."""
    if "_0900_" not in collation:
        return collation
    if collation.endswith("_bin"):
        return f"{charset}_nopad_bin"
    strength = "as_cs" if "_as_cs" in collation else "as_ci" if "_as_ci" in collation else "ai_ci"
    return f"{charset}_uca1400_nopad_{strength}"


def _near_in_mysql(collation: str, charset: str) -> str:
    """Return MySQL's collation that is nearest to one of MariaDB's."""
    if "uca1400" in collation:
        if charset != "utf8mb4":
            return f"{charset}_unicode_520_ci"
        strength = "ai_ci" if "_ai_ci" in collation else "as_ci" if "_as_ci" in collation else ""
        return f"{charset}_0900_{strength or 'as_cs'}"
    if collation == "utf8mb4_nopad_bin":
        return "utf8mb4_0900_bin"
    return collation.replace("_nopad", "")


def _without(parsed: ParsedTable, left_out: Collection[str]) -> ParsedTable:
    """Return a definition without some columns, and without the keys that name them."""
    if not left_out:
        return parsed
    return replace(
        parsed,
        columns=tuple(column for column in parsed.columns if column.name not in left_out),
        keys=tuple(key for key in parsed.keys if not _names(key) & {*left_out}),
    )


def _names(key: ParsedKey) -> set[str]:
    """Return the names in a key or check: its columns, and maybe names of expressions."""
    tokens = key.tokens
    behind = next((i for i, t in enumerate(tokens) if t.is_word("REFERENCES")), len(tokens))
    opening = next((i for i, t in enumerate(tokens) if t.is_mark("(")), len(tokens))
    return {token.text for token in tokens[opening:behind] if token.is_name}


def _as_primary(key: ParsedKey, parsed: ParsedTable) -> str:
    """Return a unique key's columns as a primary key."""
    opening = next(i for i, token in enumerate(key.tokens) if token.is_mark("("))
    closing = max(i for i, token in enumerate(key.tokens) if token.is_mark(")"))
    return f"PRIMARY KEY {_text(key.tokens[opening : closing + 1], parsed)}"


def _counts(column: ParsedColumn) -> bool:
    """Tell whether a column is AUTO_INCREMENT."""
    return column.has(AttributeKind.AUTO_INCREMENT)


def _first_column(key: ParsedKey) -> str:
    """Return a key's first column."""
    opening = next((i for i, t in enumerate(key.tokens) if t.is_mark("(")), len(key.tokens))
    return key.tokens[opening + 1].text if opening + 1 < len(key.tokens) else ""


def _is_functional(key: ParsedKey) -> bool:
    """Tell whether a key has an expression among its parts."""
    pairs = zip(key.tokens, key.tokens[1:], strict=False)
    return any(
        (left.is_mark("(") or left.is_mark(",")) and right.is_mark("(") for left, right in pairs
    )


def _name_parts(parts: tuple[Token, ...], at: int) -> tuple[list[str], int]:
    """Return the parts of a qualified name at `at`, and the place after it."""
    names = [parts[at].text]
    at += 1
    while at + 1 < len(parts) and parts[at].is_mark("."):
        names.append(parts[at + 1].text)
        at += 2
    return names, at


def _listed(parts: tuple[Token, ...]) -> tuple[str, ...]:
    """Return the names in the first list in parentheses."""
    opening = next(i for i, token in enumerate(parts) if token.is_mark("("))
    closing = next(i for i, token in enumerate(parts) if token.is_mark(")"))
    return tuple(token.text for token in parts[opening + 1 : closing] if token.is_name)


def _text(parts: tuple[Token, ...], parsed: ParsedTable) -> str:
    """Return tokens of a definition as text."""
    return rendered(parts, parsed.statement)
