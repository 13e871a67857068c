"""Read tables' definitions from the catalogue into `TableSchema`.

One query of each kind for a whole database: tables, columns, indexes and, on MariaDB, the checks
that make a LONGTEXT a JSON. The primary key is in index order, which may differ from column
order. A table without one has the key that the pipeline file names for it (`keys`), else the one
that its server takes for it, if there is any. SHOW CREATE TABLE costs one statement a table and is
asked for only when wanted; it is no part of a schema's fingerprint.

MySQL takes that text for utf8mb3 and converts it for the session, so a character of four bytes in
an expression arrives as `????`, and the sink would compute other values. The text itself is right,
and is asked for unconverted. What is lost before that is for `preflight.definitions` to find.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    RefusedError,
    SchemaMovedError,
    UnsupportedTableError,
)
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.core.table_picks import in_file
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, UniqueKey
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.server.catalogue import (
    name_conditions,
    stored_names,
    table_facts,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role, query
from airflow_cdc_provider.systems.mysql.server.privileges import account_name
from airflow_cdc_provider.systems.mysql.server.raw_connection import is_mariadb
from airflow_cdc_provider.systems.mysql.server.unique_indexes import (
    PRIMARY,
    IndexPart,
    KeyChoice,
    UniqueIndex,
    named_key,
    problem_in_statement,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

EXPRESSION = "(expression)"
"""Stands for a functional part of a unique key."""

_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_NUMBERS = re.compile(r"\((\d+)(?:,(\d+))?\)")
_JSON_CHECK = re.compile(r"\s*json_valid\(`(?P<column>(?:[^`]|``)+)`\)\s*", re.IGNORECASE)
_WITH_FRACTION = {"time", "datetime", "timestamp"}
_WITH_MEMBERS = {"enum", "set"}
_NO_SUCH_TABLE = 1146
_AWAY_S = 2.0
_LOOKS = 5
"""How often a table may be altered, or missing with the catalogue having it right afterwards."""


_ReadTables = Callable[[set[TableId]], dict[TableId, TableSchema]]
"""Reads tables' definitions from the catalogue, by their stored names."""


def read_schema(
    connection: ServerConnection,
    table: TableId,
    *,
    with_statement: bool = False,
    role: Role = Role.SOURCE,
    keys: NamedKeys = NO_NAMED_KEYS,
) -> TableSchema:
    """Return one table's definition; a missing table is refused."""
    found = read_schemas(connection, [table], with_statement=with_statement, role=role, keys=keys)
    if table not in found:
        raise RefusedError(
            f"table {table} does not exist on the {role}, or the account may not see it",
            where=f"{connection.host}:{connection.port}",
            remedy="check the name (case counts where the server says so) and the grants",
        )
    return found[table]


def read_schemas(
    connection: ServerConnection,
    tables: Iterable[TableId],
    *,
    with_statement: bool = True,
    role: Role = Role.SOURCE,
    keys: NamedKeys = NO_NAMED_KEYS,
) -> dict[TableId, TableSchema]:
    """Return these tables' definitions; missing tables are left out.

    `keys` are those that a pipeline file names for tables of its source; a sink has none.
    `SchemaMovedError` if a table is altered again and again meanwhile.
    """
    stored = stored_names(connection, tables, role=role)
    named = _named(connection, stored, keys, role)

    def read(tables: set[TableId]) -> dict[TableId, TableSchema]:
        return _read(connection, tables, role, named)

    found = read(set(stored.values()))
    if with_statement:
        found = _with_statements(connection, found, role, read)
    else:
        found = _surely_keyless(found, read)
    asked = sorted(table for table, name in stored.items() if name in found)
    return {table: replace(found[stored[table]], table=table) for table in asked}


def _surely_keyless(
    found: dict[TableId, TableSchema], read: _ReadTables
) -> dict[TableId, TableSchema]:
    """Return the definitions, those without a key as the catalogue says them twice.

    A table that is dropped between the catalogue's answers has columns and no key.
    """
    unsure = {table for table, schema in found.items() if not schema.primary_key}
    while unsure:
        again = read(unsure)
        same = {table for table in unsure if again.get(table) == found[table]}
        found = {name: schema for name, schema in found.items() if name not in unsure} | again
        unsure = {table for table, schema in again.items() if not schema.primary_key} - same
    return found


