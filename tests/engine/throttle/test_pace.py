"""The pace: never more than it allows in any stretch of time longer than a split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.engine.throttle.pace import Pace, Size

_SIZES = st.integers(0, 5_000)


def test_without_a_pace_nobody_waits() -> None:
    pace = Pace()
    pace.take(Size(1_000_000, 1_000_000), now_s=0.0)
    assert pace.wait_s(now_s=0.0) == 0.0


def test_a_split_is_waited_for_as_long_as_its_rows_take() -> None:
    pace = Pace()
    pace.change(1_000, None, now_s=0.0)
    assert pace.wait_s(now_s=0.0) == 0.0
    pace.take(Size(5_000, 1), now_s=0.0)
    assert pace.wait_s(now_s=0.0) == pytest.approx(5.0)
    assert pace.wait_s(now_s=4.0) == pytest.approx(1.0)
    assert pace.wait_s(now_s=5.0) == 0.0


def test_the_slower_of_rows_and_bytes_decides() -> None:
    pace = Pace()
    pace.change(1_000, 100, now_s=0.0)
    pace.take(Size(1_000, 1_000), now_s=0.0)
    assert pace.wait_s(now_s=0.0) == pytest.approx(10.0)


def test_a_split_that_was_smaller_than_planned_is_waited_for_less_long() -> None:
    pace = Pace()
    pace.change(1_000, None, now_s=0.0)
    pace.take(Size(5_000, 0), now_s=0.0)
    pace.settle(Size(5_000, 0), Size(2_000, 0), now_s=1.0)
    assert pace.wait_s(now_s=1.0) == pytest.approx(1.0)


def test_readers_that_waited_for_splits_to_come_do_not_begin_at_once_for_that() -> None:
    pace, planned = Pace(), Size(3_000, 0)
    pace.change(1_000, None, now_s=0.0)
    pace.take(planned, now_s=0.0)
    assert pace.wait_s(now_s=3.0) == 0.0
    pace.take(planned, now_s=3.0)
    for since_s in (0.0, 3.0):  # both get their splits only now
        pace.begin(planned, since_s=since_s, now_s=3.5)
    assert pace.wait_s(now_s=3.5) == pytest.approx(6.0)


def test_time_without_work_is_not_saved_up() -> None:
    pace = Pace()
    pace.change(1_000, None, now_s=0.0)
    pace.take(Size(1_000, 0), now_s=3_600.0)
    assert pace.wait_s(now_s=3_600.0) == pytest.approx(1.0)


def test_a_faster_pace_pays_off_what_is_owed_at_once_faster() -> None:
    pace = Pace()
    pace.change(10, None, now_s=0.0)
    pace.take(Size(1_000, 0), now_s=0.0)
    pace.change(1_000, None, now_s=0.0)
    assert pace.wait_s(now_s=0.0) == pytest.approx(1.0)
    pace.change(None, None, now_s=0.5)
    assert pace.wait_s(now_s=0.5) == 0.0


@given(
    rate=st.integers(1, 2_000),
    splits=st.lists(st.tuples(_SIZES, _SIZES, st.floats(0, 10)), min_size=1, max_size=40),
)
def test_no_stretch_of_time_gives_more_than_the_pace_and_one_split(
    rate: int, splits: list[tuple[int, int, float]]
) -> None:
    pace, now_s = Pace(), 0.0
    pace.change(rate, None, now_s=0.0)
    given_out: list[tuple[float, int]] = []
    for planned, read, idle_s in splits:
        now_s += idle_s
        now_s += pace.wait_s(now_s=now_s)
        assert pace.wait_s(now_s=now_s + 1e-3) == 0.0
        now_s += 1e-3
        pace.take(Size(planned, 0), now_s=now_s)
        pace.settle(Size(planned, 0), Size(read, 0), now_s=now_s)
        given_out.append((now_s, read))
    for first, (from_s, _) in enumerate(given_out):
        rows = 0
        for to_s, read in given_out[first:]:
            rows += read
            largest = max(size for _, size in given_out)
            assert rows <= rate * (to_s - from_s) + largest + 1e-3


@given(
    rate=st.integers(1, 2_000),
    splits=st.lists(st.tuples(st.integers(1, 500), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_splits_that_are_read_side_by_side_keep_the_pace_by_what_was_planned(
    rate: int, splits: list[tuple[int, float]]
) -> None:
    """No report comes before the last is handed out: the plan alone has to hold the pace."""
    pace, now_s, rows = Pace(), 0.0, 0
    pace.change(rate, None, now_s=0.0)
    for planned, idle_s in splits:
        now_s += idle_s
        if pace.wait_s(now_s=now_s) == 0.0:
            pace.take(Size(planned, 0), now_s=now_s)
            rows += planned
    assert rows <= rate * now_s + 500 + 1e-3
