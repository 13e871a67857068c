"""What a statement of the log does to tables, told by its tokens.

The log carries statements as text: definitions always, and row changes where a session does not
log rows. They are sorted into few kinds with the tables they name, so that the reader can tell
whether a captured table is concerned. Doubt is never harmless: a statement that is not known has
the kind `UNKNOWN` and concerns every table.

Where the text leaves open what is dropped (an index may be unique, a constraint may be one), the
definition the table was planned with decides: whatever adds, drops or renames a unique key stops
the stream, so that definition's unique keys are those of the statement's moment, by name too.

What stands in an executable comment is part of the statement for some servers only, and some blanks
part its words for some sessions only. Such a statement is read both ways, and is harmless only if
both readings are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product

from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.systems.mysql.dialect.alter_clauses import (
    cascades,
    drops_index,
    exchanged_in,
    is_told_by_definitions,
    moves_rows,
    new_name_in,
    renamed_column,
    replaces_column,
    touched_keys,
)
from airflow_cdc_provider.systems.mysql.dialect.column_steps import (
    column_steps,
    touches_unique_keys,
)
from airflow_cdc_provider.systems.mysql.dialect.row_statements import row_statement
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import (
    Token,
    has_executable_comment,
    has_wide_space,
    tokens,
)
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import (
    DATABASE_NOUNS,
    INDEX_NOUNS,
    OTHER_NOUNS,
    TABLE_NOUNS,
    StatementTokens,
)

_SYSTEM_DATABASES = {"mysql", "sys", "performance_schema"}
HARMLESS = StatementEffect(StatementKind.OTHER, harmless=True)
_UNKNOWN = StatementEffect(StatementKind.UNKNOWN, reaches_all=True)

_TRANSACTION = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "XA"}
_HARMLESS_VERBS = {
    *("ANALYZE", "BINLOG", "CACHE", "CHECK", "CHECKSUM", "DEALLOCATE", "DO", "EXECUTE", "FLUSH"),
    *("GRANT", "INSTALL", "KILL", "LOCK", "OPTIMIZE", "PREPARE", "PURGE", "REPAIR", "RESET"),
    *("REVOKE", "SET", "SHOW", "UNINSTALL", "UNLOCK", "USE"),
}
_ROW_VERBS = {
    *("CALL", "DELETE", "IMPORT", "INSERT", "LOAD", "REPLACE", "UPDATE", "WITH"),
    "SELECT",  # logged only for what a function that it calls has changed
}


def effect_of(
    statement: str,
    *,
    default_database: str = "",
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
) -> StatementEffect:
    """Return what a logged statement does to tables, by its text."""

    def read(*, executes: bool, wide_spaces: bool) -> StatementEffect:
        found = tokens(
            statement,
            ansi_quotes=ansi_quotes,
            backslash_escapes=backslash_escapes,
            executes=executes,
            wide_spaces=wide_spaces,
        )
        return _effect(tuple(found), default_database)

    readings = product(
        (True, False) if has_executable_comment(statement) else (True,),
        (False, True) if has_wide_space(statement) else (False,),
    )
    return reduce(_both, (read(executes=each, wide_spaces=wide) for each, wide in readings))


def _both(one: StatementEffect, other: StatementEffect) -> StatementEffect:
    """Return the joint effect of two readings of a statement: it may have either."""
    if other.harmless or other.kind is StatementKind.UNKNOWN or one == other:
        return one
    if one.harmless:
        return other
    return replace(
        one,
        tables=tuple(dict.fromkeys(one.tables + other.tables)),
        databases=tuple(dict.fromkeys(one.databases + other.databases)),
        unlogged_rows=one.unlogged_rows or other.unlogged_rows,
        reaches_all=one.reaches_all or other.reaches_all,
        if_plain=(),
        only_adds=False,
        is_doubtful=True,
        is_told=one.is_told and other.is_told,
        column_steps=None,
        creates=one.creates and other.creates,
        unique_keys=True,
        cascades=one.cascades or other.cascades,
    )


def _effect(found: tuple[Token, ...], default_database: str) -> StatementEffect:
    """Return the effect of a statement's tokens."""
    if not found:
        return HARMLESS  # MariaDB replaces events a reader would not know by a comment
    reading = StatementTokens(found, default_database)
    verb = reading.verb()
    if verb in _TRANSACTION:
        return StatementEffect(StatementKind.TRANSACTION, harmless=True)
    if verb in _HARMLESS_VERBS:
        return HARMLESS
    if verb in _ROW_VERBS:
        return _row_change(verb, reading)
    parse = _PARSERS.get(verb)
    return parse(reading) if parse else _UNKNOWN


