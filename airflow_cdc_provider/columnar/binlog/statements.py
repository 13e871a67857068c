"""Statements that the log carries as text: what each may mean for captured tables.

With `binlog_format=ROW` the text is transaction control or DDL. A statement is read as tokens, not
by patterns: comments, quoted names, executable comments and ANSI quotes are what the server takes
them for. DDL that names a captured table is a barrier; DML as text that names one means that rows
were changed without being logged, which is an error. What is not known is an error too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from airflow_cdc_provider.columnar.binlog.byte_reader import ByteReader
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


_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?![!M])(?:[^*]|\*(?!/))*\*/)
  | (?P<executable>/\*M?!(?:\d{5,6})?)          # its content is executed: only the marks go
  | (?P<close>\*/)
  | (?P<backtick>`(?:[^`]|``)*`)
  | (?P<double>"(?:[^"\\]|\\.|"")*")
  | (?P<single>'(?:[^'\\]|\\.|'')*')
  | (?P<word>[\w$\u0080-\uffff]+)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool = False

    def is_word(self, *words: str) -> bool:
        return not self.quoted and self.text.upper() in words


def _tokens(statement: LoggedStatement) -> Iterator[_Token]:
    for match in _TOKEN.finditer(statement.sql):
        kind, text = match.lastgroup, match.group()
        if kind == "backtick":
            yield _Token(text[1:-1].replace("``", "`"), quoted=True)
        elif kind == "double" and statement.ansi_quotes:
            yield _Token(text[1:-1].replace('""', '"'), quoted=True)
        elif kind in {"double", "single"}:
            yield _Token("'" + text[1:-1] + "'")
        elif kind in {"word", "mark"}:
            yield _Token(text)


_HARMLESS_VERBS = frozenset(
    {
        "ANALYZE", "BINLOG", "CHANGE", "CHECK", "CHECKSUM", "DESCRIBE", "EXPLAIN", "FLUSH",
        "GRANT", "HELP", "INSTALL", "KILL", "LOCK", "OPTIMIZE", "PURGE", "RELEASE", "RESET",
        "REPAIR", "REVOKE", "SAVEPOINT", "SET", "SHOW", "UNINSTALL", "UNLOCK", "USE",
    }
)  # fmt: skip
_HARMLESS_OBJECTS = frozenset(
    {
        "EVENT", "FUNCTION", "INSTANCE", "LIBRARY", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE",
        "ROLE", "SERVER", "SPATIAL_REFERENCE", "TABLESPACE", "TRIGGER", "UNDO", "USER", "VIEW",
        "MASKING",
    }
)  # fmt: skip
_TABLE_VERBS = frozenset({"ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE"})
_ROW_VERBS = frozenset({"DELETE", "INSERT", "LOAD", "MERGE", "REPLACE", "UPDATE", "WITH", "IMPORT"})
_UNBOUNDED_VERBS = frozenset({"CALL", "DO", "EXECUTE", "SELECT"})
"""Statements that may change any table without naming it."""
_DATABASE_WORDS = frozenset({"DATABASE", "SCHEMA"})
_MODIFIERS = frozenset(
    {
        "OR", "REPLACE", "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT",
        "SPATIAL", "ALGORITHM", "SQL", "SECURITY", "INVOKER", "AGGREGATE", "EXTERNAL", "JSON",
        "DUALITY", "RELATIONAL",
    }
)  # fmt: skip


def meaning_of(
    statement: LoggedStatement,
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
) -> Meaning:
    """Classify a statement; `captures_in` tells whether a database may hold captured tables."""
    tokens = list(_tokens(statement))
    if len(tokens) > 1 and tokens[0].is_word("SET") and tokens[1].is_word("STATEMENT"):
        tokens = _behind_for(tokens)  # MariaDB: SET STATEMENT ... FOR <statement>
    if not tokens:
        return Meaning.HARMLESS
    verb = tokens[0].text.upper()
    control = _control(verb, tokens)
    if control is not None:
        return control
    names = _table_names(tokens, statement.database)
    if verb in _TABLE_VERBS:
        return _ddl(tokens, names, captured, captures_in, statement)
    if verb in _HARMLESS_VERBS:
        return Meaning.HARMLESS
    if verb in _ROW_VERBS:
        touched = sorted(name for name in names if captured(name))
        if touched:
            raise _rows_as_text(verb, str(touched[0]))
        return Meaning.HARMLESS
    if verb in _UNBOUNDED_VERBS:
        raise _rows_as_text(verb, f"database {statement.database}")
    raise UnknownEventError(
        f"the log holds a statement that begins with {verb[:30]!r}, which is not known",
        risk="it could change captured tables",
        remedy="report it with the server's version; a position behind it can be given by hand "
        "if it is known to be harmless",
    )


def _control(verb: str, tokens: list[_Token]) -> Meaning | None:
    second = tokens[1].text.upper() if len(tokens) > 1 else ""
    if verb == "BEGIN" or (verb == "START" and second == "TRANSACTION"):
        return Meaning.BEGIN
    if verb == "COMMIT":
        return Meaning.COMMIT
    if verb == "ROLLBACK":
        to_savepoint = any(token.is_word("TO") for token in tokens[1:3])
        return Meaning.ROLLBACK_TO_SAVEPOINT if to_savepoint else Meaning.ROLLBACK
    if verb == "XA":
        return _XA.get(second, Meaning.HARMLESS)
    return None


_XA = {
    "START": Meaning.XA_START,
    "BEGIN": Meaning.XA_START,
    "END": Meaning.XA_END,
    "COMMIT": Meaning.XA_COMMIT,
    "ROLLBACK": Meaning.XA_ROLLBACK,
}


def _behind_for(tokens: list[_Token]) -> list[_Token]:
    for place, token in enumerate(tokens):
        if token.is_word("FOR"):
            return tokens[place + 1 :]
    return tokens


def _ddl(
    tokens: list[_Token],
    names: set[TableId],
    captured: Callable[[TableId], bool],
    captures_in: Callable[[str], bool],
    statement: LoggedStatement,
) -> Meaning:
    kind, place = _object_kind(tokens)
    if kind in _DATABASE_WORDS:
        if tokens[0].is_word("CREATE"):
            return Meaning.HARMLESS
        rest = [token for token in tokens[place + 1 :] if not token.is_word("IF", "EXISTS")]
        database = rest[0].text if rest else statement.database
        return Meaning.BARRIER if captures_in(database) else Meaning.HARMLESS
    if kind in _HARMLESS_OBJECTS or kind == "SEQUENCE":
        return Meaning.HARMLESS
    if tokens[0].is_word("CREATE", "DROP") and any(
        token.is_word("TEMPORARY") for token in tokens[1:place]
    ):
        return Meaning.HARMLESS
    return Meaning.BARRIER if any(captured(name) for name in names) else Meaning.HARMLESS


def _object_kind(tokens: list[_Token]) -> tuple[str, int]:
    """Return what a DDL statement is about (TABLE, VIEW, ...) and where that word stands."""
    place = 1
    while place < len(tokens):
        word = tokens[place].text.upper()
        if tokens[place].quoted:
            return "TABLE", place
        known = word in _HARMLESS_OBJECTS or word in _DATABASE_WORDS
        if known or word in {"TABLE", "TABLES", "INDEX", "SEQUENCE"}:
            return word, place
        if word == "DEFINER":  # DEFINER = user [@ host]
            place += 4 if _has_host(tokens, place + 2) else 2
        elif word not in _MODIFIERS and word not in {"=", "UNDEFINED", "MERGE", "TEMPTABLE"}:
            return "TABLE", place
        place += 1
    return "TABLE", place


def _has_host(tokens: list[_Token], place: int) -> bool:
    return len(tokens) > place + 1 and tokens[place + 1].text == "@"


def _table_names(tokens: list[_Token], database: str) -> set[TableId]:
    """Return every name in the statement that could be a table's, in doubt too many."""
    found = set()
    names = [_is_name(token) for token in tokens]
    for place, token in enumerate(tokens):
        if not names[place]:
            continue
        behind_dot = place >= 2 and tokens[place - 1].text == "." and names[place - 2]
        if behind_dot:
            found.add(TableId(tokens[place - 2].text, token.text))
        elif database:
            found.add(TableId(database, token.text))
    return found


def _is_name(token: _Token) -> bool:
    if token.quoted:
        return bool(token.text)
    return bool(token.text) and (token.text[0].isalnum() or token.text[0] in "_$\x80")


def _rows_as_text(verb: str, what: str) -> IntegrityError:
    return IntegrityError(
        f"the log holds {verb} as a statement, not as rows: {what}",
        where=what,
        risk="rows it changed are not in the log",
        remedy="SET GLOBAL binlog_format = 'ROW', reconnect the writers, and resync the table",
    )
