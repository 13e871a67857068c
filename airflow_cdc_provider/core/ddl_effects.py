"""What a statement of the log does to tables, told by its tokens.

The log carries statements as text: definitions always, and row changes where a session does not
log rows. They are sorted into few kinds with the tables they name, so that the reader can tell
whether a captured table is concerned. Doubt is never harmless: a statement that is not known has
the kind `UNKNOWN` and concerns every table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.sql_tokens import Token, tokens


class StatementKind(StrEnum):
    """What kind of thing a statement does."""

    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    """Tables, or whole databases."""
    RENAME = "rename"
    TRUNCATE = "truncate"
    ROWS = "rows"
    """Row changes as text: the rows themselves are not in the log, nor are those that triggers,
    foreign keys and functions change along with them, in tables the text does not name."""
    TRANSACTION = "transaction"
    """BEGIN, COMMIT, ROLLBACK, savepoints and XA."""
    OTHER = "other"
    """Known to leave tables alone: views, users, routines, maintenance."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """A statement's kind and what it names."""

    kind: StatementKind
    tables: tuple[TableId, ...] = ()
    databases: tuple[str, ...] = ()
    """Databases that are dropped whole."""
    renames: tuple[tuple[TableId, TableId], ...] = ()
    harmless: bool = False
    """Neither rows, nor columns, nor unique keys, nor names change."""
    unlogged_rows: bool = False
    """Rows change without row events: partitions dropped or exchanged, tablespaces imported."""
    temporary: bool = False

    @property
    def reaches_all(self) -> bool:
        """Tell whether any table may be changed, named or not.

        Row changes of the server's own tables are not: they have no triggers and foreign keys, and
        hosted servers log their heartbeat there as text.
        """
        if self.kind is StatementKind.UNKNOWN:
            return True
        ours = {table.database.casefold() for table in self.tables} <= _SYSTEM_DATABASES
        return self.kind is StatementKind.ROWS and not (self.tables and ours)

    def concerns(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether this may change the rows or the definition of `table`."""
        if self.harmless:
            return False
        if self.reaches_all:
            return True

        def same(left: str, right: str) -> bool:
            return left.casefold() == right.casefold() if ignore_case else left == right

        if any(same(database, table.database) for database in self.databases):
            return True
        return any(
            same(named.database, table.database) and same(named.table, table.table)
            for named in self.tables
        )


_SYSTEM_DATABASES = {"mysql", "sys", "performance_schema"}
HARMLESS = StatementEffect(StatementKind.OTHER, harmless=True)
_UNKNOWN = StatementEffect(StatementKind.UNKNOWN)

_TRANSACTION = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "XA"}
_HARMLESS_VERBS = {
    *("ANALYZE", "BINLOG", "CACHE", "CHECK", "CHECKSUM", "DEALLOCATE", "DO", "EXECUTE", "FLUSH"),
    *("GRANT", "INSTALL", "KILL", "LOCK", "OPTIMIZE", "PREPARE", "PURGE", "REPAIR", "RESET"),
    *("REVOKE", "SET", "SHOW", "UNINSTALL", "UNLOCK", "USE"),
}
_ROW_VERBS = {"CALL", "DELETE", "IMPORT", "INSERT", "LOAD", "REPLACE", "UPDATE", "WITH"}
_TABLE_NOUNS = {"TABLE", "TABLES"}
_DATABASE_NOUNS = {"DATABASE", "SCHEMA"}
_OTHER_NOUNS = {
    *("EVENT", "FUNCTION", "LIBRARY", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE", "ROLE"),
    *("SEQUENCE", "SERVER", "SPATIAL_REFERENCE", "TABLESPACE", "TRIGGER", "UNDO", "USER", "VIEW"),
    *("INSTANCE", "MATERIALIZED", "MASKING"),
}
_INDEX_NOUNS = {"INDEX"}
_NOUNS = _TABLE_NOUNS | _DATABASE_NOUNS | _OTHER_NOUNS | _INDEX_NOUNS


def effect_of(
    statement: str,
    *,
    default_database: str = "",
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
) -> StatementEffect:
    """Tell what a statement does; names without a database are in `default_database`."""
    found = tuple(tokens(statement, ansi_quotes=ansi_quotes, backslash_escapes=backslash_escapes))
    if not found:
        return HARMLESS  # MariaDB replaces events a reader would not know by a comment
    reading = _Reading(found, default_database)
    if reading.take_word("SET") and reading.take_word("STATEMENT"):
        # MariaDB: SET STATEMENT variable = value FOR statement
        reading.skip_to("FOR")
        reading.take_word("FOR")
    else:
        reading.position = 0
    verb = reading.next_word()
    if verb in _TRANSACTION:
        return StatementEffect(StatementKind.TRANSACTION, harmless=True)
    if verb in _HARMLESS_VERBS:
        return HARMLESS
    if verb in _ROW_VERBS:
        return _row_change(verb, reading)
    parse = _PARSERS.get(verb)
    return parse(reading) if parse else _UNKNOWN


class _Reading:
    """A place in a statement's tokens."""

    def __init__(self, found: Sequence[Token], default_database: str) -> None:
        self.tokens = found
        self.default_database = default_database
        self.position = 0

    @property
    def current(self) -> Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def next_word(self) -> str:
        """Take a token and return it in upper case, empty unless it is an unquoted word."""
        token = self.current
        self.position += 1
        return token.text.upper() if token is not None and token.is_word(token.text.upper()) else ""

    def take_word(self, *words: str) -> bool:
        """Take the next token if it is one of these words."""
        token = self.current
        if token is None or not token.is_word(*words):
            return False
        self.position += 1
        return True

    def take_mark(self, mark: str) -> bool:
        """Take the next token if it is this mark."""
        token = self.current
        if token is None or not token.is_mark(mark):
            return False
        self.position += 1
        return True

    def skip_to(self, *words: str) -> bool:
        """Move to the next of these words outside parentheses; False if there is none."""
        depth = 0
        while (token := self.current) is not None:
            depth += token.is_mark("(") - token.is_mark(")")
            if depth == 0 and token.is_word(*words):
                return True
            self.position += 1
        return False

    def noun(self) -> str:
        """Move behind the word that says what is created, altered or dropped."""
        while (token := self.current) is not None:
            self.position += 1
            if token.is_word("DEFINER"):
                self._skip_account()
            elif token.is_word(*_NOUNS):
                return token.text.upper()
            elif token.is_mark("("):
                return ""
        return ""

    def _skip_account(self) -> None:
        if not self.take_mark("="):
            return  # SQL SECURITY DEFINER
        self.position += 1
        if self.take_mark("@") or self.take_mark("("):  # user@host or CURRENT_USER()
            self.position += 1

    def skip_existence(self) -> None:
        """Move behind IF EXISTS or IF NOT EXISTS."""
        if self.take_word("IF"):
            self.take_word("NOT")
            self.take_word("EXISTS")

    def table(self) -> TableId | None:
        """Take a table's name, None if none stands here."""
        self.take_mark(".")
        token = self.current
        if token is None or not token.is_name:
            return None
        self.position += 1
        if not self.take_mark("."):
            return TableId(self.default_database, token.text)
        second = self.current
        if second is None or not second.is_name:
            return None
        self.position += 1
        return TableId(token.text, second.text)

    def table_list(self) -> tuple[TableId, ...]:
        """Take names parted by commas; empty if one of them is not understood."""
        found = []
        while True:
            table = self.table()
            if table is None:
                return ()
            found.append(table)
            if not self.take_mark(","):
                return tuple(found)

    def clauses(self) -> list[list[Token]]:
        """Return the rest, cut at commas outside parentheses."""
        depth, found = 0, [[]]  # type: tuple[int, list[list[Token]]]
        for token in self.tokens[self.position :]:
            depth += token.is_mark("(") - token.is_mark(")")
            if depth == 0 and token.is_mark(","):
                found.append([])
            elif not token.is_mark(";"):
                found[-1].append(token)
        return [clause for clause in found if clause]


def _row_change(verb: str, reading: _Reading) -> StatementEffect:
    """Name the one table of a simple statement; a statement with more names none."""
    words = {"INSERT": ("INTO",), "REPLACE": ("INTO",), "DELETE": ("FROM",)}.get(verb)
    several = any(t.is_word("JOIN", "USING", "SELECT") for t in reading.tokens)
    if words is None or several or not reading.skip_to(*words):
        return StatementEffect(StatementKind.ROWS)
    reading.position += 1
    table = reading.table()
    follows = reading.current
    if table is None or (follows is not None and follows.is_mark(",")):
        return StatementEffect(StatementKind.ROWS)
    return StatementEffect(StatementKind.ROWS, tables=(table,))


def _create(reading: _Reading) -> StatementEffect:
    before = reading.position
    noun = reading.noun()
    passed = reading.tokens[before : reading.position]
    if noun in _INDEX_NOUNS:
        harmless = not any(token.is_word("UNIQUE") for token in passed)
        return _index_statement(reading, harmless=harmless)
    if noun in _DATABASE_NOUNS and any(token.is_word("REPLACE") for token in passed):
        return _dropped_database(reading)  # MariaDB: it is dropped with all its tables first
    if noun not in _TABLE_NOUNS:
        # SPATIAL REFERENCE SYSTEM has no noun of its own
        known = noun in _OTHER_NOUNS | _DATABASE_NOUNS or _names_reference_system(passed)
        return HARMLESS if known else _UNKNOWN
    if any(token.is_word("TEMPORARY") for token in passed):
        return StatementEffect(StatementKind.CREATE, harmless=True, temporary=True)
    reading.skip_existence()
    table = reading.table()
    return StatementEffect(StatementKind.CREATE, tables=(table,)) if table else _UNKNOWN


def _names_reference_system(passed: Sequence[Token]) -> bool:
    return any(token.is_word("REFERENCE") for token in passed)


def _index_statement(reading: _Reading, *, harmless: bool) -> StatementEffect:
    """Read `INDEX name ... ON table`."""
    reading.skip_existence()
    reading.position += 1  # the index's name, which may be the word ON
    if not reading.skip_to("ON"):
        return _UNKNOWN
    reading.position += 1
    table = reading.table()
    if table is None:
        return _UNKNOWN
    return StatementEffect(StatementKind.ALTER, tables=(table,), harmless=harmless)


def _drop(reading: _Reading) -> StatementEffect:
    temporary = reading.take_word("TEMPORARY")
    noun = reading.noun()
    if noun in _DATABASE_NOUNS:
        return _dropped_database(reading)
    if noun in _INDEX_NOUNS:
        return _index_statement(reading, harmless=False)
    if noun not in _TABLE_NOUNS:
        known = noun in _OTHER_NOUNS or _names_reference_system(reading.tokens)
        return HARMLESS if known else _UNKNOWN
    if temporary:
        return StatementEffect(StatementKind.DROP, harmless=True, temporary=True)
    reading.skip_existence()
    found = reading.table_list()
    return StatementEffect(StatementKind.DROP, tables=found) if found else _UNKNOWN


def _dropped_database(reading: _Reading) -> StatementEffect:
    reading.skip_existence()
    token = reading.current
    if token is None:
        return _UNKNOWN
    return StatementEffect(StatementKind.DROP, databases=(token.text,))


def _rename(reading: _Reading) -> StatementEffect:
    if not reading.take_word(*_TABLE_NOUNS):
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


def _truncate(reading: _Reading) -> StatementEffect:
    reading.take_word("TABLE")
    table = reading.table()
    if table is None:
        return _UNKNOWN
    return StatementEffect(StatementKind.TRUNCATE, tables=(table,), unlogged_rows=True)


def _alter(reading: _Reading) -> StatementEffect:
    noun = reading.noun()
    if noun not in _TABLE_NOUNS:
        return HARMLESS if noun in _OTHER_NOUNS | _DATABASE_NOUNS else _UNKNOWN
    reading.skip_existence()
    table = reading.table()
    if table is None:
        return _UNKNOWN
    if reading.take_word("WAIT"):
        reading.position += 1
    reading.take_word("NOWAIT")
    clauses = reading.clauses()
    renamed = next((new for c in clauses if (new := _new_name(c, reading))), None)
    exchanged = next((new for c in clauses if (new := _exchanged(c, reading))), None)
    named = tuple(found for found in (table, renamed, exchanged) if found is not None)
    return StatementEffect(
        StatementKind.RENAME if renamed else StatementKind.ALTER,
        tables=named,
        renames=((table, renamed),) if renamed else (),
        harmless=bool(clauses) and all(_is_harmless(clause) for clause in clauses),
        unlogged_rows=any(_moves_rows(clause) for clause in clauses),
    )


def _new_name(clause: Sequence[Token], reading: _Reading) -> TableId | None:
    """Return the new name of `RENAME [TO|AS|=] name`, not of RENAME COLUMN or RENAME INDEX."""
    if not clause[0].is_word("RENAME"):
        return None
    rest = _Reading(clause[1:], reading.default_database)
    explicit = rest.take_word("TO", "AS") or rest.take_mark("=")
    if not explicit and rest.take_word("COLUMN", "INDEX", "KEY"):
        return None
    return rest.table()


def _exchanged(clause: Sequence[Token], reading: _Reading) -> TableId | None:
    """Return the other table that partitions are moved from or to.

    EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION.
    """
    rest = _Reading(clause, reading.default_database)
    if not (rest.take_word("EXCHANGE", "CONVERT") and rest.skip_to("TABLE")):
        return None
    rest.position += 1
    return rest.table()


_MOVES_PARTITION = {"CONVERT", "DISCARD", "DROP", "EXCHANGE", "IMPORT", "TRUNCATE"}
_KEEPS_PARTITION = {
    *("ADD", "ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "PARTITION", "REBUILD", "REORGANIZE"),
    *("REPAIR",),
}
_OPTIONS = {
    *("ALGORITHM", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT"),
    *("COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "DISABLE", "ENABLE", "ENCRYPTION", "FORCE"),
    *("KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "ORDER", "PACK_KEYS", "PAGE_CHECKSUM"),
    *("ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES"),
    *("SECONDARY_LOAD", "SECONDARY_UNLOAD", "WITHOUT", "WITH"),
}


def _moves_rows(clause: Sequence[Token]) -> bool:
    if clause[0].is_word("DISCARD", "IMPORT") and any(t.is_word("TABLESPACE") for t in clause):
        return True
    named = any(token.is_word("PARTITION") for token in clause[:3])
    return named and clause[0].is_word(*_MOVES_PARTITION)


def _is_harmless(clause: Sequence[Token]) -> bool:
    """Tell whether an ALTER TABLE clause leaves rows, columns, keys and names alone."""
    first, second = clause[0], clause[1] if len(clause) > 1 else clause[0]
    if any(token.is_word("PARTITION", "PARTITIONING") for token in clause[:2]):
        return first.is_word(*_KEEPS_PARTITION) or second.is_word("PARTITIONING")
    if first.is_word("ADD"):
        return _is_harmless_addition(clause)
    if first.is_word("DROP"):
        # a dropped index may have been unique, a dropped check one the sink still has
        return second.is_word("FOREIGN")
    if first.is_word("RENAME", "ALTER"):
        return second.is_word("INDEX", "KEY")
    if first.is_word("WITH", "WITHOUT"):
        return second.is_word("VALIDATION")
    if first.is_word("ENGINE"):
        return any(token.is_word("INNODB") for token in clause)
    return first.is_word(*_OPTIONS)


def _is_harmless_addition(clause: Sequence[Token]) -> bool:
    words = [token for token in clause[1:5] if token.is_name]
    if any(token.is_word("UNIQUE", "PRIMARY", "COLUMN") for token in words):
        return False
    is_foreign = any(token.is_word("FOREIGN") for token in clause)
    if is_foreign and any(token.is_word("CASCADE", "SET") for token in clause):
        return False  # few servers log the rows that such a foreign key changes by itself
    if words and words[0].is_word("INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"):
        return True
    named = words and words[0].is_word("CONSTRAINT")
    return bool(named) and any(token.is_word("FOREIGN", "CHECK") for token in clause)


_PARSERS: dict[str, Callable[[_Reading], StatementEffect]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
