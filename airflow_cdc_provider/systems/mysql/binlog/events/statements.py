"""Statements that the log carries as text: what each means for captured tables.

With `binlog_format=ROW` the text is transaction control or DDL. DDL that may concern a captured
table is a barrier. Row changes as text were never logged as rows: how far they reach is for a
`TextReach` to say. Nothing of the text is shown unless it is DDL of tables: statements about
accounts hold passwords, and row changes hold values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.dialect.charsets import decode_member
from airflow_cdc_provider.systems.mysql.dialect.collations import charset_of
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.dialect.reach_changes import ReachChange, reach_change
from airflow_cdc_provider.systems.mysql.dialect.row_statements import RowStatement, row_statement
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import (
    Token,
    has_executable_comment,
    has_wide_space,
    tokens,
)
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import StatementTokens

_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES = 0x04, 1 << 20
_SQL_MODE_CODE, _CHARSET_CODE, _CATALOG_CODE = 1, 4, 6
_STATUS_BYTES = {0: 4, _SQL_MODE_CODE: 8, 3: 4, _CHARSET_CODE: 6}
"""By their codes: flags, sql_mode, steps of AUTO_INCREMENT, charsets."""


_UNDECODED = re.compile("[\udc80-\udcff]")


class Meaning(Enum):
    """What a logged statement means to the decoder: transaction control, harmless, or a stop."""

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
    UNLOGGED = auto()
    """May change rows that the log does not hold: row changes as text, or what is not known."""


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement in the log: its text, database and the modes that decide how it is parsed."""

    database: str
    sql: str
    ansi_quotes: bool
    backslash_escapes: bool

    @property
    def shown(self) -> str:
        """Return the text, with a mark for each byte that could not be decoded."""
        return _UNDECODED.sub("\ufffd", self.sql)

    @property
    def rows(self) -> RowStatement:
        """Return which tables a row change writes and reads, and which functions it calls.

        Nothing if its text is ambiguous.
        """
        if has_executable_comment(self.sql) or has_wide_space(self.sql):
            return RowStatement()
        reading = StatementTokens(self._tokens, self.database)
        return row_statement(reading.verb(), reading)

    @property
    def reach_change(self) -> ReachChange:
        """Return what a statement changes of triggers, keys, views and functions."""
        return reach_change(self._tokens, self.effect, self.database)

    @property
    def verb(self) -> str:
        """Return the statement's first word, in upper case."""
        match = _WORDS.match(self.sql)
        return match[1].upper() if match else "?"

    @property
    def _tokens(self) -> tuple[Token, ...]:
        """Return the statement's tokens."""
        return tuple(
            tokens(
                self.sql,
                ansi_quotes=self.ansi_quotes,
                backslash_escapes=self.backslash_escapes,
            )
        )

    @property
    def effect(self) -> StatementEffect:
        """Return what a statement does to tables and their definitions."""
        return effect_of(
            self.sql,
            default_database=self.database,
            ansi_quotes=self.ansi_quotes,
            backslash_escapes=self.backslash_escapes,
        )

    @classmethod
    def read(cls, body: bytes) -> LoggedStatement:
        """Read a QUERY event's body as UTF-8 where possible: the first of `readings`."""
        return cls.readings(body)[0]

    @classmethod
    def readings(cls, body: bytes) -> tuple[LoggedStatement, ...]:
        """Return the texts that a QUERY event may hold: in UTF-8 and in its session's charset.

        What can be UTF-8 may be either: a server logs statements as they came, but those that it
        puts together itself in UTF-8, under the session's charset all the same.
        """
        reader = ByteReader(body, 8)
        database_bytes = reader.number(1)
        reader.take(2)
        status = _Status.read(reader.take(reader.number(2)))
        database = reader.text(database_bytes)
        reader.take(1)
        return tuple(
            cls(
                database,
                sql,
                bool(status.sql_mode & _ANSI_QUOTES),
                not status.sql_mode & _NO_BACKSLASH_ESCAPES,
            )
            for sql in _texts(reader.rest(), status.collation)
        )


