"""What a statement that changes rows writes, reads and calls, as its text says.

A log in ROW format has no such statements. Where a session logs statements instead, the text names
the table that it writes. What changes besides depends on what the text does not say: on triggers
and foreign keys of that table, and on functions that are called by it, or by a view it reads.

Only the plain forms of one written table are read; what another form writes is not known. A read
table too many is no harm: nothing is found under its name, so nothing is believed of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.native_functions import (
    KEYWORDS_BEFORE_PARENTHESES,
    NATIVE_FUNCTIONS,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import StatementTokens

_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE")
_JOINS = ("JOIN", "STRAIGHT_JOIN")
_ENDS = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "RETURNING"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS"),
}
"""Behind these words comes no table of the list before them."""
_FROM_OF_FUNCTIONS = ("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "MID")
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE")
_NOT_CALLED = NATIVE_FUNCTIONS | KEYWORDS_BEFORE_PARENTHESES


@dataclass(frozen=True, slots=True)
class RowStatement:
    """The table that a row change writes, the tables it reads, and the functions it calls."""

    writes: TableId | None = None
    """None if the text does not say it, or says more than one."""
    reads: tuple[TableId, ...] = ()
    calls: tuple[str, ...] = ()
    """Functions that not every server has by itself, in lower case."""


def row_statement(verb: str, reading: StatementTokens) -> RowStatement:
    """Parse a row change after its first word, which is `verb` in upper case."""
    while reading.take_word(*_MODIFIERS):
        pass
    if verb in {"INSERT", "REPLACE"}:
        reading.take_word("INTO")
        table = reading.table()
    elif verb == "UPDATE":
        table = _before(reading, "SET")
    elif verb == "DELETE" and reading.take_word("FROM"):
        table = _before(reading, "WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION")
    else:
        table = None
    if table is None or any(token.is_word("TABLE") for token in reading.rest):
        return RowStatement()
    reads = list(_read_tables(reading))
    if None in reads:
        return RowStatement()
    others = dict.fromkeys(each for each in reads if each not in {None, table})
    return RowStatement(table, tuple(filter(None, others)), tuple(_calls(reading)))


def _before(reading: StatementTokens, *words: str) -> TableId | None:
    """Take a table with its alias if one of these words follows, else None."""
    table = reading.table()
    behind = reading.position
    if not (reading.is_at(*words) or reading.current is None):
        reading.take_word("AS")
        reading.name()
    is_alone = reading.is_at(*words) or reading.current is None
    reading.position = behind
    return table if is_alone else None


def _calls(reading: StatementTokens) -> Iterator[str]:
    """Yield the functions that a row change may call, after its written table."""
    tokens = reading.tokens
    for at in range(reading.position, len(tokens) - 1):
        token, before = tokens[at], tokens[at - 1]
        if not (token.is_name and tokens[at + 1].is_mark("(")) or before.is_word("AS"):
            continue  # behind AS comes a type, or a name with its columns
        word = token.text.upper()
        if before.is_mark(".") or not (token.is_word(word) and word in _NOT_CALLED):
            yield token.text.casefold()


def _read_tables(reading: StatementTokens) -> Iterator[TableId | None]:
    """Yield the tables that a row change reads; None for a part that is not understood."""
    tokens, openers = reading.tokens, [False]
    for at in range(reading.position, len(tokens)):
        token = tokens[at]
        if token.is_mark("("):
            openers.append(tokens[at - 1].is_word(*_FROM_OF_FUNCTIONS))
        elif token.is_mark(")"):
            openers = openers[:-1] or [False]
        elif token.is_word("FROM") and not openers[-1]:
            part = StatementTokens(tokens, reading.default_database)
            part.position = at + 1
            yield from _listed(part)


def _listed(reading: StatementTokens) -> Iterator[TableId | None]:
    """Yield the tables of a FROM list with its joins; subqueries are skipped."""
    depth = 0
    while depth >= 0:
        while reading.take_mark("("):
            depth += 1
        if reading.is_at(*_QUERIES):
            _skip_inside(reading)
        elif reading.take_word("DUAL"):
            pass
        else:
            table = reading.table()
            is_result = reading.current is not None and reading.current.is_mark("(")
            yield None if is_result else table
        depth = _to_next(reading, depth)


def _to_next(reading: StatementTokens, depth: int) -> int:
    """Move to the next table of a FROM list.

    Return the depth of parentheses, negative at its end.
    """
    while (token := reading.current) is not None:
        if token.is_mark("("):  # of an index hint, a condition or a list of columns
            reading.position += 1
            _skip_inside(reading)
        depth -= token.is_mark(")")
        reading.position += 1
        if depth < 0 or token.is_mark(",") or token.is_word(*_JOINS):
            return depth
        if _ends_list(reading.tokens, reading.position - 1):
            return -1
    return -1


def _ends_list(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether a token ends a FROM list."""
    if tokens[at].is_word("ON"):
        return at + 1 < len(tokens) and tokens[at + 1].is_word("DUPLICATE")
    # USE INDEX FOR ORDER BY (...)
    return tokens[at].is_word(*_ENDS) and not tokens[at - 1].is_word("FOR")


def _skip_inside(reading: StatementTokens) -> None:
    """Move to the parenthesis that closes the one just opened."""
    depth = 0
    while (token := reading.current) is not None:
        depth += token.is_mark("(") - token.is_mark(")")
        if depth < 0:
            return
        reading.position += 1