def _with_statements(
    connection: ServerConnection, found: dict[TableId, TableSchema], role: Role, read: _ReadTables
) -> dict[TableId, TableSchema]:
    """Return the definitions with their statements, which the catalogue fits before and after."""
    settled: dict[TableId, TableSchema] = {}
    for _ in range(_LOOKS):
        texts = create_statements(connection, found, role=role)
        again = read(set(found))
        same = [table for table in texts if again.get(table) == found[table]]
        settled |= {table: _with_statement(found[table], texts[table]) for table in same}
        found = {table: schema for table, schema in again.items() if table not in settled}
        if not found:
            return settled
    raise SchemaMovedError(
        f"{min(found)} is altered again and again",
        where=f"catalogue of {connection.host}:{connection.port}",
        risk="none: nothing was read of it",
        remedy="try again when it stays as it is",
    )


def _named(
    connection: ServerConnection, stored: Mapping[TableId, TableId], keys: NamedKeys, role: Role
) -> Mapping[TableId, str]:
    """Return the unique keys that a pipeline file names, by the tables' stored names."""
    if not keys:
        return {}
    (kept,) = query(connection, "SELECT @@lower_case_table_names", role=role)[0]
    folds = int(kept) != 0
    return {name: keys.of(table, ignore_case=folds) for table, name in stored.items()}


def _with_statement(schema: TableSchema, statement: str) -> TableSchema:
    """Return a definition with its statement, and without a named key that this speaks against."""
    schema = replace(schema, create_statement=statement)
    if not (schema.named_key and schema.key_name):
        return schema
    problem = problem_in_statement(schema.key_name, statement)
    if not problem:
        return schema
    own = UniqueKey(schema.key_name, schema.primary_key)
    unique_keys = tuple(sorted((*schema.unique_keys, own), key=lambda key: key.name))
    return replace(
        schema, primary_key=(), key_name="", key_problem=problem, unique_keys=unique_keys
    )


def _read(
    connection: ServerConnection, wanted: set[TableId], role: Role, named: Mapping[TableId, str]
) -> dict[TableId, TableSchema]:
    """Read tables' definitions from the catalogue, by their stored names."""
    facts = table_facts(connection, wanted, role=role)
    parts = _Parts(named)
    for condition in name_conditions("TABLE_SCHEMA", "TABLE_NAME", wanted):
        parts.add_columns(query(connection, _COLUMNS.format(condition=condition), role=role))
        parts.add_indexes(query(connection, _INDEXES.format(condition=condition), role=role))
    if is_mariadb(connection):
        for condition in name_conditions("CONSTRAINT_SCHEMA", "TABLE_NAME", wanted):
            parts.add_checks(query(connection, _CHECKS.format(condition=condition), role=role))
    return {
        table: TableSchema(
            table=table,
            columns=parts.columns_of(table),
            primary_key=parts.primary_key_of(table),
            key_prefixes=parts.prefixes_of(table),
            unique_keys=parts.unique_keys_of(table),
            key_name=parts.choice_of(table).name,
            named_key=named.get(table, ""),
            key_problem=parts.choice_of(table).problem,
            engine=fact.engine,
            collation=fact.collation,
            flavour="mariadb" if is_mariadb(connection) else "mysql",
        )
        for table, fact in facts.items()
        if table in parts.columns
    }


def create_statements(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role = Role.SOURCE
) -> dict[TableId, str]:
    """Return the text of SHOW CREATE TABLE of each table, with no character lost.

    A table that is gone by now is left out.
    """
    query(connection, "SET SESSION character_set_results = NULL", role=role)
    try:
        found = {table: _statement_if_there(connection, table, role) for table in tables}
    finally:
        query(connection, "SET SESSION character_set_results = utf8mb4", role=role)
    return {table: text for table, text in found.items() if text is not None}


def _statement_if_there(connection: ServerConnection, table: TableId, role: Role) -> str | None:
    """Return a table's definition as text; None if it was dropped since the catalogue was read."""
    for _ in range(_LOOKS):
        try:
            return create_statement(connection, table, role=role)
        except RefusedError as refused:
            if refused.server_error != _NO_SUCH_TABLE:
                raise
        if not table_facts(connection, {table}, role=role):
            return None
    raise SchemaMovedError(
        f"{table} is dropped and made again all the time",
        where=f"catalogue of {connection.host}:{connection.port}",
        risk="none: nothing was read of it",
        remedy="try again when it stays",
    )


