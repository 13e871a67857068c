"""How old a copy is against what its pipeline file allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase, Wanted
from airflow_cdc_provider.core.records import PipelineState, StreamState
from airflow_cdc_provider.views.freshness import late_error, span
from airflow_cdc_provider.views.health import problems, status_text
from airflow_cdc_provider.views.overview import Shown, overview_lines
from airflow_cdc_provider.views.remarks import remark_lines
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus
from tests.behaviours.state_behaviours import SHOP, at

NOW = 10_000_000_000
LATE = "the copy is 20 min old, and may be 15 min"


def status_of(
    phase: Phase, *, lag_s: float | None, heard_s: float, wanted: Wanted = Wanted.RUN
) -> PipelineStatus:
    """Return a pipeline whose stream was heard of some seconds ago, with its lag then."""
    lease = NOW + int(LEASE_S * 1e6) if phase is Phase.STREAMING else 0
    state = PipelineState(SHOP, wanted, phase, 1, owner="somebody", lease_until_us=lease)
    lag_us = None if lag_s is None else int(lag_s * 1e6)
    stream = StreamState(at(4), lag_us=lag_us, heartbeat_us=NOW - int(heard_s * 1e6))
    return PipelineStatus(state, (), stream, (), NOW, freshness_s=900)


@pytest.mark.parametrize(
    ("status", "age_s", "is_late"),
    [
        (status_of(Phase.STREAMING, lag_s=2, heard_s=5), 2, False),
        (status_of(Phase.STREAMING, lag_s=901, heard_s=5), 901, True),
        (status_of(Phase.STREAMING, lag_s=2, heard_s=1000), 1002, True),
        (status_of(Phase.STOPPED, lag_s=0, heard_s=899), 899, False),
        (status_of(Phase.STOPPED, lag_s=100, heard_s=850), 950, True),
        (status_of(Phase.STOPPED, lag_s=0, heard_s=5000, wanted=Wanted.STOP), 5000, False),
        (status_of(Phase.STREAMING, lag_s=None, heard_s=5), None, False),
    ],
)
def test_a_copy_is_as_old_as_the_lag_and_the_time_since_it_was_known(
    status: PipelineStatus, age_s: float | None, *, is_late: bool
) -> None:
    assert (status.copy_age_s, status.is_late) == (age_s, is_late)


def test_tables_that_follow_a_log_are_as_old_as_their_last_commit() -> None:
    status = status_of(Phase.STREAMING, lag_s=1, heard_s=1)
    published = replace(status, published_us=status.at_us - 950_000_000)
    assert (published.copy_age_s, published.is_late) == (950, True)
    assert "  tables have what was committed 950 s ago" in status_lines(published)
    fresh = replace(status, published_us=status.at_us - 100_000)
    assert (fresh.copy_age_s, fresh.is_late) == (1, False)


def test_no_age_is_judged_without_a_target() -> None:
    old = replace(status_of(Phase.STOPPED, lag_s=0, heard_s=1e6), freshness_s=None)
    assert late_error(old) is None


def test_everyone_who_is_told_of_a_pipeline_hears_that_its_copy_is_too_old() -> None:
    late = status_of(Phase.STOPPED, lag_s=0, heard_s=1200)
    assert problems(late, is_bounded=True) == (LATE,)
    for lines in (
        status_text(late).splitlines(),
        remark_lines(late),
        overview_lines([Shown("shop", "shop.yaml", late)]),
    ):
        assert any(line.strip(" -").endswith(LATE) for line in lines)
    form = late.to_json()
    assert (form["late"], form["freshness_s"], form["copy_age_s"]) == (True, 900, 1200)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3601, "1 h 1 s"), (90_000, "1 d 1 h")],
)
def test_a_span_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
