"""A stream is judged by heartbeat, position and lag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import LogPurgedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import PipelineState, StreamState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.triggers.verdict import (
    Goal,
    Patience,
    StreamEvent,
    Verdict,
    Watch,
    judge,
)

S = 1_000_000
NOW = 1_000_000 * S
PATIENCE = Patience(start_s=100, stale_s=20, stall_s=1000)
STATE = PipelineState(PipelineName("shop"), Wanted.RUN, Phase.STREAMING, generation=7)
ORDERS = TableId("shop", "orders")


def at(offset: int) -> MySqlPosition:
    return MySqlPosition("server", BinlogPosition(1, offset))


ALIVE = StreamState(at(4), source_end=at(9), lag_us=5 * S, heartbeat_us=NOW - 2 * S, generation=7)
LONG_AGO = Watch(since_us=NOW - 5000 * S)


def verdict(
    state: PipelineState | None = STATE,
    stream: StreamState | None = ALIVE,
    goal: Goal = Goal.STOPPED,
    watch: Watch = LONG_AGO,
) -> Verdict:
    return judge(state, stream, goal=goal, watch=watch, patience=PATIENCE, now_us=NOW)[0]


def test_a_stream_whose_heart_beats_is_left_alone() -> None:
    assert verdict() is Verdict.WAITING


def test_a_stream_without_a_heartbeat_is_lost() -> None:
    silent = replace(ALIVE, heartbeat_us=NOW - 21 * S)
    assert verdict(stream=silent) is Verdict.LOST


def test_a_stream_whose_process_is_gone_from_this_machine_is_lost_within_seconds() -> None:
    gone = replace(LONG_AGO, is_gone=True)
    said = replace(STATE, lease_until_us=NOW + 57 * S)  # three seconds ago, for a minute
    assert verdict(state=said, watch=gone) is Verdict.WAITING
    silent = replace(STATE, lease_until_us=NOW + 54 * S)
    assert verdict(state=silent, watch=gone) is Verdict.LOST
    assert verdict(state=silent, watch=replace(gone, since_us=NOW - 4 * S)) is Verdict.WAITING
    assert verdict(state=silent) is Verdict.WAITING
    assert verdict(state=replace(silent, wanted=Wanted.STOP), watch=gone) is Verdict.WAITING


def test_an_old_heartbeat_does_not_count_against_a_stream_that_was_just_started() -> None:
    silent = replace(ALIVE, heartbeat_us=NOW - 5000 * S)
    assert verdict(stream=silent, watch=Watch(since_us=NOW - S)) is Verdict.WAITING


def test_a_stream_that_was_stopped_and_is_wanted_again_has_ended_within_seconds() -> None:
    """A pause that is taken back before anybody has looked ends the job all the same."""
    stopped = replace(STATE, phase=Phase.STOPPED, updated_us=NOW - 6 * S)
    heeded = Watch(since_us=0, has_heeded=True)
    assert verdict(stopped, watch=heeded) is Verdict.ENDED
    assert verdict(stopped) is Verdict.LOST  # it ended by itself
    assert verdict(replace(stopped, updated_us=NOW - 4 * S)) is Verdict.WAITING
    assert verdict(replace(stopped, lease_until_us=NOW + S)) is Verdict.WAITING
    assert verdict(replace(stopped, generation=8)) is Verdict.WAITING
    assert verdict(replace(stopped, wanted=Wanted.STOP)) is Verdict.STOPPED


@pytest.mark.parametrize("phase", [Phase.HANDED_OFF, Phase.STOPPED])
def test_a_job_that_was_started_has_longer_to_begin(phase: Phase) -> None:
    state = replace(STATE, phase=phase, generation=8)  # each start takes a new one
    assert verdict(state, watch=Watch(since_us=NOW - 50 * S)) is Verdict.WAITING
    assert verdict(state, watch=Watch(since_us=NOW - 101 * S)) is Verdict.LOST


def test_a_stream_that_stopped_by_itself_is_lost_while_it_is_wanted() -> None:
    assert verdict(replace(STATE, phase=Phase.STOPPED)) is Verdict.LOST


def test_a_stream_that_was_asked_to_stop_is_stopped_when_it_has() -> None:
    asked = replace(STATE, wanted=Wanted.STOP)
    assert verdict(asked) is Verdict.WAITING
    assert verdict(replace(asked, phase=Phase.STOPPED)) is Verdict.STOPPED


def test_a_dead_stream_that_was_asked_to_stop_is_stopped_and_not_started_again() -> None:
    asked = replace(STATE, wanted=Wanted.STOP)
    silent = replace(ALIVE, heartbeat_us=NOW - 21 * S)
    assert verdict(asked, silent) is Verdict.STOPPED


def test_a_failure_is_told_with_its_error() -> None:
    failed = replace(
        STATE, phase=Phase.FAILED, error=StoredError.of(LogPurgedError("the log is purged"))
    )
    found = judge(failed, ALIVE, goal=Goal.STOPPED, watch=LONG_AGO, patience=PATIENCE, now_us=NOW)
    assert found == (Verdict.FAILED, "CDC-LOG-002 the log is purged")


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT])
def test_a_pipeline_that_was_planned_anew_has_no_stream_to_watch(phase: Phase) -> None:
    assert verdict(replace(STATE, phase=phase)) is Verdict.FAILED
    assert verdict(None, None) is Verdict.FAILED


def test_consistent_is_when_no_table_is_left() -> None:
    behind = replace(ALIVE, inconsistent=(ORDERS,))
    assert verdict(stream=behind, goal=Goal.CONSISTENT) is Verdict.WAITING
    assert verdict(goal=Goal.CONSISTENT) is Verdict.REACHED


def test_caught_up_is_when_nothing_waits_and_that_was_heard_during_the_watch() -> None:
    idle = replace(ALIVE, lag_us=0)
    assert verdict(goal=Goal.CAUGHT_UP) is Verdict.WAITING
    assert verdict(stream=idle, goal=Goal.CAUGHT_UP) is Verdict.REACHED
    just_now = Watch(since_us=NOW - S)
    assert verdict(stream=idle, goal=Goal.CAUGHT_UP, watch=just_now) is Verdict.WAITING


def test_what_the_job_of_an_older_generation_told_reaches_no_goal() -> None:
    older = replace(ALIVE, lag_us=0, generation=6)
    assert verdict(stream=older, goal=Goal.CONSISTENT) is Verdict.WAITING
    assert verdict(stream=older, goal=Goal.CAUGHT_UP) is Verdict.WAITING


def test_a_new_owner_whose_job_has_not_begun_has_reached_nothing() -> None:
    state = replace(STATE, phase=Phase.HANDED_OFF, generation=8, updated_us=NOW - S)
    assert verdict(state, goal=Goal.CONSISTENT) is Verdict.WAITING


def test_a_stream_that_ended_well_keeps_what_it_reached() -> None:
    state = replace(STATE, phase=Phase.STOPPED, generation=8)
    assert verdict(state, goal=Goal.CONSISTENT) is Verdict.REACHED


def test_an_owner_that_is_at_work_before_its_stream_is_not_lost() -> None:
    state = replace(STATE, phase=Phase.HANDED_OFF, updated_us=NOW - 50 * S)
    assert verdict(state) is Verdict.WAITING
    assert verdict(replace(state, updated_us=NOW - 101 * S)) is Verdict.LOST


def test_a_position_that_stands_still_while_something_waits_is_lost() -> None:
    watch = LONG_AGO.look(ALIVE, NOW - 1001 * S).look(ALIVE, NOW)
    assert verdict(watch=watch) is Verdict.LOST


def test_a_position_that_stands_still_while_nothing_waits_is_fine() -> None:
    idle = replace(ALIVE, lag_us=0)
    watch = LONG_AGO.look(idle, NOW - 1001 * S).look(idle, NOW)
    assert verdict(stream=idle, watch=watch) is Verdict.WAITING


def test_a_position_that_moves_is_seen_to() -> None:
    watch = LONG_AGO.look(ALIVE, NOW - 1001 * S).look(replace(ALIVE, position=at(5)), NOW)
    assert verdict(watch=watch) is Verdict.WAITING


@pytest.mark.parametrize("verdict_", list(Verdict))
def test_an_event_comes_back_equal_from_its_payload(verdict_: Verdict) -> None:
    event = StreamEvent("shop", verdict_, "why", generation=3, at_us=NOW)
    assert StreamEvent.from_payload(event.to_payload()) == event


def test_an_event_of_another_release_is_read() -> None:
    old: dict[str, Any] = {"pipeline": "shop", "verdict": "lost"}
    assert StreamEvent.from_payload(old) == StreamEvent("shop", Verdict.LOST)
    assert StreamEvent.from_payload(old | {"new": 1}) == StreamEvent("shop", Verdict.LOST)
