"""An outage is over when the stream has gone on, not when a server answers a look."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.engine.stream.recovery import Progress, Recovery, StreamLook
from tests.engine.counter_log import CounterPosition


def at(position: int, reached: int = 0) -> Progress:
    return Progress(CounterPosition(position), position, CounterPosition(reached or position))


LOOK = StreamLook(
    at_s=0.0, failures=1, progress=at(7), has_log_waiting=True, is_failing=True, try_s=1.0
)


def test_while_log_waits_an_outage_is_over_with_the_first_commit_after_it() -> None:
    recovery = Recovery()
    assert not recovery.is_shown(LOOK)
    assert not recovery.is_shown(replace(LOOK, at_s=20.0, try_s=20.0))
    assert recovery.is_shown(replace(LOOK, at_s=22.0, progress=at(8), try_s=22.0))


def test_what_was_committed_before_the_last_failure_shows_nothing() -> None:
    recovery = Recovery()
    recovery.is_shown(LOOK)
    assert not recovery.is_shown(replace(LOOK, failures=2, progress=at(9)))
    assert not recovery.is_shown(replace(LOOK, failures=2, progress=at(9)))
    assert recovery.is_shown(replace(LOOK, failures=2, progress=at(10)))


def test_a_stream_that_waits_for_its_next_try_has_not_gone_on() -> None:
    recovery = Recovery()
    recovery.is_shown(replace(LOOK, try_s=None))
    assert not recovery.is_shown(
        replace(LOOK, at_s=99.0, progress=at(8), has_log_waiting=False, try_s=None)
    )


def test_a_try_that_reads_idle_log_again_has_not_gone_on_before_it_is_further() -> None:
    recovery = Recovery()
    recovery.is_shown(replace(LOOK, progress=at(7, reached=30)))
    assert not recovery.is_shown(replace(LOOK, progress=at(7)))
    assert recovery.is_shown(replace(LOOK, progress=at(7, reached=31)))


def test_where_nothing_waits_answers_do_and_a_try_that_failed_has_to_live_a_little() -> None:
    idle = replace(LOOK, has_log_waiting=False)
    assert not Recovery().is_shown(idle)
    assert Recovery().is_shown(replace(idle, try_s=6.0))
    assert Recovery().is_shown(replace(idle, is_failing=False, try_s=1.0))


def test_a_long_transaction_is_no_outage() -> None:
    recovery = Recovery()
    recovery.is_shown(LOOK)
    assert recovery.is_shown(replace(LOOK, at_s=70.0, try_s=61.0))
    recovery, beside = Recovery(), replace(LOOK, is_failing=False)
    assert not recovery.is_shown(beside)
    assert recovery.is_shown(replace(beside, at_s=31.0))