def create_statement(
    connection: ServerConnection, table: TableId, *, role: Role = Role.SOURCE
) -> str:
    """Return the text of SHOW CREATE TABLE; refuse a text that is no UTF-8.

    A table that is away for a moment, as between two RENAMEs, is looked for again.
    """
    try:
        rows = _show_create(connection, table, role)
    except AccessDeniedError as denied:
        raise AccessDeniedError(
            f"the definition of {table} may not be read as a whole: {denied.what}",
            denied.where,
            "columns and keys that the account may not see would be missing from the copy",
            f"GRANT SELECT ON {quote_identifier(table.database)}.* TO "
            f"{account_name(connection, role=role)}; rights on single columns are not enough",
        ) from None
    try:
        return bytes(rows[0][1]).decode()
    except UnicodeDecodeError as error:
        raise UnsupportedTableError(
            f"the definition of {table} holds bytes that are no text, which the server prints as "
            f"they are (byte {error.start} of SHOW CREATE TABLE)",
            where=str(table),
            risk="a default or an expression would become another one at the sink",
            remedy="write the bytes as x'..' in the default or the expression (MariaDB prints a "
            f"default as it is: leave that out there), or put {in_file(table)} into source.exclude",
        ) from None


def _show_create(connection: ServerConnection, table: TableId, role: Role) -> list[tuple[Any, ...]]:
    """Run SHOW CREATE TABLE, for a while again if the table is missing."""
    deadline = time.monotonic() + _AWAY_S
    while True:
        try:
            with _undecoded(connection):
                return query(connection, f"SHOW CREATE TABLE {quote_table(table)}", role=role)
        except RefusedError as refused:
            if refused.server_error != _NO_SUCH_TABLE or time.monotonic() >= deadline:
                raise
        time.sleep(0.1)


@contextmanager
def _undecoded(connection: ServerConnection) -> Iterator[None]:
    """Get texts as undecoded bytes within the block: a failed decoding would break the session."""
    before, connection.use_unicode = connection.use_unicode, False
    try:
        yield
    finally:
        connection.use_unicode = before


_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, IS_NULLABLE, DATA_TYPE, COLUMN_TYPE,
       CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION,
       CHARACTER_SET_NAME, COLLATION_NAME, EXTRA, COLUMN_KEY
FROM information_schema.COLUMNS WHERE {condition}
ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
_INDEXES = """
SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, INDEX_TYPE
FROM information_schema.STATISTICS WHERE {condition} AND NON_UNIQUE = 0
ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
_CHECKS = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CHECK_CLAUSE
FROM information_schema.CHECK_CONSTRAINTS WHERE {condition}
"""


