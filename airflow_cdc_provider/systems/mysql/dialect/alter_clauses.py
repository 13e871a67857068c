"""What one clause of an ALTER TABLE does: to names, to rows, and whether it leaves them alone."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, TokenKind
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import StatementTokens

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


def new_name_in(clause: Sequence[Token], reading: StatementTokens) -> TableId | None:
    """Return the table's new name in a RENAME clause of ALTER TABLE; None for any other clause."""
    if not clause[0].is_word("RENAME"):
        return None
    rest = StatementTokens(clause[1:], reading.default_database)
    explicit = rest.take_word("TO", "AS") or rest.take_mark("=")
    if not explicit and rest.take_word("COLUMN", "INDEX", "KEY"):
        return None
    return rest.table()


def exchanged_in(clause: Sequence[Token], reading: StatementTokens) -> TableId | None:
    """Return the other table that a clause moves partitions from or to, None if there is none.

    The forms are
    EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION.
    """
    rest = StatementTokens(clause, reading.default_database)
    if not (rest.take_word("EXCHANGE", "CONVERT") and rest.skip_to("TABLE")):
        return None
    rest.position += 1
    return rest.table()


def moves_rows(clause: Sequence[Token]) -> bool:
    """Tell whether an ALTER TABLE clause adds or removes rows that are not logged."""
    if clause[0].is_word("DISCARD", "IMPORT") and any(t.is_word("TABLESPACE") for t in clause):
        return True
    named = any(token.is_word("PARTITION") for token in clause[:3])
    return named and clause[0].is_word(*_MOVES_PARTITION)