def _row_change(verb: str, reading: StatementTokens) -> StatementEffect:
    """Return the effect of a row change: on its one written table, or on any table if unclear.

    Row changes of the server's own tables change no others: they have no triggers and foreign
    keys, and hosted servers log their heartbeat there as text.
    """
    found = row_statement(verb, reading)
    if found.writes is None:
        return StatementEffect(StatementKind.ROWS, reaches_all=True, unlogged_rows=True)
    is_plain = not (found.reads or found.calls)
    is_of_server = found.writes.database.casefold() in _SYSTEM_DATABASES and is_plain
    return StatementEffect(
        StatementKind.ROWS,
        tables=(found.writes,),
        reaches_all=not is_of_server,
        unlogged_rows=True,
    )


def _create(reading: StatementTokens) -> StatementEffect:
    """Return the effect of a CREATE statement."""
    before = reading.position
    noun = reading.noun()
    passed = reading.tokens[before : reading.position]
    if noun in INDEX_NOUNS:
        if any(token.is_word("UNIQUE") for token in passed):
            return _index_statement(reading, drops=True, is_plain=False)
        # MariaDB: OR REPLACE drops the one of that name first
        return _index_statement(reading, drops=any(token.is_word("REPLACE") for token in passed))
    if noun in DATABASE_NOUNS and any(token.is_word("REPLACE") for token in passed):
        return _dropped_database(reading)  # MariaDB: it is dropped with all its tables first
    if noun == "TRIGGER":
        return _new_trigger(reading)
    if noun not in TABLE_NOUNS:
        # SPATIAL REFERENCE SYSTEM has no noun of its own
        known = noun in OTHER_NOUNS | DATABASE_NOUNS or _names_reference_system(passed)
        return HARMLESS if known else _UNKNOWN
    if any(token.is_word("TEMPORARY") for token in passed):
        return StatementEffect(StatementKind.CREATE, harmless=True, temporary=True)
    is_guarded = reading.skip_existence()
    table = reading.table()
    if table is None:
        return _UNKNOWN
    harmless = is_guarded and not _copies_rows(reading.rest)
    replaces = any(token.is_word("REPLACE") for token in passed)  # MariaDB: it is dropped first
    creates = not (is_guarded or replaces or cascades(reading.rest))
    return StatementEffect(
        StatementKind.CREATE, tables=(table,), harmless=harmless, creates=creates
    )


def _new_trigger(reading: StatementTokens) -> StatementEffect:
    """Return the effect of CREATE TRIGGER, which leaves its table's rows as they are."""
    table = reading.table() if reading.skip_to("ON") and reading.take_word("ON") else None
    return HARMLESS if table is None else replace(HARMLESS, tables=(table,))


def _copies_rows(rest: Sequence[Token]) -> bool:
    """Tell whether a CREATE TABLE may copy rows into the table.

    Without, IF NOT EXISTS does nothing to a table that is there; and a captured one is, because
    what drops it or gives it another name stops the stream.
    """
    if any(token.is_word("SELECT", "TABLE") for token in rest):
        return True
    pairs = pairwise(rest)
    return any(left.is_word("VALUES") and not right.is_word("IN", "LESS") for left, right in pairs)


def _names_reference_system(passed: Sequence[Token]) -> bool:
    """Tell whether a statement is about a SPATIAL REFERENCE SYSTEM."""
    return any(token.is_word("REFERENCE") for token in passed)


def _index_statement(
    reading: StatementTokens, *, drops: bool, is_plain: bool = True
) -> StatementEffect:
    """Return the effect of CREATE or DROP INDEX on its table."""
    reading.skip_existence()
    name = reading.name()  # it may be the word ON
    follows = reading.position
    if not reading.skip_to("ON"):
        return _UNKNOWN
    is_exact = bool(name) and reading.position == follows
    reading.position += 1
    table = reading.table()
    if table is None:
        return _UNKNOWN
    effect = StatementEffect(
        StatementKind.ALTER,
        tables=(table,),
        harmless=is_plain and not drops,
        only_adds=not drops or not is_plain,
        is_told=True,
        column_steps=(),
        unique_keys=drops or not is_plain,
    )
    # CREATE INDEX name USING BTREE ON table
    return replace(effect, if_plain=(name,)) if drops and is_plain and is_exact else effect


