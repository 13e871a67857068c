"""Primary keys and half-open key ranges.

A key is a tuple of one scalar per key column in index order. Only some kinds may be compared
in code, because only for them is Python's order MySQL's own: integers, decimals, temporals in
fixed-width text, and binary strings. Anything with a collation is compared by MySQL or not at
all (law 5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

KeyPart = int | Decimal | str | bytes
Key = tuple[KeyPart, ...]


class KeyKind(StrEnum):
    """The kind of a key column, which says how its values are ordered."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    TEMPORAL = "temporal"
    """DATE, DATETIME, TIMESTAMP as `YYYY-MM-DD[ hh:mm:ss[.ffffff]]`, UTC for TIMESTAMP."""
    BINARY = "binary"
    """BINARY, VARBINARY: bytes, BINARY padded with zeros."""
    TEXT = "text"
    """Anything with a collation."""
    OTHER = "other"
    """FLOAT, DOUBLE, TIME, ENUM, SET, BIT, UUID, prefixes of texts and the like: never compared,
    never part of a bound. Key columns before the first such one may still bound splits."""

    @property
    def comparable(self) -> bool:
        """Tell whether Python orders these values exactly as MySQL does."""
        return self in {KeyKind.INTEGER, KeyKind.DECIMAL, KeyKind.TEMPORAL, KeyKind.BINARY}

    @property
    def splittable(self) -> bool:
        """Tell whether a range condition in SQL over a column of this kind may bound a split."""
        return self is not KeyKind.OTHER


KeyKinds = tuple[KeyKind, ...]


def bounding(kinds: KeyKinds) -> int:
    """Return how many of a key's leading columns may bound a split; 0 if it cannot be split."""
    return next((n for n, kind in enumerate(kinds) if not kind.splittable), len(kinds))


def bounding_whole(kinds: KeyKinds) -> bool:
    """Tell whether all columns of a key may bound splits."""
    return bool(kinds) and bounding(kinds) == len(kinds)


def comparable(kinds: KeyKinds) -> bool:
    """Tell whether keys of these kinds may be compared in Python."""
    return bool(kinds) and all(kind.comparable for kind in kinds)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys from `start` up to, not including, `end`; None is open on that side.

    `start` and `end` may be shorter than the key: a prefix bounds all keys that begin with it.
    """

    start: Key | None = None
    end: Key | None = None

    def contains(self, key: Key) -> bool:
        """Tell whether a key of comparable kinds is in the range."""
        if self.start is not None and key[: len(self.start)] < self.start:
            return False
        return self.end is None or key[: len(self.end)] < self.end

    def __str__(self) -> str:
        start = "(-inf" if self.start is None else f"[{shown_key(self.start)}"
        end = "+inf" if self.end is None else shown_key(self.end)
        return f"{start}, {end})"


def shown_key(key: Key) -> str:
    """Return a key as text for people: bytes in hex, text quoted where it has odd characters."""
    return "/".join(map(_shown_part, key))


def _shown_part(part: KeyPart) -> str:
    """Return one column's value in a key as text for people."""
    if isinstance(part, bytes):
        return part.hex()
    text = str(part)
    is_plain = text.isprintable() and text.strip() == text != "" and not set(text) & set("/,\"'")
    return text if is_plain else json.dumps(text, ensure_ascii=not text.isprintable())
