"""Any schedule of reads, joins, changes and crashes leaves what was read again right for good."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from tests.core.join_model import KEYS, UNIQUE_VALUES, BrokenLawError, World
from tests.core.join_records import JoinLaws, Start

Step = tuple[Any, ...]
"""A method of the world and what it is called with."""
Schedule = Iterable[Sequence[Step]]

keys = st.sampled_from(KEYS)
values = st.integers(0, UNIQUE_VALUES - 1)
drifts = st.dictionaries(keys, st.none() | values, max_size=5)
inner = KEYS[1:]
cuts = st.sampled_from([(), *((one,) for one in inner), *combinations(inner, 2)])
"""Boundaries of splits."""

WRITES: list[Step] = [
    *(("write", [(key, value)]) for key in KEYS for value in (None, *range(UNIQUE_VALUES))),
    *(("write", [(key, None), (to, to % UNIQUE_VALUES)]) for key, to in permutations(KEYS, 2)),
]
"""Rows are written, deleted and moved to other keys."""
READS: list[Step] = [("read", steps) for steps in (1, 2, 5, 5, 5)]
STREAMS: list[Step] = [("stream", writer, count) for writer in (0, 1) for count in (1, 2, 9)]
JOINS: list[Step] = [("join",)] * 8 + [("join_unanswered",), ("crash_in_join",)]
OWNERS: list[Step] = [
    *((step, cut) for step in ("take_over", "begin_again") for cut in ((), (1,), (2, 4))),
    *[("old_owner_joins",)] * 2,
]
OTHERS: list[Step] = [("show", 1), ("show", 9), ("add",), ("cancel", 0), ("cancel", 1)]
ALL = [*WRITES, *READS * 8, *STREAMS * 5, *JOINS * 4, *OWNERS * 3, *OTHERS * 2]
schedules = st.tuples(*[st.lists(st.sampled_from(ALL), max_size=20)] * 6)
"""In parts, because one list would have five steps in most cases."""


@st.composite
def ranges(draw: st.DrawFn) -> KeyRange:
    start, end = draw(st.sampled_from(list(combinations([None, *inner, None], 2))))
    return KeyRange(None if start is None else (start,), None if end is None else (end,))


@st.composite
def starts(
    draw: st.DrawFn,
    *,
    kind: KeyKind = KeyKind.INTEGER,
    is_added: bool = False,
    is_unique: bool | None = None,
    drift: Mapping[int, int | None] | None = None,
    is_interval: bool = False,
) -> Start:
    """Draw a beginning; ranges of keys that are not compared, or of added tables, are whole."""
    is_whole = is_added or kind is KeyKind.TEXT
    return Start(
        rows=draw(st.lists(st.tuples(keys, values), max_size=8)),
        drift=draw(drifts) if drift is None else drift,
        ranges=draw(
            st.lists(st.just(KeyRange()) if is_whole else ranges(), min_size=1, max_size=2)
        ),
        cuts=draw(cuts),
        writers=draw(st.integers(1, 2)),
        kind=kind,
        is_unique=draw(st.booleans()) if is_unique is None else is_unique,
        is_added=is_added,
        interval=frozenset(draw(st.sets(values, min_size=1, max_size=2))) if is_interval else None,
    )


def run(start: Start, schedule: Schedule, laws: JoinLaws | None = None) -> None:
    world = World(start, laws)
    for name, *arguments in chain(*schedule):
        getattr(world, name)(*arguments)
    world.finish()


@given(starts(), schedules)
@settings(max_examples=200)
def test_any_schedule_of_joins_is_right_at_every_moment(start: Start, schedule: Schedule) -> None:
    run(start, schedule)


@given(starts(kind=KeyKind.TEXT), schedules)
def test_any_schedule_of_joins_is_right_where_keys_cannot_be_compared(
    start: Start, schedule: Schedule
) -> None:
    run(start, schedule)


@given(starts(is_interval=True) | starts(kind=KeyKind.TEXT, is_interval=True), schedules)
@settings(max_examples=200)
def test_any_schedule_of_reads_of_an_interval_is_right_at_every_moment(
    start: Start, schedule: Schedule
) -> None:
    run(start, schedule)


@given(starts(is_added=True) | starts(kind=KeyKind.TEXT, is_added=True), schedules)
def test_a_table_that_is_added_while_the_stream_flows_is_right_when_it_is_read(
    start: Start, schedule: Schedule
) -> None:
    run(start, schedule)


COMPARED = starts(is_unique=False)
NOT_COMPARED = starts(kind=KeyKind.TEXT, is_unique=False)
OF_INTERVAL = starts(is_interval=True, is_unique=False)
IN_THE_WAY = st.builds(
    Start,
    rows=st.just([(0, 0), (5, 1)]),
    drift=st.just({0: 2, 5: 0}),
    ranges=st.just([KeyRange()]),
    cuts=st.sampled_from([(1,), (2, 4)]),
    is_unique=st.just(True),
)
"""The last row holds the unique value of the first."""
BROKEN = {
    "P covers H": (JoinLaws(waits_for_high=False), COMPARED),
    "(H, P] is replayed": (JoinLaws(replays_to_position=False), COMPARED),
    "P is read under the lock": (JoinLaws(locks_before_position=False), COMPARED),
    "the range is deleted": (JoinLaws(replaces_range=False), COMPARED),
    "touched keys are as the log left them": (JoinLaws(replays_touched=False), NOT_COMPARED),
    "writers are at one position": (JoinLaws(needs_one_position=False), COMPARED),
    "the old owner is fenced": (
        JoinLaws(fences_old_owner=False),
        starts(is_unique=False, drift=dict.fromkeys(KEYS, 9)),  # so each key that is left out tells
    ),
    "who began before is fenced": (
        JoinLaws(fences_old_begin=False),
        starts(is_unique=False, drift=dict.fromkeys(KEYS, 9)),
    ),
    "an added table is captured first": (
        JoinLaws(captures_first=False),
        starts(is_added=True, is_unique=False),
    ),
    "rows outside are left alone": (JoinLaws(refuses_outside=False), starts(is_unique=True)),
    "of an interval touched keys are as the log left them": (
        JoinLaws(replays_touched=False),
        OF_INTERVAL,
    ),
    "what the sink alone has of an interval is read": (JoinLaws(looks_at_sink=False), OF_INTERVAL),
    "the source decides of what the sink alone has": (
        JoinLaws(looks_up_listed=False),
        OF_INTERVAL,
    ),
    "rows that were in the way come back": (JoinLaws(brings_back=False), IN_THE_WAY),
    "a join is noted with its rows": (JoinLaws(notes_with_rows=False), COMPARED),
}


@pytest.mark.parametrize("law", BROKEN)
@pytest.mark.sample(4)
def test_the_model_of_joins_notices_a_broken_law(law: str) -> None:
    laws, beginnings = BROKEN[law]

    def is_noticed(drawn: tuple[Start, Schedule]) -> bool:
        try:
            run(*drawn, laws=laws)
        except (BrokenLawError, IntegrityError):
            return True
        return False

    try:
        find(
            st.tuples(beginnings, schedules),
            is_noticed,
            random=random.Random(1),  # the same search each time: it must find, not be lucky
            settings=settings(
                max_examples=20_000,
                database=None,
                phases=[Phase.generate],  # that there is one is enough, so it is not made smaller
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NoSuchExample:
        pytest.fail(f"no schedule shows that it is broken that {law}: the model cannot see it")
