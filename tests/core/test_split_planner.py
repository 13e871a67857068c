"""The planner covers every key exactly once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyKind
from airflow_cdc_provider.core.split_planner import (
    LARGEST_NUMBER,
    DensityProbe,
    Stretch,
    cut_in_two,
    even_step,
    splits_between,
)
from airflow_cdc_provider.core.splits import SnapshotSplit

TABLE = TableId("shop", "orders")
KINDS = (KeyKind.INTEGER, KeyKind.BINARY)

keys = st.tuples(st.integers(-20, 20), st.binary(max_size=2))
boundaries = st.lists(keys | keys.map(lambda key: key[:1]), unique=True, max_size=12).map(sorted)


def planned(bounds: list[Key]) -> list[SnapshotSplit]:
    return list(splits_between(TABLE, ("a", "b"), KINDS, bounds))


@given(boundaries, st.lists(keys, min_size=1, max_size=30))
def test_every_key_lies_in_exactly_one_split(bounds: list[Key], probes: list[Key]) -> None:
    splits = planned(bounds)
    for key in [*probes, *bounds]:
        assert sum(split.keys.contains(key) for split in splits) == 1, key


@given(boundaries)
def test_the_first_and_the_last_split_are_open(bounds: list[Key]) -> None:
    splits = planned(bounds)
    assert splits[0].keys.start is None
    assert splits[-1].keys.end is None
    assert [split.number for split in splits] == list(range(len(bounds) + 1))


@given(boundaries, st.integers(0, 12))
def test_a_plan_resumed_after_any_split_is_the_same_plan(bounds: list[Key], stop: int) -> None:
    stop = min(stop, len(bounds))
    whole = planned(bounds)
    stored = list(itertools.islice(planned(bounds), stop))
    start = stored[-1].keys.end if stored else None
    rest = splits_between(TABLE, ("a", "b"), KINDS, bounds[stop:], first_number=stop, start=start)
    assert [*stored, *rest] == whole


@given(boundaries.filter(lambda b: len(b) >= 3), keys)
def test_the_halves_of_a_cut_split_hold_what_it_held(bounds: list[Key], probe: Key) -> None:
    whole = planned([bounds[0], bounds[-1]])[1]
    halves = cut_in_two(whole, bounds[1], next_number=7)
    assert whole.keys.contains(probe) == any(half.keys.contains(probe) for half in halves)
    assert [half.number for half in halves] == [7, 8]


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.integers(0, 5000), st.integers(1, 700), st.data())
def test_an_even_step_holds_about_the_rows_of_a_split(
    smallest: int, width: int, rows: int, data: st.DataObject
) -> None:
    """Widened for the keys that a probe missed, and never below one key."""
    held = data.draw(st.integers((width + 2) // 2, width + 1))
    probes = [
        DensityProbe(smallest, smallest + width, held),
        DensityProbe(smallest, smallest + width, width + 1),
    ]
    step = even_step(rows, probes)
    assert step is not None
    assert rows <= step <= 2 * rows
    assert step * held // (width + 1) <= rows
    assert even_step(rows, probes[1:]) == rows


def test_even_steps_are_refused_when_a_probe_finds_a_hole() -> None:
    probes = [DensityProbe(1, 100, 100), DensityProbe(900, 999, 3)]
    assert even_step(50, probes) is None
    assert even_step(50, []) is None


@given(
    st.integers(-(1 << 63), (1 << 62)), st.integers(1, 1000), st.integers(1, 9), st.integers(1, 9)
)
def test_a_leap_over_even_keys_ends_where_a_split_does(
    first: int, step: int, each: int, splits: int
) -> None:
    """With `each` rows of every value, and a value every `step`."""
    rows = 1000
    stretch = Stretch(first, first + rows // each * step, rows)
    reached = stretch.after(splits * rows)
    assert reached is None or abs(reached - first - splits * rows * step // each) <= splits * step


def test_a_column_that_hardly_varies_or_ends_gives_no_leap() -> None:
    assert Stretch(7, 7, 1000).after(50_000) is None
    assert Stretch(7, 8, 1000).after(50_000) is None
    assert Stretch(LARGEST_NUMBER - 2000, LARGEST_NUMBER - 1000, 1000).after(50_000) is None


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_stretches_resemble_each_other_within_a_factor_of_two(one: int, two: int) -> None:
    here, there = Stretch(0, one, 1000), Stretch(9, 9 + two, 1000)
    assert here.resembles(there) == there.resembles(here) == (one <= 2 * two and two <= 2 * one)
