"""Ranges hold all rows that differ; where they may be few, the widest gaps stay between them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.engine.verify.differing import KeyBucket, ranges_around

KEYS = range(0, 60, 3)
keys = st.sets(st.sampled_from(KEYS), min_size=1)


def places(wrong: set[int], end: int | None) -> dict[Key, KeyBucket]:
    behind: list[Key | None] = [*((key,) for key in KEYS[1:]), None if end is None else (end,)]
    return {
        (key,): KeyBucket(number, behind[number]) for number, key in enumerate(KEYS) if key in wrong
    }


@given(keys, st.none() | st.just(60))
def test_with_room_for_all_only_rows_that_differ_are_in_ranges(
    wrong: set[int], end: int | None
) -> None:
    ranges = ranges_around(places(wrong, end), 100)
    held = {key for key in KEYS if any(keys.contains((key,)) for keys in ranges)}
    assert held == wrong
    assert all(here.end != there.start for here, there in pairwise(ranges))


@given(keys, st.integers(1, 6))
def test_with_little_room_every_row_that_differs_is_in_one_range(
    wrong: set[int], most: int
) -> None:
    ranges = ranges_around(places(wrong, None), most)
    assert len(ranges) <= most
    for key in wrong:
        assert sum(keys.contains((key,)) for keys in ranges) == 1


def test_those_with_the_fewest_rows_between_them_become_one() -> None:
    found = ranges_around(places({0, 6, 30, 36, 57}, None), 3)
    assert found == (KeyRange((0,), (9,)), KeyRange((30,), (39,)), KeyRange((57,), None))


def test_nothing_that_differs_has_no_ranges() -> None:
    assert ranges_around({}, 3) == ()
