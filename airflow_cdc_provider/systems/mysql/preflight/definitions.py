"""Whether a table's definition is printed as it is, before another table is made from it.

The servers keep the types they print as utf8mb3. A character of four bytes, such as an emoji, in a
member of an ENUM or SET is printed as `?` by SHOW CREATE TABLE and by `information_schema` alike;
MariaDB prints it so in a DEFAULT too. A `?` may also be meant, so it is asked for in another way:

- a DEFAULT is a value, and `DEFAULT(column)` gives it, with or without a row;
- a member is a value only in a row that has it, so one is looked for, for two seconds. Two members
  that are printed alike need no row: they were not alike.

A member of which no row was found stays in doubt. Nothing can go wrong in silence then: the log
names the members as they are, and the sink refuses a row whose value is no member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import AccessDeniedError, CdcError, RetryableError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.table_picks import in_file
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    AttributeKind,
    parse_create_statement,
)
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Doubt,
    NothingFound,
    QueryDenied,
    Seen,
    look,
    unseen,
)
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.privileges import account_name

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_LARGE_CHARSETS = {"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"}
"""Those that have characters which utf8mb3 has not."""
_PATIENCE_S = 2
_LAST_SMALL = "\uffff"


def definition_findings(
    connection: ServerConnection, schemas: Sequence[TableSchema], *, needs_defaults: bool = True
) -> Iterator[Finding]:
    """Yield findings for definitions in which the server prints a character as `?`, or may.

    A default counts only if the sink's table is to have it: rows have their values without it.
    """
    for schema in schemas:
        for column in schema.columns:
            if column.type.charset not in _LARGE_CHARSETS:
                continue
            if _doubtful(column):
                yield from _members(connection, schema, column)
        if needs_defaults:
            yield from _defaults(connection, schema)


def _doubtful(column: Column) -> bool:
    """Tell whether an ENUM or SET column has a member with a `?`, maybe for another character."""
    return any("?" in member for member in column.type.members)


def _members(
    connection: ServerConnection, schema: TableSchema, column: Column
) -> Iterator[Finding]:
    """Yield findings for a column whose members are printed with a `?` for another character."""
    members = column.type.members
    unproven = []
    for number, member in enumerate(members):
        if "?" not in member:
            continue
        if members.count(member) > 1:
            yield _lost(schema, column, f"members that are printed alike, as {member!r}")
            return
        found = _member_of_a_row(connection, schema, column, number)
        if found is None:
            unproven.append(member)
        elif found != member:
            yield _lost(schema, column, f"the member {found!r}, which is printed as {member!r}")
            return
    if unproven:
        yield Finding(
            Code.TABLE_MEMBERS,
            Level.WARN,
            str(schema.table),
            f"column {column.name} has the member {unproven[0]!r}, of which no row was found",
            "members without '?'",
            "the server prints characters of four bytes as '?' too; if it is such a one, the sink "
            "will refuse the first row that has it, and the pipeline stops",
            f"nothing if a question mark is meant, else {_remedy(schema)}",
        )


def _member_of_a_row(
    connection: ServerConnection, schema: TableSchema, column: Column, number: int
) -> str | None:
    """Return a member's real text from a row that has it; None if no row was found in time."""
    name, is_set = quote_identifier(column.name), column.type.name == "set"
    wanted = f"{name} & {1 << number}" if is_set else f"{name} = {number + 1}"
    select = f"CONVERT({name} USING utf8mb4), {name} + 0 FROM {quote_table(schema.table)} WHERE"
    sql = (
        f"SET STATEMENT max_statement_time = {_PATIENCE_S} FOR SELECT {select} {wanted} LIMIT 1"
        if schema.flavour == "mariadb"
        else f"SELECT /*+ MAX_EXECUTION_TIME({_PATIENCE_S * 1000}) */ {select} {wanted} LIMIT 1"
    )
    try:
        rows = query(connection, sql)
    except (RetryableError, AccessDeniedError):
        return None  # not in time, or not allowed: it stays in doubt, and that is told
    if not rows:
        return None
    text, value = str(rows[0][0]), int(rows[0][1])
    # a SET is written with the members it has, in the order of the definition
    return text.split(",")[(value & ((1 << number) - 1)).bit_count()] if is_set else text


def _defaults(connection: ServerConnection, schema: TableSchema) -> Iterator[Finding]:
    """Yield findings for text columns whose default is printed with a `?`."""
    if not schema.create_statement:
        return
    try:
        parsed = parse_create_statement(schema.create_statement)
    except CdcError:
        return  # whether the sink can have the table is asked elsewhere, with the reason
    large = {c.name for c in schema.columns if c.type.charset in _LARGE_CHARSETS}
    for column in parsed.columns:
        printed = [a.text for a in column.attributes if a.kind is AttributeKind.DEFAULT_LITERAL]
        if column.name not in large or not any("?" in text for text in printed):
            continue
        yield from _default(connection, schema, column.name)


def _default(connection: ServerConnection, schema: TableSchema, column: str) -> Iterator[Finding]:
    """Yield a finding if a column's real default has a character that is printed as `?`."""
    name, table = quote_identifier(column), quote_table(schema.table)
    sql = (
        f"SELECT CONVERT(DEFAULT(t.{name}) USING utf8mb4) "
        f"FROM (SELECT 1) x LEFT JOIN {table} t ON FALSE"
    )
    match look(lambda: str(query(connection, sql)[0][0])):
        case Seen(found):
            if any(character > _LAST_SMALL for character in found):
                lost = f"the default {found!r}, which is printed with '?'"
                yield _lost(schema, schema.column(column), lost)
        case QueryDenied() as denied:
            yield unseen(
                Code.TABLE_UNSEEN,
                Level.BLOCK,
                str(schema.table),
                denied,
                Doubt(
                    what=f"what the default of column {column} is, which is printed with '?'",
                    why="the sink's table would get '?' in the place of another character",
                    grant=f"GRANT SELECT ON {quote_identifier(schema.table.database)}.* "
                    f"TO {account_name(connection)};",
                ),
            )
        case NothingFound():
            pass


def _lost(schema: TableSchema, column: Column, what: str) -> Finding:
    """Return the finding for a definition that lost a character."""
    return Finding(
        Code.TABLE_DEFINITION,
        Level.BLOCK,
        str(schema.table),
        f"column {column.name} has {what}",
        "a definition that the server prints as it is",
        "the sink's table would get '?' in its place",
        _remedy(schema),
    )


def _remedy(schema: TableSchema) -> str:
    """Return the advice for a definition that cannot be printed."""
    return (
        "use characters of at most three bytes there (no emoji), or put "
        f"{in_file(schema.table)} into source.exclude"
    )
