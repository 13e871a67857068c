"""Ranges of a key that hold all rows that differ, and few others. No I/O.

A range begins with a row that differs and ends before the next one that either side has, so rows
that follow each other make one range. Where there are more than are wanted, those with the fewest
rows in between become one: to read a few rows that are right costs less than a range of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from airflow_cdc_provider.core.keys import Key, KeyRange


@dataclass(frozen=True, slots=True)
class KeyBucket:
    """The rank of a row among the rows of both sides, and the next key."""

    number: int
    """About how many come before it."""
    behind: Key | None
    """The next key, or the end of the part that was looked at; None for the end of the table."""


def ranges_around(rows: Mapping[Key, KeyBucket], most: int) -> tuple[KeyRange, ...]:
    """Return at most so many ranges that contain all given keys and few other rows."""
    ordered = sorted(rows)
    if not ordered:
        return ()
    between = {
        there: rows[there].number - rows[here].number
        for here, there in pairwise(ordered)
        if rows[here].behind != there
    }
    starts = {ordered[0], *sorted(between, key=lambda key: between[key], reverse=True)[: most - 1]}
    ranges: list[KeyRange] = []
    for key in ordered:
        start = key if key in starts else ranges.pop().start
        ranges.append(KeyRange(start, rows[key].behind))
    return tuple(ranges)
