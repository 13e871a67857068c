"""What is left of a range that is read again, and how it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.requests.ranges import left_of, next_number, splits_of
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(ORDERS, (Column("id", mysql_type("int"), nullable=False),), ("id",), (0,))


def split(number: int, start: int | None, end: int | None) -> SnapshotSplit:
    keys = KeyRange(None if start is None else (start,), None if end is None else (end,))
    return SnapshotSplit(SCHEMA.table, number, SCHEMA.primary_key, SCHEMA.key_kinds, keys)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[KeyRange, ...]:
    """Draw ranges in order and apart, the first and the last maybe open."""
    inner = sorted(draw(st.sets(st.integers(0, 40), max_size=7)))
    ends: list[Key | None] = [(end,) for end in inner]
    if draw(st.booleans()) or not ends:
        ends.insert(0, None)
    if len(ends) % 2:
        ends.append(None)
    return tuple(KeyRange(*bounds) for bounds in batched(ends))


def batched(ends: list[Key | None]) -> list[tuple[Key | None, Key | None]]:
    return list(zip(ends[::2], ends[1::2], strict=True))


@given(ranges(), st.sets(st.integers(-5, 50)), st.integers(0, 30))
def test_every_key_of_a_range_is_read_once_wherever_it_is_taken_up_again(
    parts: tuple[KeyRange, ...], cuts: set[int], done: int
) -> None:
    def boundaries(start: Key | None) -> list[Key]:
        return [(cut,) for cut in sorted(cuts) if start is None or (cut,) > start]

    def splits(ranges: tuple[KeyRange, ...], number: int) -> list[SnapshotSplit]:
        found: list[SnapshotSplit] = []
        for keys in ranges:
            first = number + len(found)
            found += splits_of(SCHEMA, keys, boundaries(keys.start), number=first)
        return found

    joined = splits(parts, 0)[:done]
    whole = [*joined, *splits(left_of(parts, joined), next_number(joined))]
    assert [each.number for each in whole] == list(range(len(whole)))
    for key in range(-10, 60):
        holders = [each for each in whole if each.keys.contains((key,))]
        assert len(holders) == any(keys.contains((key,)) for keys in parts)


def test_nothing_is_left_behind_the_end_of_a_range() -> None:
    assert left_of((KeyRange((3,), (9,)),), [split(0, 3, 5), split(1, 5, 9)]) == ()
    assert left_of((KeyRange(),), [split(0, None, 5), split(2, 5, None)]) == ()


def test_splits_that_leave_a_hole_are_an_error() -> None:
    with pytest.raises(IntegrityError, match="do not follow each other"):
        left_of((KeyRange(),), [split(0, None, 5), split(1, 6, 9)])
