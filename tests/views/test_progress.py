"""The line that says where a pipeline is: what is read, how fast, and how long it may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase, Wanted
from airflow_cdc_provider.core.records import PipelineState, StreamState
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.views.progress import (
    Pace,
    Rate,
    is_begun,
    lag_text,
    progress_line,
    time_left,
)
from airflow_cdc_provider.views.status import PipelineStatus, TableStatus
from tests.behaviours.state_behaviours import at

LEASE_US = int(LEASE_S * 1e6)
SNAPSHOT = PipelineState(
    PipelineName("shop"), Wanted.RUN, Phase.SNAPSHOT, 1, lease_until_us=1 + LEASE_US
)


def table(rows: int, *, name: str = "shop.orders", of: int = 10_000, done: int = 0) -> TableStatus:
    return TableStatus(
        source=name,
        sink=name,
        phase="snapshot",
        splits_finished=done,
        splits_planned=4,
        planning_done=True,
        rows=rows,
        bytes=0,
        estimated_rows=of,
        error=NO_ERROR,
    )


def status(*tables: TableStatus) -> PipelineStatus:
    return PipelineStatus(SNAPSHOT, tables, stream=None, events=(), at_us=1)


def test_the_line_names_tables_rate_and_the_time_left_as_a_range() -> None:
    now = iter((0.0, 30.0))
    pace = Pace(lambda: next(now))
    assert pace.line(status(table(0))) == (
        "shop: snapshot, splits 0/4, 0 rows, reading shop.orders 0/4, 0/1 tables consistent"
    )
    assert pace.line(status(table(3000, done=1))) == (
        "shop: snapshot, splits 1/4, 3,000 rows (100/s), about 56 s to 91 s left, "
        "reading shop.orders 1/4, 0/1 tables consistent"
    )


def test_the_last_line_says_what_ended_and_not_that_nobody_is_at_work() -> None:
    over = replace(status(table(9, of=9, done=4)), at_us=SNAPSHOT.lease_until_us)
    assert Pace().line(over).startswith("shop: snapshot (nobody is at work), ")
    assert Pace().line(over, ended="snapshot").startswith("shop: snapshot ended, splits 4/4, ")


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (Phase.STREAMING, "2.5 s (900 s ago)"),
        (Phase.STOPPED, "2.5 s at the end of its last run (900 s ago)"),
        (Phase.FAILED, "2.5 s when last heard of (900 s ago)"),
    ],
)
def test_a_lag_of_earlier_is_told_as_one_of_earlier(phase: Phase, text: str) -> None:
    told = StreamState(at(4), lag_us=2_500_000, heartbeat_us=1)
    now_us = told.heartbeat_us + 900_000_000
    state = replace(SNAPSHOT, phase=phase, lease_until_us=now_us + LEASE_US)
    seen = PipelineStatus(state, (), told, events=(), at_us=now_us)
    assert lag_text(seen) == text
    assert seen.lag_s == (2.5 if phase is Phase.STREAMING else None)
    assert seen.to_json()["stream"]["last_lag_s"] == 2.5
    dead = replace(seen, state=replace(state, lease_until_us=1))
    assert dead.lag_s is None


def test_the_range_is_from_the_faster_of_two_rates_to_the_slower() -> None:
    rows = Rate()
    for at_s, count in ((0, 0), (100, 1000), (110, 2000)):
        rows.add(count, at_s)
    assert rows.per_s(15) == 100
    assert rows.per_s(180) == pytest.approx(2000 / 110)
    assert time_left(status(table(2000, of=102_000)), rows) == "about 13 min to 119 min left"


@pytest.mark.parametrize(
    "shown",
    [
        status(table(10_000, of=10_000)),
        status(table(20_000, of=10_000)),
        status(table(5_000, of=10_000, done=4)),
    ],
    ids=["as estimated", "more than estimated", "all splits finished"],
)
def test_nothing_is_guessed_where_nothing_seems_left(shown: PipelineStatus) -> None:
    rows = Rate()
    rows.add(0, 0)
    rows.add(1000, 20)
    assert time_left(shown, rows) == ""


def test_many_tables_are_not_all_named() -> None:
    tables = [table(0, name=f"shop.t{number}") for number in range(5)]
    assert "reading shop.t0 0/4 and shop.t1 0/4 and 3 more," in progress_line(status(*tables))


@pytest.mark.parametrize("phase", list(Phase))
def test_what_the_last_job_ended_with_is_not_what_a_new_one_does(phase: Phase) -> None:
    begun = is_begun(replace(status(), state=replace(SNAPSHOT, phase=phase)))
    assert begun == (phase in {Phase.PLANNING, Phase.SNAPSHOT, Phase.STREAMING})


@pytest.mark.parametrize(
    ("position", "end", "is_continuous", "summary"),
    [
        (4, 4, False, "caught up"),
        (4, 5, False, "stopped"),
        (4, None, False, "stopped"),
        (4, 4, True, "stopped"),
    ],
)
def test_a_bounded_pipeline_that_ended_at_the_logs_end_has_caught_up(
    position: int, end: int | None, summary: str, *, is_continuous: bool
) -> None:
    stream = StreamState(at(position), source_end=None if end is None else at(end), lag_us=0)
    state = replace(SNAPSHOT, phase=Phase.STOPPED, lease_until_us=0)
    seen = PipelineStatus(state, (), stream, events=(), at_us=1, is_continuous=is_continuous)
    assert seen.summary == summary