@dataclass(slots=True)
class _Status:
    """The SQL mode and charset of the session that logged a statement."""

    sql_mode: int = 0
    collation: int = 0
    """The number of one of the text's charset; 0 if it is not told."""

    @classmethod
    def read(cls, block: bytes) -> _Status:
        """Read the SQL mode and charset from a statement event's block of variables."""
        found, offset = cls(), 0
        while offset < len(block):
            code, offset = block[offset], offset + 1
            width = _STATUS_BYTES.get(code)
            if code == _CATALOG_CODE and offset < len(block):
                width = 1 + block[offset]
            if width is None or offset + width > len(block):
                break
            if code == _SQL_MODE_CODE:
                found.sql_mode = int.from_bytes(block[offset : offset + 8], "little")
            elif code == _CHARSET_CODE:
                found.collation = int.from_bytes(block[offset : offset + 2], "little")
                break
            offset += width
        return found


def _texts(data: bytes, collation: int) -> list[str]:
    """Decode a statement's text as UTF-8 and in its session's charset, each that is possible."""
    if data.isascii() or not collation:
        return [data.decode("utf-8", "surrogateescape")]
    found = []
    for each in dict.fromkeys(("utf8mb4", charset_of(collation))):
        with suppress(ValueRefusedError):
            found.append(decode_member(data, each))
    return found or [data.decode("utf-8", "surrogateescape")]


_WORDS = re.compile(r"\s*(\w+)\s*(\w*)")
_CONTROL = {
    "BEGIN": Meaning.BEGIN,
    "START": Meaning.BEGIN,
    "COMMIT": Meaning.COMMIT,
    "ROLLBACK": Meaning.ROLLBACK,
    "SAVEPOINT": Meaning.HARMLESS,
    "RELEASE": Meaning.HARMLESS,
}
_XA_VERB = "XA "
_XA = {
    "START": Meaning.XA_START,
    "BEGIN": Meaning.XA_START,
    "END": Meaning.XA_END,
    "COMMIT": Meaning.XA_COMMIT,
    "ROLLBACK": Meaning.XA_ROLLBACK,
}


def judged(
    readings: Sequence[LoggedStatement],
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> tuple[LoggedStatement, Meaning]:
    """Return the first reading of a statement that is not harmless, and its meaning."""
    for statement in readings:
        meaning = meaning_of(statement, captured, captures_in)
        if meaning is not Meaning.HARMLESS:
            return statement, meaning
    return readings[0], Meaning.HARMLESS


def meaning_of(
    statement: LoggedStatement,
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> Meaning:
    """Return what a statement means; `captures_in` tests a database for captured tables."""
    if statement.sql.startswith(_XA_VERB):  # many in some logs, and nothing else begins so
        return _control(statement.sql)
    effect = statement.effect
    if effect.kind is StatementKind.TRANSACTION:
        return _control(statement.sql)
    if effect.kind is not StatementKind.UNKNOWN and not _concerns(effect, captured, captures_in):
        return Meaning.HARMLESS
    is_unlogged = effect.kind in {StatementKind.UNKNOWN, StatementKind.ROWS}
    return Meaning.UNLOGGED if is_unlogged else Meaning.BARRIER


def _concerns(
    effect: StatementEffect,
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> bool:
    """Tell whether a statement's effect reaches a captured table."""
    if effect.harmless or effect.temporary:
        return False
    if effect.reaches_all:
        return True
    named = any(captured(table) for table in effect.tables)
    return named or any(captures_in(database) for database in effect.databases)


def _control(sql: str) -> Meaning:
    """Return the meaning of a transaction control statement."""
    match = _WORDS.match(sql)
    first, second = (match[1].upper(), match[2].upper()) if match else ("", "")
    if first == "XA":
        return _XA.get(second, Meaning.HARMLESS)
    meaning = _CONTROL.get(first, Meaning.HARMLESS)
    if meaning is Meaning.ROLLBACK and second == "TO":
        return Meaning.ROLLBACK_TO_SAVEPOINT
    return meaning
