"""Events that repeat are one line, with how often and the last time."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import PipelineEvent, PipelineState
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import EVENTS_SHOWN, PipelineStatus

S = 1_000_000
STATE = PipelineState(PipelineName("shop"), Wanted.RUN, Phase.STREAMING, 3)
AGAIN = "stream restarts from the ledger: CDC-SRC-001 the source does not answer"


def seen(*events: tuple[int, str]) -> PipelineStatus:
    told = tuple(PipelineEvent(at_s * S, "warning", text) for at_s, text in events)
    return PipelineStatus(STATE, (), stream=None, events=told, at_us=10_000 * S)


def lines(status: PipelineStatus) -> list[str]:
    return [line.strip() for line in status_lines(status) if "[warning]" in line]


def test_equal_lines_one_after_another_are_one_with_a_count_and_the_last_time() -> None:
    status = seen((3700, AGAIN), (3690, AGAIN), (3660, AGAIN), (3600, "it begins"))
    assert lines(status) == [
        f"1970-01-01 01:01:40 [warning] {AGAIN} (3 times since 01:01:00)",
        "1970-01-01 01:00:00 [warning] it begins",
    ]
    (again, once) = status.to_json()["events"]
    assert (again["times"], again["at_us"], again["since_us"]) == (3, 3700 * S, 3660 * S)
    assert once["times"] == 1


def test_many_equal_lines_leave_room_for_what_else_happened() -> None:
    many = [(9000 - number, AGAIN) for number in range(150)]
    status = seen(*many, (8000, "it begins"))
    assert [line.rpartition("] ")[2] for line in lines(status)][-1] == "it begins"
    others = seen(*((9000 - number, f"event {number}") for number in range(50)))
    assert len(lines(others)) == EVENTS_SHOWN
