"""Statements that the log carries as text: what each means for captured tables.

With `binlog_format=ROW` the text is transaction control or DDL. DDL that may concern a captured
table is a barrier; row changes as text that may concern one were never logged as rows, which is
an error. What is not known is an error too. Nothing of the text is shown unless it is DDL of
tables: statements about accounts hold passwords.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from airflow_cdc_provider.columnar.binlog.byte_reader import ByteReader
from airflow_cdc_provider.core.ddl_effects import StatementEffect, StatementKind, effect_of
from airflow_cdc_provider.core.errors import IntegrityError, UnknownEventError
from airflow_cdc_provider.core.identifiers import TableId

_ANSI_QUOTES = 0x04
_FLAGS_CODE, _SQL_MODE_CODE = 0, 1


class Meaning(Enum):
    """What a statement is to the stream."""

    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    ROLLBACK_TO_SAVEPOINT = auto()
    XA_START = auto()
    XA_END = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    HARMLESS = auto()
    """Changes nothing that is captured."""
    BARRIER = auto()
    """Changes the definition, or all rows, of a captured table."""


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A QUERY event's text and the database it ran in."""

    database: str
    sql: str
    ansi_quotes: bool

    @classmethod
    def read(cls, body: bytes) -> LoggedStatement:
        """Read a QUERY event behind its header."""
        reader = ByteReader(body, 8)
        database_bytes = reader.number(1)
        reader.take(2)
        status = reader.take(reader.number(2))
        database = reader.take(database_bytes).decode()
        reader.take(1)
        sql = reader.rest().decode("utf-8", "surrogateescape")
        return cls(database, sql, _has_ansi_quotes(status))


def _has_ansi_quotes(status: bytes) -> bool:
    """Look into the status block; flags and sql_mode come first, in this order."""
    place = 0
    if status[:1] == bytes([_FLAGS_CODE]):
        place = 5
    if len(status) >= place + 9 and status[place] == _SQL_MODE_CODE:
        return bool(int.from_bytes(status[place + 1 : place + 9], "little") & _ANSI_QUOTES)
    return False


_WORDS = re.compile(r"\s*(\w+)\s*(\w*)")
_CONTROL = {
    "BEGIN": Meaning.BEGIN,
    "START": Meaning.BEGIN,
    "COMMIT": Meaning.COMMIT,
    "ROLLBACK": Meaning.ROLLBACK,
    "SAVEPOINT": Meaning.HARMLESS,
    "RELEASE": Meaning.HARMLESS,
}
_XA = {
    "START": Meaning.XA_START,
    "BEGIN": Meaning.XA_START,
    "END": Meaning.XA_END,
    "COMMIT": Meaning.XA_COMMIT,
    "ROLLBACK": Meaning.XA_ROLLBACK,
}


def meaning_of(
    statement: LoggedStatement,
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> Meaning:
    """Classify a statement; `captures_in` tells whether a database may hold captured tables."""
    effect = effect_of(
        statement.sql, default_database=statement.database, ansi_quotes=statement.ansi_quotes
    )
    if effect.kind is StatementKind.TRANSACTION:
        return _control(statement.sql)
    if effect.kind is StatementKind.UNKNOWN:
        raise UnknownEventError(
            f"the log holds a statement that is not understood: {_verb(statement.sql)} ...",
            where=f"database {statement.database or '(none)'}",
            risk="it could change captured tables",
            remedy="see it with mysqlbinlog and report it; a position behind it can be given by "
            "hand if it is known to be harmless",
        )
    if not _concerns(effect, captured, captures_in):
        return Meaning.HARMLESS
    if effect.kind is StatementKind.ROWS:
        touched = ", ".join(map(str, effect.tables)) or "any table"
        raise IntegrityError(
            f"the log holds {_verb(statement.sql)} as a statement, not as rows",
            where=touched,
            risk="rows it changed are not in the log, nor are those that triggers and foreign keys "
            "of its table changed elsewhere",
            remedy="SET GLOBAL binlog_format = 'ROW', reconnect the writers, and restart "
            "the pipeline: its tables are read again",
        )
    return Meaning.BARRIER


def _concerns(
    effect: StatementEffect,
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> bool:
    if effect.harmless or effect.temporary:
        return False
    if effect.reaches_all:
        return True
    named = any(captured(table) for table in effect.tables)
    return named or any(captures_in(database) for database in effect.databases)


def _control(sql: str) -> Meaning:
    match = _WORDS.match(sql)
    first, second = (match[1].upper(), match[2].upper()) if match else ("", "")
    if first == "XA":
        return _XA.get(second, Meaning.HARMLESS)
    meaning = _CONTROL.get(first, Meaning.HARMLESS)
    if meaning is Meaning.ROLLBACK and second == "TO":
        return Meaning.ROLLBACK_TO_SAVEPOINT
    return meaning


def _verb(sql: str) -> str:
    match = _WORDS.match(sql)
    return match[1].upper() if match else "?"