@dataclass(slots=True)
class _Parts:
    """The catalogue's columns, unique indexes and JSON checks of tables."""

    named: Mapping[TableId, str]
    """The unique keys that a pipeline file names, empty for none."""
    columns: dict[TableId, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    indexes: dict[TableId, dict[str, UniqueIndex]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    json_texts: dict[TableId, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add_columns(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of the catalogue's columns."""
        for database, table, *rest in rows:
            self.columns[TableId(database, table)].append(tuple(rest))

    def add_indexes(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of the catalogue's unique indexes."""
        for database, table, name, column, prefix, kind in rows:
            part = IndexPart(column, None if prefix is None else int(prefix))
            indexes = self.indexes[TableId(database, table)]
            parts = indexes[name].parts if name in indexes else ()
            indexes[name] = UniqueIndex(name, (*parts, part), kind)

    def add_checks(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add the columns that a JSON check makes JSON on MariaDB."""
        for database, table, clause in rows:
            match = _JSON_CHECK.fullmatch(clause)
            if match:
                name = match["column"].replace("``", "`")
                self.json_texts[TableId(database, table)].add(name)

    def columns_of(self, table: TableId) -> tuple[Column, ...]:
        """Return a table's columns, in table order."""
        return tuple(_column(row, self.json_texts[table]) for row in self.columns[table])

    def primary_key_of(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table's primary key, in index order."""
        return tuple(part.column or EXPRESSION for part in self._key(table))

    def prefixes_of(self, table: TableId) -> tuple[int, ...]:
        """Return the prefix lengths of a table's primary key, empty if all columns are whole."""
        prefixes = tuple(part.prefix or 0 for part in self._key(table))
        return prefixes if any(prefixes) else ()

    def unique_keys_of(self, table: TableId) -> tuple[UniqueKey, ...]:
        """Return a table's secondary unique keys."""
        return tuple(
            UniqueKey(name, tuple(part.column or EXPRESSION for part in index.parts))
            for name, index in sorted(self._indexes(table).items())
            if name not in {PRIMARY, self.choice_of(table).name}
        )

    def _indexes(self, table: TableId) -> Mapping[str, UniqueIndex]:
        """Return a table's unique indexes, by name."""
        return self.indexes.get(table, {})

    def choice_of(self, table: TableId) -> KeyChoice:
        """Return the unique key that is a table's key: the named one, or else the server's."""
        if named := self.named.get(table):
            return named_key(named, self._indexes(table), self.columns_of(table))
        return KeyChoice(self._key_of_server(table))

    def _key_of_server(self, table: TableId) -> str:
        """Return the unique key that the server takes for the primary key; empty for none.

        A table with a primary key has none. Else InnoDB stores the rows by the first unique key
        whose columns are whole and NOT NULL, and the catalogue marks these columns, not the key.
        So two unique keys over these columns in another order leave open which one it is, and are
        none.
        """
        indexes = self._indexes(table)
        served = {row[0] for row in self.columns[table] if row[-1] == "PRI"}
        if PRIMARY in indexes or not served:
            return ""
        found = {
            name: index.parts
            for name, index in indexes.items()
            if {part.column for part in index.parts} == served
            and not any(part.prefix for part in index.parts)
        }
        is_told = len({*found.values()}) == 1
        return min(found) if is_told else ""

    def _key(self, table: TableId) -> Sequence[IndexPart]:
        """Return the parts of a table's key; none if it has no key."""
        found = self._indexes(table).get(self.choice_of(table).name or PRIMARY)
        return () if found is None else found.parts


def _column(row: tuple[Any, ...], json_texts: set[str]) -> Column:
    """Return a column from a row of the catalogue."""
    name, nullable, kind, full_type, length, digits, scale, fraction, charset, collation = row[:10]
    extra = row[10]
    extra = (extra or "").upper()
    return Column(
        name=name,
        type=_column_type(
            str(kind).lower(),
            str(full_type),
            length=length,
            digits=digits,
            scale=scale,
            fraction=fraction,
            charset=charset,
            collation=collation,
            is_json_text=name in json_texts,
        ),
        nullable=nullable == "YES",
        # DEFAULT_GENERATED is an ordinary column whose default is an expression
        generated="VIRTUAL GENERATED" in extra or "STORED GENERATED" in extra,
        invisible="INVISIBLE" in extra,
        auto_increment="AUTO_INCREMENT" in extra,
    )


def _column_type(  # noqa: PLR0913 - one argument for each column of the catalogue
    kind: str,
    full_type: str,
    *,
    length: int | None,
    digits: int | None,
    scale: int | None,
    fraction: int | None,
    charset: str | None,
    collation: str | None,
    is_json_text: bool,
) -> ColumnType:
    """Return a column's type from the catalogue's values."""
    numbers = _NUMBERS.search(full_type) if kind not in _WITH_MEMBERS else None
    first = int(numbers[1]) if numbers else None
    precise = kind == "decimal" or (numbers is not None and numbers[2] is not None)
    if kind == "bit":
        length = digits
    elif kind == "vector":
        length = first
    elif charset is None and kind not in {"binary", "varbinary"}:
        length = None
    return mysql_type(
        name=kind,
        unsigned="unsigned" in full_type.lower() and kind not in _WITH_MEMBERS,
        length=None if length is None or kind in _WITH_MEMBERS else int(length),
        precision=int(digits) if precise and digits is not None else None,
        scale=int(scale) if precise and scale is not None else None,
        fraction=int(fraction or 0) if kind in _WITH_FRACTION else 0,
        charset=charset,
        collation=collation,
        members=_members(full_type) if kind in _WITH_MEMBERS else (),
        is_json_text=is_json_text,
    )


def _members(full_type: str) -> tuple[str, ...]:
    """Return the members of `enum('a','it''s')`."""
    inside = full_type[full_type.index("(") + 1 :]
    return tuple(_ESCAPED.sub(_unescaped, text) for text in _MEMBER.findall(inside))


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape in a member's text."""
    if match[1] is None:
        return "'"
    return _ESCAPES.get(match[1], match[1])
