"""What is said of a pipeline that has ended for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import Note, PipelineState, StreamState
from airflow_cdc_provider.views.ended import ended_of
from airflow_cdc_provider.views.health import problems
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus
from tests.behaviours.state_behaviours import at

STATE = PipelineState(PipelineName("shop"), Wanted.RUN, Phase.STOPPED, 3)
NOTE = Note(1, {"stop": "consistent", "position": position_to_json(at(4))})


def status(note: Note | None, phase: Phase = Phase.STOPPED) -> PipelineStatus:
    state = replace(STATE, phase=phase)
    stream = StreamState(at(4), lag_us=9_000_000, heartbeat_us=1)
    ended = ended_of(note, state)
    return PipelineStatus(
        state, (), stream, events=(), at_us=90_000_000, freshness_s=5, ended=ended
    )


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.HANDED_OFF])
def test_it_has_ended_and_its_age_and_lag_are_not_judged(phase: Phase) -> None:
    seen = status(NOTE, phase)
    assert seen.summary == "ended"
    assert not seen.is_late
    assert problems(seen, max_lag_s=1, max_silence_s=1) == ()
    assert "lag" not in progress_line(seen)
    (line,) = (line for line in status_lines(seen) if "ended at" in line)
    assert line.endswith("where all tables are of one position")
    told = seen.to_json()["ended"]
    assert (told["stop"], told["position"]) == ("consistent", at(4).short)


def test_a_snapshot_alone_says_what_its_rows_are_of() -> None:
    seen = status(replace(NOTE, form={**NOTE.form, "stop": "snapshot_only"}), Phase.HANDED_OFF)
    assert seen.ended is not None
    assert "each split is as of its own high watermark" in seen.ended.text


@pytest.mark.parametrize(
    ("note", "phase"),
    [
        (None, Phase.STOPPED),
        (replace(NOTE, form={}), Phase.STOPPED),
        (NOTE, Phase.STREAMING),
        (NOTE, Phase.PLANNING),
    ],
)
def test_one_that_goes_on_has_not_ended(note: Note | None, phase: Phase) -> None:
    seen = status(note, phase)
    assert (seen.ended, seen.is_late) == (None, True)
