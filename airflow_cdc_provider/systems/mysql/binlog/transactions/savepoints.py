"""Savepoints of the open transaction: which changes a rollback to one takes back.

A server leaves rows that were rolled back out of its log where it can. MariaDB cannot as soon as a
transaction made a temporary table or wrote to a table that is not transactional: then the log has
the rows, and `ROLLBACK TO` behind them. Rows of tables that are not transactional are no matter
here, both servers log them in groups of their own.

The server compares names character by character, without regard to case and accents. For ASCII
that is known here. Of two different characters beyond it either answer is possible, so a rollback
is refused where another savepoint's name might be the same to the server.
"""

from __future__ import annotations

import re

from airflow_cdc_provider.core.errors import RESET, IntegrityError

_NAMED = re.compile(
    r"\s*(?:SAVEPOINT|ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT)?)\s*"
    r"(?:`((?:[^`]|``)*)`|\"((?:[^\"]|\"\")*)\"|([^\s;`\"]+))",
    re.IGNORECASE,
)


class Savepoints:
    """The savepoints of the open transaction, each with the ordinal of the next change."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def set(self, sql: str, ordinal: int) -> None:
        """Set the savepoint of a `SAVEPOINT name`; one of the same name is replaced."""
        name = _name(sql)
        self._places.pop(name, None)
        self._places[name] = ordinal

    def roll_back(self, sql: str) -> int:
        """Roll back to the savepoint of a `ROLLBACK TO name`, and return its ordinal."""
        name = _name(sql)
        if name not in self._places or sum(_may_be_same(name, each) for each in self._places) > 1:
            raise IntegrityError(
                "a transaction was rolled back to a savepoint that cannot be told for sure",
                risk="rows that were rolled back would be applied, or others lost",
                remedy=f"{RESET}; keep temporary tables and "
                "tables that are not transactional out of transactions with savepoints",
            )
        names = list(self._places)
        for later in names[names.index(name) + 1 :]:
            del self._places[later]
        return self._places[name]


def _name(sql: str) -> str:
    """Return the folded name in a savepoint statement, empty for none."""
    match = _NAMED.match(sql)
    if match is None:
        return ""
    backquoted, quoted, plain = match.groups()
    if backquoted is not None:
        return _folded(backquoted.replace("``", "`"))
    return _folded(quoted.replace('""', '"') if quoted is not None else plain)


def _folded(name: str) -> str:
    """Return a name with ASCII letters in lower case, without blanks at its end."""
    return "".join(each.lower() if each.isascii() else each for each in name.rstrip(" "))


def _may_be_same(name: str, other: str) -> bool:
    """Tell whether the server might take two folded names for the same."""
    if name == other:
        return True
    if any(map(_is_undecoded, name + other)):
        return True
    return len(name) == len(other) and all(
        one == two or not (one.isascii() and two.isascii())
        for one, two in zip(name, other, strict=True)
    )


def _is_undecoded(character: str) -> bool:
    """Tell whether a character is a byte that could not be decoded as UTF-8."""
    return "\udc80" <= character <= "\udcff"
