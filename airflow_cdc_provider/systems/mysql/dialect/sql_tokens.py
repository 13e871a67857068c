"""Cut SQL text into tokens the way MySQL and MariaDB do.

Just enough to tell words, quoted names, strings and punctuation apart: comments are dropped, but
executable ones (`/*! ... */`, `/*!80016 ... */`, `/*M! ... */`) are part of the statement, unless
the reader asks for what a server reads that does not execute them.

A blank beyond ASCII, such as U+00A0, is a letter of a name to sessions of UTF-8, and a blank to
some of latin1. A reader can ask for both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

_SPACE = re.compile(r"[ \t\n\v\f\r]+")
_LINE_COMMENT = re.compile(r"(?:#|--(?=[ \t\n\v\f\r]|$))[^\n]*")
_WIDE_SPACE = re.compile(r"\s+")
_WIDE_LINE_COMMENT = re.compile(r"(?:#|--(?=\s|$))[^\n]*")
_BEYOND_ASCII = re.compile(r"(?![\0-\x7f])\s")
_EXECUTABLE = re.compile(r"/\*M?!(?:\d{5,6})?")
_EXECUTED_BY_ALL_BEFORE = 50_700
_PLAIN_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_NUMBER = re.compile(r"\d+\.\d+(?:[eE][+-]?\d+)?")


class TokenKind(StrEnum):
    """The kind of an SQL token."""

    WORD = "word"
    """An unquoted word: a keyword, a name or a number."""
    NAME = "name"
    """A name in backticks (or in double quotes under ANSI_QUOTES); `text` is without them."""
    STRING = "string"
    """A string literal; `text` is what it holds, escapes not resolved."""
    MARK = "mark"
    """One character of punctuation."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of SQL text, and its place in the statement."""

    kind: TokenKind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Tell whether the token is one of these keywords."""
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_mark(self, mark: str) -> bool:
        """Tell whether the token is this punctuation mark."""
        return self.kind is TokenKind.MARK and self.text == mark

    @property
    def is_name(self) -> bool:
        """Tell whether the token can be a name: a word, or a quoted name."""
        return self.kind in {TokenKind.WORD, TokenKind.NAME}


def has_executable_comment(statement: str) -> bool:
    """Tell whether a statement has a comment that only some servers execute.

    What names a version before 5.7 is executed by all: MariaDB leaves out what is of 5.7 and later.
    """
    found = (match.group() for match in _EXECUTABLE.finditer(statement))
    return any("M" in mark or int(mark[3:] or 0) >= _EXECUTED_BY_ALL_BEFORE for mark in found)


def has_wide_space(statement: str) -> bool:
    """Tell whether a statement has a blank beyond ASCII, which only some sessions take for one."""
    return _BEYOND_ASCII.search(statement) is not None


def tokens(
    statement: str,
    *,
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
    executes: bool = True,
    wide_spaces: bool = False,
) -> Iterator[Token]:
    """Yield the tokens of SQL text as MySQL or MariaDB reads it."""
    position, open_comments = 0, 0
    blanks = (_WIDE_SPACE, _WIDE_LINE_COMMENT) if wide_spaces else (_SPACE, _LINE_COMMENT)
    while position < len(statement):
        if statement.startswith("*/", position) and open_comments:
            position, open_comments = position + 2, open_comments - 1
            continue
        skipped = _skipped(statement, position, blanks, executes=executes)
        if skipped > position:
            open_comments += statement[position:skipped].startswith("/*") and not (
                statement[position:skipped].endswith("*/")
            )
            position = skipped
            continue
        token = _token(
            statement, position, ansi_quotes=ansi_quotes, backslash_escapes=backslash_escapes
        )
        yield token
        position = token.end


def _skipped(
    statement: str, position: int, blanks: Sequence[re.Pattern[str]], *, executes: bool
) -> int:
    """Return the place after white space or a comment at `position`; `position` for neither."""
    for pattern in (*blanks, _EXECUTABLE) if executes else blanks:
        match = pattern.match(statement, position)
        if match:
            return match.end()
    if statement.startswith("/*", position):
        end = statement.find("*/", position + 2)
        return len(statement) if end < 0 else end + 2
    return position


def _token(statement: str, position: int, *, ansi_quotes: bool, backslash_escapes: bool) -> Token:
    """Return the token that begins at `position`."""
    first = statement[position]
    if first in "`'\"":
        quoted_name = first == "`" or (first == '"' and ansi_quotes)
        kind = TokenKind.NAME if quoted_name else TokenKind.STRING
        end = _closing(statement, position, escapes=backslash_escapes and not quoted_name)
        inner = statement[position + 1 : max(end - 1, position + 1)]
        return Token(kind, inner.replace(first * 2, first), position, end)
    match = _NUMBER.match(statement, position) or _PLAIN_WORD.match(statement, position)
    if match:
        return Token(TokenKind.WORD, match[0], position, match.end())
    return Token(TokenKind.MARK, first, position, position + 1)


def _closing(statement: str, position: int, *, escapes: bool) -> int:
    """Return the place after the quote that closes the one at `position`."""
    quote, at = statement[position], position + 1
    while at < len(statement):
        if escapes and statement[at] == "\\":
            at += 2
        elif statement[at] != quote:
            at += 1
        elif statement.startswith(quote, at + 1):
            at += 2
        else:
            return at + 1
    return len(statement)
