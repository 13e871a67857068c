"""Any schedule of reads, changes and crashes ends with the sink equal to the source."""

from __future__ import annotations

import random
from itertools import chain

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from airflow_cdc_provider.core.keys import KeyKind
from tests.core.convergence_model import Laws, World

wishes = st.lists(
    st.tuples(st.integers(0, 9), st.none() | st.integers(1, 99)), min_size=1, max_size=3
)
actions = st.one_of(
    st.tuples(st.just("write"), wishes),
    st.tuples(st.just("show"), st.integers(1, 3)),
    *[st.tuples(st.just("read"), st.integers(0, 3))] * 4,
    st.tuples(st.just("crash"), st.integers(0, 3)),
    *[st.tuples(st.just("torn publish"), st.integers(0, 3))] * 2,
    st.tuples(st.just("stream"), st.integers(1, 3)),
    *[st.tuples(st.just("stream crash"), st.integers(1, 3))] * 2,
)
schedules = st.tuples(*[st.lists(actions, max_size=20)] * 5).map(lambda parts: [*chain(*parts)])
"""In parts, because one list would have five steps in most cases."""
streaming = st.one_of(
    st.tuples(st.just("write"), wishes),
    st.tuples(st.just("show"), st.just(9)),
    st.tuples(st.just("stream"), st.integers(1, 3)),
    st.tuples(st.just("stop"), st.none()),
    st.tuples(st.just("further"), st.integers(1, 3)),
    st.tuples(st.just("rejoin"), st.none()),
)
with_stops = st.tuples(st.lists(actions, max_size=20), st.lists(streaming, max_size=20)).map(
    lambda parts: [*parts[0], *[("read", number % 4) for number in range(16)], *parts[1]]
)
"""All is read first, so that there is a stream to leave the table alone."""
boundaries = st.lists(st.integers(1, 9), max_size=3)


def run(
    bounds: list[int],
    schedule: list[tuple[str, object]],
    *,
    laws: Laws | None = None,
    backfill: bool = True,
    kind: KeyKind = KeyKind.INTEGER,
) -> World:
    world = World(bounds, laws=laws, backfill=backfill, kind=kind)
    for action, argument in schedule:
        match action, argument:
            case "write", list(changes):
                world.source.write(changes)
            case "show", int(count):
                world.source.show(count)
            case "read", int(number):
                world.step_reader(number)
            case "crash", int(number):
                world.crash(number)
            case "torn publish", int(number):
                world.publish_without_report(number)
            case "stream", int(count) if world.all_read:
                world.step_stream(count)
            case "stream crash", int(count) if world.all_read:
                world.step_stream(count, crash=True)
            case _:
                stop_or_return(world, action, argument)
    world.finish()
    return world


def stop_or_return(world: World, action: str, argument: object) -> None:
    match action, argument:
        case "stop", None:
            world.stop_table()
        case "further", int(count):
            world.catch_up_isolated(count)
        case "rejoin", None:
            world.rejoin()
        case _:
            pass


@given(boundaries, with_stops)
def test_any_schedule_converges_where_the_stream_leaves_the_table_alone(
    bounds: list[int], schedule: list[tuple[str, object]]
) -> None:
    world = run(bounds, schedule)
    assert world.sink.rows == world.source.rows
    assert world.is_consistent


@given(boundaries, schedules)
@settings(max_examples=200)
def test_any_schedule_converges(bounds: list[int], schedule: list[tuple[str, object]]) -> None:
    world = run(bounds, schedule)
    assert world.sink.rows == world.source.rows
    assert world.is_consistent


@given(boundaries, schedules)
def test_any_schedule_converges_without_backfill(
    bounds: list[int], schedule: list[tuple[str, object]]
) -> None:
    world = run(bounds, schedule, backfill=False)
    assert world.sink.rows == world.source.rows
    assert world.is_consistent


@given(boundaries, schedules)
def test_any_schedule_converges_where_keys_cannot_be_compared(
    bounds: list[int], schedule: list[tuple[str, object]]
) -> None:
    world = run(bounds, schedule, kind=KeyKind.TEXT)
    assert world.sink.rows == world.source.rows
    assert world.is_consistent
    stream = world.sink.stream
    assert stream is not None
    assert not stream.tables[0].finished


BROKEN = {
    "law 1": Laws(low_is_what_is_visible=False),
    "law 3": Laws(backfill_all=False),
    "law 4": Laws(replace_range=False),
    "law 5 start": Laws(start_at_smallest=False),
    "law 5 filter": Laws(filter_by_split=False),
    "law 6": Laws(from_low_without_backfill=False),
    "law 7": Laws(position_with_rows=False),
    "rejoin behind the stream": Laws(rejoin_behind_stream=False),
}


@pytest.mark.parametrize("law", BROKEN)
@pytest.mark.sample(3)
def test_the_model_notices_a_broken_law(law: str) -> None:
    def diverges(drawn: tuple[list[int], list[tuple[str, object]]]) -> bool:
        kind = KeyKind.TEXT if law == "law 6" else KeyKind.INTEGER
        world = run(*drawn, laws=BROKEN[law], kind=kind)
        return world.sink.rows != world.source.rows

    drawn = with_stops if law.startswith("rejoin") else schedules
    # few splits: the stream's own law needs many of its steps, and it begins when all is read
    bounds = st.lists(st.integers(1, 9), max_size=1) if law == "law 7" else boundaries
    try:
        find(
            st.tuples(bounds, drawn),
            diverges,
            random=random.Random(1),  # the same search each time: it must find, not be lucky
            settings=settings(
                max_examples=20_000,
                database=None,
                phases=[Phase.generate],  # that there is one is enough: it is not made smaller
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NoSuchExample:
        pytest.fail(f"no schedule shows that {law} is broken: the model cannot see it")
