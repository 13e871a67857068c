"""Read a condition that a person writes of a table's rows: what it may hold, and nothing else.

It is put into statements as it is, on both servers, and has to say the same of the same row each
time: now, when the row is read, and at the sink. So it may only speak of the row's own columns, and
whatever is not known to depend on nothing else is refused: the time, the session, chance, stored
functions, other tables. It is known by its words; what they mean together the servers tell.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from airflow_cdc_provider.core.splits import Condition
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, TokenKind, tokens


def _words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_LONGEST = 4_000
"""It is kept with each split that joins."""
_NUMBER = re.compile(r"\d+(\.\d+)?([eE]\d+)?|0x[0-9A-Fa-f]+|0b[01]+")
_MARKS = frozenset("()+-*/%<>=!&|^~,")
_WORDS = _words(
    """
    AND AS BETWEEN BINARY CASE CHAR DATE DATETIME DAY DECIMAL DIV ELSE END ESCAPE FALSE HOUR IN
    INTEGER INTERVAL IS LIKE MICROSECOND MINUTE MOD MONTH NOT NULL OR QUARTER REGEXP RLIKE SECOND
    SIGNED THEN TIME TIMESTAMP TRUE UNKNOWN UNSIGNED WEEK WHEN X XOR YEAR
    """
)
_BEFORE_PARENTHESIS = _words(
    """
    AND BETWEEN BINARY CASE CHAR DECIMAL DIV ELSE ESCAPE IN LIKE MOD NOT OR REGEXP RLIKE THEN WHEN
    XOR
    """
)
_FUNCTIONS = _words(
    """
    ABS BIT_COUNT BIT_LENGTH CAST CEIL CEILING CHAR_LENGTH COALESCE CONCAT CONCAT_WS CRC32 DATE
    DATEDIFF DATE_ADD DATE_SUB DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR ELT FIELD FIND_IN_SET FLOOR
    GREATEST HEX HOUR IF IFNULL INSTR ISNULL JSON_CONTAINS JSON_EXTRACT JSON_LENGTH JSON_TYPE
    JSON_UNQUOTE JSON_VALID LAST_DAY LEAST LEFT LENGTH LOCATE LOWER LPAD LTRIM MD5 MICROSECOND
    MINUTE MOD MONTH NULLIF OCTET_LENGTH POW POWER QUARTER REPEAT REPLACE REVERSE RIGHT ROUND RPAD
    RTRIM SECOND SHA1 SHA2 SIGN STRCMP SUBSTR SUBSTRING SUBSTRING_INDEX TIME TIME_TO_SEC TO_DAYS
    TRIM TRUNCATE UNHEX UPPER WEEKDAY YEAR
    """
)

_OF_DATES = _words(
    """
    DATE DATETIME DATEDIFF DATE_ADD DATE_SUB DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR INTERVAL LAST_DAY
    MONTH QUARTER TIMESTAMP TO_DAYS WEEKDAY YEAR
    """
)
"""Words, and names of types, beside which the servers make a date of a time of day: today's."""


def condition_of(schema: TableSchema, text: str) -> Condition:
    """Parse a person's condition on a table's rows; `ValueError` says what is wrong with it."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        raise ValueError(f"a condition has 1 to {_LONGEST:,} characters, not {len(text):,}")
    if "\0" in text or not text.isprintable():
        raise ValueError("it holds a character that cannot be shown")
    found = list(tokens(text + "\n"))
    _require_whole(text, found)
    columns = {column.name.casefold(): column for column in schema.copied_columns}
    follower: Sequence[Token | None] = [*found[1:], None]
    before: Token | None = None
    for token, behind in zip(found, follower, strict=True):
        wrong = _wrong(token, before, behind, columns)
        if wrong:
            raise ValueError(wrong)
        before = token
    _require_no_today(found, columns)
    return Condition(text)


def _require_no_today(found: Sequence[Token], columns: Mapping[str, Column]) -> None:
    """Refuse a comparison of a time of day with a date, to which servers add today's date."""
    words = {token.text.upper() for token in found if token.kind is TokenKind.WORD}
    named = (columns.get(token.text.casefold()) for token in found if token.is_name)
    types = {column.type.name.upper() for column in named if column is not None}
    if "TIME" in types | words and _OF_DATES & (types | words):
        raise ValueError("it compares a time of day with a date, which is today's then")


def _require_whole(text: str, found: Sequence[Token]) -> None:
    """Refuse a condition with comments, unclosed quotes or unbalanced parentheses."""
    reached, depth = 0, 0
    for token in found:
        if text[reached : token.start].strip():
            raise ValueError("it holds a comment")
        if token.end > len(text):
            raise ValueError(f"a quote is not closed: {text[token.start :][:40]}")
        reached = token.end
        depth += token.is_mark("(") - token.is_mark(")")
        if depth < 0:
            raise ValueError("a parenthesis is closed that was not opened")
    if depth:
        raise ValueError("a parenthesis is not closed")
    if text[reached:].strip():
        raise ValueError("it holds a comment")


def _wrong(
    token: Token, before: Token | None, behind: Token | None, columns: Container[str]
) -> str:
    """Return what is wrong with a token of a condition, empty if it is allowed."""
    match token.kind:
        case TokenKind.STRING:
            return ""
        case TokenKind.MARK:
            return "" if token.text in _MARKS else f"{token.text!r} is not known in a condition"
        case TokenKind.NAME | TokenKind.WORD:
            if behind is not None and behind.is_mark("("):
                return _wrong_call(token, behind)
            if token.text.casefold() in columns or _is_known(token, before):
                return ""
            return f"{token.text} is no column that is copied, and no word known in a condition"


def _wrong_call(token: Token, behind: Token) -> str:
    """Return what is wrong with a word before a parenthesis, empty if it is allowed."""
    word = token.text.upper() if token.kind is TokenKind.WORD else ""
    if word in _BEFORE_PARENTHESIS:
        return ""
    if word not in _FUNCTIONS:
        return f"{token.text}(...) is not known to give the same of the same row each time"
    # behind a blank it may be a stored function of this name
    return "" if behind.start == token.end else f"write {token.text}( without a blank"


def _is_known(token: Token, before: Token | None) -> bool:
    """Tell whether a word is allowed in a condition: a keyword, number or collation."""
    if token.kind is TokenKind.NAME:
        return False
    if before is not None and before.is_word("COLLATE"):
        return token.text.isascii()
    return token.is_word(*_WORDS, "COLLATE") or _NUMBER.fullmatch(token.text) is not None
