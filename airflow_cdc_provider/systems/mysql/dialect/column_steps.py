"""What the clauses of an ALTER TABLE do to columns, one after another.

Only what the text says whole: IF EXISTS depends on what is there, and CONVERT TO changes columns it
does not name. Then nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.statement_effect import ColumnStep, StepKind
from airflow_cdc_provider.systems.mysql.dialect.alter_clauses import touched_keys
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import StatementTokens

_KEY_WORDS = ("CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "SPATIAL", "UNIQUE")
_NOT_COLUMNS = (*_KEY_WORDS, "PARTITION", "PERIOD", "PRIMARY", "SYSTEM")


class _UntoldError(Exception):
    """The text of a clause alone does not show what it does to columns."""


def column_steps(clauses: Sequence[Sequence[Token]]) -> tuple[ColumnStep, ...] | None:
    """Return what an ALTER TABLE does to columns, None if its text does not show that."""
    try:
        return tuple(step for clause in clauses for step in _steps(clause))
    except _UntoldError:
        return None


def touches_unique_keys(clauses: Sequence[Sequence[Token]]) -> bool:
    """Tell whether clauses may add, drop or rename a unique key."""
    named = any(token.is_word("PRIMARY", "UNIQUE") for clause in clauses for token in clause)
    return named or any(touched_keys(clause) for clause in clauses)


def _steps(clause: Sequence[Token]) -> Iterator[ColumnStep]:
    """Yield what one clause does to columns."""
    if any(token.is_word("EXISTS") for token in clause[:5]):
        raise _UntoldError
    rest = StatementTokens(clause, "")
    if rest.take_word("ADD"):
        yield from _added(rest)
    elif rest.take_word("DROP"):
        yield from _dropped(rest)
    elif rest.take_word("MODIFY"):
        rest.take_word("COLUMN")
        yield ColumnStep(StepKind.DEFINE, _name(rest), after=_after(rest.rest))
    elif rest.take_word("CHANGE"):
        rest.take_word("COLUMN")
        yield ColumnStep(StepKind.DEFINE, _name(rest), _name(rest), _after(rest.rest))
    elif rest.take_word("RENAME"):
        yield from _renamed(rest)
    elif rest.take_word("ALTER"):
        yield from _altered(rest)
    elif touched_keys(clause) is None:
        raise _UntoldError


def _added(rest: StatementTokens) -> Iterator[ColumnStep]:
    """Yield the columns that an ADD clause adds."""
    if rest.is_at(*_KEY_WORDS, "PRIMARY"):
        return
    if rest.is_at("PARTITION", "PERIOD", "SYSTEM"):
        raise _UntoldError
    rest.take_word("COLUMN")
    if rest.take_mark("("):
        for part in _listed(rest):
            if not part[0].is_word(*_NOT_COLUMNS):
                yield ColumnStep(StepKind.ADD, _name(StatementTokens(part, "")))
        return
    yield ColumnStep(StepKind.ADD, _name(rest), after=_after(rest.rest))


def _listed(rest: StatementTokens) -> Iterator[Sequence[Token]]:
    """Yield the definitions in an opened list in parentheses, which must end the clause."""
    if not rest.rest or not rest.rest[-1].is_mark(")"):
        raise _UntoldError
    yield from StatementTokens(rest.rest[:-1], "").clauses()


def _dropped(rest: StatementTokens) -> Iterator[ColumnStep]:
    """Yield the column that a DROP clause drops."""
    if rest.is_at(*_KEY_WORDS, "PRIMARY"):
        return
    if rest.is_at("PARTITION", "PERIOD", "SYSTEM"):
        raise _UntoldError
    rest.take_word("COLUMN")
    name = _name(rest)
    rest.take_word("RESTRICT", "CASCADE")
    if rest.rest:
        raise _UntoldError
    yield ColumnStep(StepKind.DROP, name)


def _renamed(rest: StatementTokens) -> Iterator[ColumnStep]:
    """Yield the column that a RENAME clause renames."""
    if rest.take_word("INDEX", "KEY"):
        return
    if not rest.take_word("COLUMN"):
        raise _UntoldError
    name = _name(rest)
    if not rest.take_word("TO"):
        raise _UntoldError
    yield ColumnStep(StepKind.RENAME, name, _name(rest))


def _altered(rest: StatementTokens) -> Iterator[ColumnStep]:
    """Yield the column whose definition an ALTER clause changes."""
    if rest.take_word("CHECK", "CONSTRAINT", "INDEX", "KEY"):
        return
    rest.take_word("COLUMN")
    yield ColumnStep(StepKind.DEFINE, _name(rest))


def _after(definition: Sequence[Token]) -> str | None:
    """Return the column of AFTER at a definition's end, empty for FIRST, None for neither."""
    words = [token.is_word("AFTER", "FIRST") for token in definition]
    if not any(words):
        return None
    if len(definition) > 1 and definition[-2].is_word("AFTER") and definition[-1].is_name:
        ours, found = 2, definition[-1].text
    else:
        ours, found = 1, ""
    if any(words[:-ours]) or not words[-ours]:
        raise _UntoldError  # options stand behind it, or a column has such a name
    return found


def _name(rest: StatementTokens) -> str:
    """Take a column's name; a missing or qualified one is an error."""
    name = rest.name()
    if not name or rest.take_mark("."):
        raise _UntoldError
    return name
