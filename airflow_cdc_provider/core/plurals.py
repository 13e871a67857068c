"""Counts as people read them: 1 row, 2 rows."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun; `many` is the plural, where it is more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
