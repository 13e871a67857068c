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

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import (
    Token,
    TokenKind,
    has_executable_comment,
    has_wide_space,
    tokens,
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
    found = reduce(_both, (read(executes=each, wide_spaces=wide) for each, wide in readings))
    return replace(found, reaches_all=_reaches_all(found))


def _reaches_all(effect: StatementEffect) -> bool:
    """Tell whether any table may be changed, named or not.

    Row changes of the server's own tables are not: they have no triggers and foreign keys, and
    hosted servers log their heartbeat there as text.
    """
    if effect.kind is StatementKind.UNKNOWN:
        return True
    ours = {table.database.casefold() for table in effect.tables} <= _SYSTEM_DATABASES
    return effect.kind is StatementKind.ROWS and not (effect.tables and ours)


def _both(one: StatementEffect, other: StatementEffect) -> StatementEffect:
    """Return what one of two readings does, whichever it is; what is no statement is none."""
    if other.harmless or other.kind is StatementKind.UNKNOWN or one == other:
        return one
    if one.harmless:
        return other
    return replace(
        one,
        tables=tuple(dict.fromkeys(one.tables + other.tables)),
        databases=tuple(dict.fromkeys(one.databases + other.databases)),
        unlogged_rows=one.unlogged_rows or other.unlogged_rows,
        if_plain=(),
    )


def _effect(found: tuple[Token, ...], default_database: str) -> StatementEffect:
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

    def skip_existence(self) -> bool:
        """Move behind IF EXISTS or IF NOT EXISTS; tell whether it was the latter."""
        if not self.take_word("IF"):
            return False
        is_not = self.take_word("NOT")
        return self.take_word("EXISTS") and is_not

    def name(self) -> str:
        """Take a name, empty if none stands here."""
        token = self.current
        if token is None or not token.is_name:
            return ""
        self.position += 1
        return token.text

    @property
    def rest(self) -> Sequence[Token]:
        return self.tokens[self.position :]

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
        """Return the rest, cut at the commas between clauses."""
        whole: list[list[Token]] = []
        for part in self._parts():
            if whole and _goes_on(whole[-1], part):
                whole[-1] += part
            else:
                whole.append(part)
        return whole

    def _parts(self) -> list[list[Token]]:
        """Return the rest, cut at commas outside parentheses."""
        depth, found = 0, [[]]  # type: tuple[int, list[list[Token]]]
        for token in self.tokens[self.position :]:
            depth += token.is_mark("(") - token.is_mark(")")
            if depth == 0 and token.is_mark(","):
                found.append([])
            elif not token.is_mark(";"):
                found[-1].append(token)
        return [clause for clause in found if clause]


def _goes_on(clause: Sequence[Token], part: Sequence[Token]) -> bool:
    """Tell whether what stands behind a comma is one more name of a clause that lists some."""
    if len(clause) < 2 or not part[0].is_name:
        return False
    if clause[0].is_word("ORDER") and clause[1].is_word("BY"):
        return len(part) == 1 or (len(part) == 2 and part[1].is_word("ASC", "DESC"))
    if not clause[1].is_word("PARTITION"):
        return False
    return len(part) == 1 or (clause[0].is_word("REORGANIZE") and part[1].is_word("INTO"))


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
        if any(token.is_word("UNIQUE") for token in passed):
            return _index_statement(reading, drops=True, is_plain=False)
        # MariaDB: OR REPLACE drops the one of that name first
        return _index_statement(reading, drops=any(token.is_word("REPLACE") for token in passed))
    if noun in _DATABASE_NOUNS and any(token.is_word("REPLACE") for token in passed):
        return _dropped_database(reading)  # MariaDB: it is dropped with all its tables first
    if noun not in _TABLE_NOUNS:
        # SPATIAL REFERENCE SYSTEM has no noun of its own
        known = noun in _OTHER_NOUNS | _DATABASE_NOUNS or _names_reference_system(passed)
        return HARMLESS if known else _UNKNOWN
    if any(token.is_word("TEMPORARY") for token in passed):
        return StatementEffect(StatementKind.CREATE, harmless=True, temporary=True)
    is_guarded = reading.skip_existence()
    table = reading.table()
    if table is None:
        return _UNKNOWN
    harmless = is_guarded and not _copies_rows(reading.rest)
    return StatementEffect(StatementKind.CREATE, tables=(table,), harmless=harmless)


def _copies_rows(rest: Sequence[Token]) -> bool:
    """Tell whether a CREATE TABLE may bring rows along.

    Without, IF NOT EXISTS does nothing to a table that is there; and a captured one is, because
    what drops it or gives it another name stops the stream.
    """
    if any(token.is_word("SELECT", "TABLE") for token in rest):
        return True
    pairs = pairwise(rest)
    return any(left.is_word("VALUES") and not right.is_word("IN", "LESS") for left, right in pairs)


def _names_reference_system(passed: Sequence[Token]) -> bool:
    return any(token.is_word("REFERENCE") for token in passed)


def _index_statement(reading: _Reading, *, drops: bool, is_plain: bool = True) -> StatementEffect:
    """Read `INDEX name ... ON table`."""
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
    effect = StatementEffect(StatementKind.ALTER, tables=(table,), harmless=is_plain and not drops)
    # CREATE INDEX name USING BTREE ON table
    return replace(effect, if_plain=(name,)) if drops and is_plain and is_exact else effect


def _drop(reading: _Reading) -> StatementEffect:
    temporary = reading.take_word("TEMPORARY")
    noun = reading.noun()
    if noun in _DATABASE_NOUNS:
        return _dropped_database(reading)
    if noun in _INDEX_NOUNS:
        return _index_statement(reading, drops=True)
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
    before = reading.position
    noun = reading.noun()
    ignores = any(token.is_word("IGNORE") for token in reading.tokens[before : reading.position])
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
    touched = [_touched(clause) for clause in clauses]
    known = tuple(name for names in touched for name in names or ())
    is_known = None not in touched and not ignores  # IGNORE drops rows that do not fit
    return StatementEffect(
        StatementKind.RENAME if renamed else StatementKind.ALTER,
        tables=named,
        renames=((table, renamed),) if renamed else (),
        harmless=is_known and not known,
        unlogged_rows=any(_moves_rows(clause) for clause in clauses),
        if_plain=known if is_known else (),
        drops_constraints=any(c[0].is_word("DROP") and not _drops_index(c) for c in clauses),
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
_VALUED_OPTIONS = {
    *("ALGORITHM", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHARSET", "CHECKSUM"),
    *("COLLATE", "COMMENT", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTED"),
    *("ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE_ATTRIBUTE", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS"),
    *("MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"),
    *("ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC"),
    *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TRANSACTIONAL"),
}
"""Charset and collation are those of columns to come: CONVERT TO changes the ones that are."""
_BARE_OPTIONS = {
    "DISABLE": ("KEYS",),
    "ENABLE": ("KEYS",),
    "FORCE": (),
    "SECONDARY_LOAD": (),
    "SECONDARY_UNLOAD": (),
    "WITH": ("VALIDATION",),
    "WITHOUT": ("VALIDATION",),
}


def _moves_rows(clause: Sequence[Token]) -> bool:
    if clause[0].is_word("DISCARD", "IMPORT") and any(t.is_word("TABLESPACE") for t in clause):
        return True
    named = any(token.is_word("PARTITION") for token in clause[:3])
    return named and clause[0].is_word(*_MOVES_PARTITION)


def _touched(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Return the keys that must be plain for an ALTER TABLE clause to be harmless.

    Harmless is what leaves rows, columns, unique keys and names alone. None if it is not.
    """
    first = clause[0]
    if first.is_word("DROP"):
        return _dropped(clause)
    if first.is_word("RENAME"):
        return _renamed_index(clause)
    return () if _is_harmless(clause) else None


def _is_harmless(clause: Sequence[Token]) -> bool:
    first, second = clause[0], clause[1] if len(clause) > 1 else clause[0]
    if any(token.is_word("PARTITION") for token in clause[:2]):
        return first.is_word(*_KEEPS_PARTITION)
    if first.is_word("ADD"):
        return _is_harmless_addition(clause)
    if first.is_word("ALTER"):
        return _is_harmless_alteration(clause)
    if first.is_word("ORDER"):
        return second.is_word("BY")
    return _are_harmless_options(clause)


def _drops_index(clause: Sequence[Token]) -> bool:
    return len(clause) > 1 and clause[1].is_word("INDEX", "KEY")


def _dropped(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Read DROP {INDEX | KEY | CONSTRAINT | CHECK | FOREIGN KEY} [IF EXISTS] name."""
    rest = _Reading(clause[1:], "")
    is_foreign = rest.take_word("FOREIGN") and rest.take_word("KEY")
    if not is_foreign and not rest.take_word("INDEX", "KEY", "CONSTRAINT", "CHECK"):
        return None  # a column, partitions, the primary key
    rest.skip_existence()
    name = rest.name()
    if not name or rest.rest:
        return None
    return () if is_foreign else (name,)


def _renamed_index(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Read RENAME {INDEX | KEY} [IF EXISTS] old TO new."""
    rest = _Reading(clause[1:], "")
    if not rest.take_word("INDEX", "KEY"):
        return None
    rest.skip_existence()
    old = rest.name()
    is_whole = rest.take_word("TO") and bool(rest.name()) and not rest.rest
    return (old,) if old and is_whole else None


def _is_harmless_alteration(clause: Sequence[Token]) -> bool:
    """Tell whether ALTER changes an index's visibility, a check's enforcement or a default."""
    rest = _Reading(clause[1:], "")
    if rest.take_word("INDEX", "KEY"):
        return True
    if rest.take_word("CHECK", "CONSTRAINT"):
        return clause[-1].is_word("ENFORCED")
    rest.take_word("COLUMN")
    rest.skip_existence()
    if not rest.name():
        return False
    if rest.take_word("SET"):
        return rest.take_word("DEFAULT")
    return rest.take_word("DROP") and rest.take_word("DEFAULT") and not rest.rest


def _are_harmless_options(clause: Sequence[Token]) -> bool:
    """Tell whether all of a clause are options: several may stand in one without commas."""
    rest = _Reading(clause, "")
    while rest.rest:
        if rest.take_word("PARTITION"):
            return rest.take_word("BY")
        if rest.take_word("REMOVE"):
            return rest.take_word("PARTITIONING") and not rest.rest
        if not _takes_option(rest):
            return False
    return True


def _takes_option(rest: _Reading) -> bool:
    """Move behind one harmless option."""
    if rest.take_word("DEFAULT") and not _is_at(rest, "CHARACTER", "CHARSET", "COLLATE"):
        return False
    if rest.take_word("CHARACTER"):
        return rest.take_word("SET") and bool(_option_value(rest))
    word = rest.next_word()
    if word in _BARE_OPTIONS:
        return not _BARE_OPTIONS[word] or rest.take_word(*_BARE_OPTIONS[word])
    if word == "ENGINE":
        return _option_value(rest).upper() == "INNODB"
    return word in _VALUED_OPTIONS and bool(_option_value(rest))


def _is_at(rest: _Reading, *words: str) -> bool:
    token = rest.current
    return token is not None and token.is_word(*words)


def _option_value(rest: _Reading) -> str:
    """Take `[=] value` and return the value, a blank if it is an empty text; empty if none is."""
    rest.take_mark("=")
    token = rest.current
    if token is None or token.kind is TokenKind.MARK:
        return ""
    rest.position += 1
    return token.text or " "


def _is_harmless_addition(clause: Sequence[Token]) -> bool:
    words = [token for token in clause[1:5] if token.is_name]
    if len(clause) > 1 and clause[1].is_mark("("):
        return False  # a list, in which columns may stand behind indexes
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