def cascades(tokens: Sequence[Token]) -> bool:
    """Tell whether a clause or a definition has a foreign key that changes rows by itself."""
    if not any(token.is_word("REFERENCES") for token in tokens):
        return False
    return any(
        on.is_word("ON") and event.is_word("DELETE", "UPDATE") and action.is_word("CASCADE", "SET")
        for on, event, action in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def renamed_column(clause: Sequence[Token]) -> tuple[str, str] | None:
    """Return the old and new name in a RENAME COLUMN or CHANGE clause, None for other clauses."""
    rest = StatementTokens(clause, "")
    is_change = rest.take_word("CHANGE")
    if not is_change and not rest.take_word("RENAME"):
        return None
    if not rest.take_word("COLUMN") and not is_change:
        return None
    rest.skip_existence()
    old = rest.name()
    if not is_change and not rest.take_word("TO"):
        return None
    new = rest.name()
    return (old, new) if old and new else None


def is_told_by_definitions(clause: Sequence[Token]) -> bool:
    """Tell whether definitions before and after, and moved rows, show all that a clause did."""
    if moves_rows(clause) or touched_keys(clause) is not None:
        return True
    first, words = clause[0], [token.text.upper() for token in clause[1:3] if token.is_name]
    if first.is_word("ADD", "DROP"):
        return words not in (["SYSTEM", "VERSIONING"], ["PERIOD", "FOR"])
    if first.is_word("CONVERT"):
        return words[:1] == ["TO"]
    if first.is_word("ALTER"):
        return clause[-1].is_word("VISIBLE", "INVISIBLE")
    return first.is_word("MODIFY", "CHANGE") or renamed_column(clause) is not None


def replaces_column(clauses: Sequence[Sequence[Token]]) -> bool:
    """Tell whether a dropped column may be added again, or another column may take its name."""
    dropped = {
        token.text.casefold()
        for clause in clauses
        if clause[0].is_word("DROP") and touched_keys(clause) is None
        for token in clause[1:]
    }
    named = {
        token.text.casefold()
        for clause in clauses
        if not clause[0].is_word("DROP")
        for token in clause
        if token.is_name and not token.is_word("COLUMN", "IF", "EXISTS")
    }
    return bool(dropped & named)


def touched_keys(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Return the keys that must not be unique for a clause to be harmless; None if it is not.

    A harmless clause leaves rows, columns, unique keys and names alone.
    """
    first = clause[0]
    if first.is_word("DROP"):
        return _dropped(clause)
    if first.is_word("RENAME"):
        return _renamed_index(clause)
    return () if _is_harmless(clause) else None


def _is_harmless(clause: Sequence[Token]) -> bool:
    """Tell whether a clause leaves rows, columns, unique keys and names alone."""
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


def drops_index(clause: Sequence[Token]) -> bool:
    """Tell whether a DROP clause drops an index."""
    return len(clause) > 1 and clause[1].is_word("INDEX", "KEY")


def _dropped(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Return the index or constraint that a DROP clause names; None for a column or partition."""
    rest = StatementTokens(clause[1:], "")
    is_foreign = rest.take_word("FOREIGN") and rest.take_word("KEY")
    if not is_foreign and not rest.take_word("INDEX", "KEY", "CONSTRAINT", "CHECK"):
        return None  # a column, partitions, the primary key
    rest.skip_existence()
    name = rest.name()
    if not name or rest.rest:
        return None
    return () if is_foreign else (name,)


def _renamed_index(clause: Sequence[Token]) -> tuple[str, ...] | None:
    """Return the old name in a RENAME INDEX clause, None for other clauses."""
    rest = StatementTokens(clause[1:], "")
    if not rest.take_word("INDEX", "KEY"):
        return None
    rest.skip_existence()
    old = rest.name()
    is_whole = rest.take_word("TO") and bool(rest.name()) and not rest.rest
    return (old,) if old and is_whole else None


def _is_harmless_alteration(clause: Sequence[Token]) -> bool:
    """Tell whether an ALTER clause changes only an index's visibility, a check or a default."""
    rest = StatementTokens(clause[1:], "")
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
    """Tell whether a clause consists of harmless table options only."""
    rest = StatementTokens(clause, "")
    while rest.rest:
        if rest.take_word("PARTITION"):
            return rest.take_word("BY")
        if rest.take_word("REMOVE"):
            return rest.take_word("PARTITIONING") and not rest.rest
        if not _takes_option(rest):
            return False
    return True


def _takes_option(rest: StatementTokens) -> bool:
    """Move past one table option; False if the option is not harmless."""
    if rest.take_word("DEFAULT") and not rest.is_at("CHARACTER", "CHARSET", "COLLATE"):
        return False
    if rest.take_word("CHARACTER"):
        return rest.take_word("SET") and bool(_option_value(rest))
    word = rest.next_word()
    if word in _BARE_OPTIONS:
        return not _BARE_OPTIONS[word] or rest.take_word(*_BARE_OPTIONS[word])
    if word == "ENGINE":
        return _option_value(rest).upper() == "INNODB"
    return word in _VALUED_OPTIONS and bool(_option_value(rest))


def _option_value(rest: StatementTokens) -> str:
    """Take the value of a table option: a blank for an empty text, empty if there is none."""
    rest.take_mark("=")
    token = rest.current
    if token is None or token.kind is TokenKind.MARK:
        return ""
    rest.position += 1
    return token.text or " "


def _is_harmless_addition(clause: Sequence[Token]) -> bool:
    """Tell whether an ADD clause adds only a plain index, a check or a harmless foreign key."""
    words = [token for token in clause[1:5] if token.is_name]
    if len(clause) > 1 and clause[1].is_mark("("):
        return False  # a list, in which columns may stand behind indexes
    if any(token.is_word("UNIQUE", "PRIMARY", "COLUMN") for token in words):
        return False
    if any(token.is_word("JSON_VALID") for token in clause):
        return False  # MariaDB's JSON is a text with this check
    if cascades(clause):
        return False
    if words and words[0].is_word("INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"):
        return True
    named = words and words[0].is_word("CONSTRAINT")
    return bool(named) and any(token.is_word("FOREIGN", "CHECK") for token in clause)