def _drop(reading: StatementTokens) -> StatementEffect:
    """Return the effect of a DROP statement."""
    temporary = reading.take_word("TEMPORARY")
    noun = reading.noun()
    if noun in DATABASE_NOUNS:
        return _dropped_database(reading)
    if noun in INDEX_NOUNS:
        return _index_statement(reading, drops=True)
    if noun not in TABLE_NOUNS:
        known = noun in OTHER_NOUNS or _names_reference_system(reading.tokens)
        return HARMLESS if known else _UNKNOWN
    if temporary:
        return StatementEffect(StatementKind.DROP, harmless=True, temporary=True)
    reading.skip_existence()
    found = reading.table_list()
    return StatementEffect(StatementKind.DROP, tables=found) if found else _UNKNOWN


def _dropped_database(reading: StatementTokens) -> StatementEffect:
    """Return the effect of dropping a database."""
    reading.skip_existence()
    token = reading.current
    if token is None:
        return _UNKNOWN
    return StatementEffect(StatementKind.DROP, databases=(token.text,))


def _rename(reading: StatementTokens) -> StatementEffect:
    """Return the effect of RENAME TABLE."""
    if not reading.take_word(*TABLE_NOUNS):
        return HARMLESS if reading.take_word("USER") else _UNKNOWN
    reading.skip_existence()
    pairs = []
    while True:
        old = reading.table()
        if reading.take_word("WAIT"):
            reading.position += 1
        reading.take_word("NOWAIT")
        new = reading.table() if reading.take_word("TO") else None
        if old is None or new is None:
            return _UNKNOWN
        pairs.append((old, new))
        if not reading.take_mark(","):
            break
    named = tuple(table for pair in pairs for table in pair)
    return StatementEffect(StatementKind.RENAME, tables=named, renames=tuple(pairs))


def _truncate(reading: StatementTokens) -> StatementEffect:
    """Return the effect of TRUNCATE TABLE."""
    reading.take_word("TABLE")
    table = reading.table()
    if table is None:
        return _UNKNOWN
    return StatementEffect(StatementKind.TRUNCATE, tables=(table,), unlogged_rows=True)


def _alter(reading: StatementTokens) -> StatementEffect:
    """Return the effect of an ALTER statement."""
    before = reading.position
    noun = reading.noun()
    ignores = any(token.is_word("IGNORE") for token in reading.tokens[before : reading.position])
    if noun not in TABLE_NOUNS:
        return HARMLESS if noun in OTHER_NOUNS | DATABASE_NOUNS else _UNKNOWN
    reading.skip_existence()
    table = reading.table()
    if table is None:
        return _UNKNOWN
    if reading.take_word("WAIT"):
        reading.position += 1
    reading.take_word("NOWAIT")
    clauses = reading.clauses()
    renamed = next((new for c in clauses if (new := new_name_in(c, reading))), None)
    exchanged = next((new for c in clauses if (new := exchanged_in(c, reading))), None)
    named = tuple(found for found in (table, renamed, exchanged) if found is not None)
    touched = [touched_keys(clause) for clause in clauses]
    known = tuple(name for names in touched for name in names or ())
    is_known = None not in touched and not ignores
    return StatementEffect(
        StatementKind.RENAME if renamed else StatementKind.ALTER,
        tables=named,
        renames=((table, renamed),) if renamed else (),
        harmless=is_known and not known,
        # IGNORE drops rows that do not fit
        unlogged_rows=ignores or any(moves_rows(clause) for clause in clauses),
        if_plain=known if is_known else (),
        drops_constraints=any(c[0].is_word("DROP") and not drops_index(c) for c in clauses),
        column_renames=tuple(pair for c in clauses if (pair := renamed_column(c)) is not None),
        only_adds=all(clause[0].is_word("ADD") for clause in clauses),
        is_doubtful=replaces_column(clauses),
        is_told=all(map(is_told_by_definitions, clauses)),
        column_steps=None if ignores else column_steps(clauses),
        unique_keys=touches_unique_keys(clauses),
        cascades=any(map(cascades, clauses)),
    )


_PARSERS: dict[str, Callable[[StatementTokens], StatementEffect]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
