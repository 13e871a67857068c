"""Reads which rows are copied as a person writes it: a small part of what SQL says after WHERE.

Columns are compared with values, never with each other, so that a row is judged by itself and the
same way each time: `region = 'EU' AND (size >= 10 OR size IS NULL)`. Texts are in single quotes,
with '' for one of them; bytes are x'00ff'; names of columns may be in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from airflow_cdc_provider.core.row_filters import (
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    IsNull,
    Like,
    Literal,
    Not,
    RowFilter,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<bytes>[xX]'[^']*')|(?P<text>'(?:[^']|'')*')|(?P<name>`(?:[^`]|``)+`)"
    r"|(?P<number>[-+]?\d+(?:\.\d+)?(?![\w.]))|(?P<word>[^\W\d]\w*)|(?P<mark><>|!=|<=|>=|[=<>(),]))"
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE"})
_COMPARATORS = {each.value: each for each in Comparator} | {"!=": Comparator.UNEQUAL}
_DEEPEST = 50


def parse_filter(text: str) -> RowFilter:
    """Return the condition that a text says; `ValueError` says what is wrong with it."""
    return _Reader(text).whole()


class _Reader:
    """Reads one condition, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._depth = 0
        place, text = 0, text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise ValueError(f"{text[place:].strip()[:40]!r} is not understood")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    def whole(self) -> RowFilter:
        """Read the whole text as one condition."""
        found = self._any()
        if self._at < len(self._tokens):
            raise self._unexpected("AND, OR or the end")
        return found

    def _any(self) -> RowFilter:
        """Read conditions joined by OR."""
        return self._joined("OR", self._all, AnyOf)

    def _all(self) -> RowFilter:
        """Read conditions joined by AND."""
        return self._joined("AND", self._one, AllOf)

    def _joined(
        self,
        word: str,
        read: Callable[[], RowFilter],
        join: Callable[[tuple[RowFilter, ...]], RowFilter],
    ) -> RowFilter:
        """Read conditions between which a word is."""
        found = [read()]
        while self._takes(word):
            found.append(read())
        return found[0] if len(found) == 1 else join(tuple(found))

    def _one(self) -> RowFilter:
        """Read a condition without AND and OR, or one in parentheses."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} conditions are within each other")
        if self._takes("NOT"):
            found: RowFilter = Not(self._one())
        elif self._takes("("):
            found = self._any()
            self._require(")")
        else:
            found = self._of_column(self._column())
        self._depth -= 1
        return found

    def _of_column(self, column: str) -> RowFilter:
        """Read what is said of a column."""
        if self._takes("IS"):
            is_negated = self._takes("NOT")
            self._require("NULL")
            found: RowFilter = IsNull(column)
        elif (mark := self._peek()) in _COMPARATORS:
            self._at += 1
            return Comparison(column, _COMPARATORS[mark], self._value())
        else:
            is_negated = self._takes("NOT")
            found = self._of_values(column)
        return Not(found) if is_negated else found

    def _of_values(self, column: str) -> RowFilter:
        """Read IN, BETWEEN or LIKE with its values."""
        if self._takes("IN"):
            self._require("(")
            equal = [Comparison(column, Comparator.EQUAL, self._value())]
            while self._takes(","):
                equal.append(Comparison(column, Comparator.EQUAL, self._value()))
            self._require(")")
            return equal[0] if len(equal) == 1 else AnyOf(tuple(equal))
        if self._takes("BETWEEN"):
            first = Comparison(column, Comparator.AT_LEAST, self._value())
            self._require("AND")
            return AllOf((first, Comparison(column, Comparator.AT_MOST, self._value())))
        self._require("LIKE", wanted="a comparison, IS, IN, BETWEEN or LIKE")
        pattern = self._value()
        if not isinstance(pattern, str):
            raise ValueError(f"{column} LIKE needs a text in single quotes")
        return Like(column, pattern)

    def _column(self) -> str:
        """Read the name of a column."""
        kind, text = self._next("the name of a column")
        if kind == "name":
            return text[1:-1].replace("``", "`")
        if kind == "word" and text.upper() not in _KEYWORDS:
            return text
        self._at -= 1
        raise self._unexpected("the name of a column")

    def _value(self) -> Literal:
        """Read a value."""
        kind, text = self._next("a value")
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "bytes":
            return _bytes_in(text)
        if kind == "number":
            return Decimal(text) if "." in text else int(text)
        self._at -= 1
        raise self._unexpected("a value: a number, a text in single quotes, or x'00ff'")

    # --- tokens -------------------------------------------------------------------------------

    def _peek(self) -> str:
        """Return the next mark, or word in upper case; empty for another token or none."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return text.upper() if kind in {"word", "mark"} else ""

    def _takes(self, wanted: str) -> bool:
        """Move past a word or mark if it is the next token."""
        if self._peek() != wanted:
            return False
        self._at += 1
        return True

    def _require(self, token: str, *, wanted: str = "") -> None:
        """Move past a word or mark that has to be next."""
        if not self._takes(token):
            raise self._unexpected(wanted or token)

    def _next(self, wanted: str) -> tuple[str, str]:
        """Return the next token's kind and text, and move past it."""
        if self._at >= len(self._tokens):
            raise self._unexpected(wanted)
        self._at += 1
        return self._tokens[self._at - 1]

    def _unexpected(self, wanted: str) -> ValueError:
        """Return the error for what stands where something else has to be."""
        read = " ".join(text for _, text in self._tokens[: self._at][-4:])
        behind = f" behind {read!r}" if read else ""
        found = repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"
        return ValueError(f"wanted {wanted}{behind}, found {found}")


def _bytes_in(text: str) -> bytes:
    """Return the bytes of a literal such as x'00ff'."""
    try:
        return bytes.fromhex(text[2:-1])
    except ValueError:
        raise ValueError(f"{text} has no even number of hexadecimal digits") from None
