"""The sensor: what it does about each verdict, on a real state store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    IntegrityError,
    LogPurgedError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.pipeline.steps.planning import PlanSummary
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.stream import CdcStreamTrigger
from airflow_cdc_provider.triggers.verdict import StreamEvent, Verdict
from tests.airflow.conftest import SHOP, beat, streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_cdc_provider.state.store import SqlStateStore

WAIT = {"since_us": 1, "restarts": 0, "deadline_us": 0}
ORDERS = TableId("shop", "orders")


class RestartedError(Exception):
    """Raised in place of starting a Spark job."""


@pytest.fixture
def sensor(pipeline_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> CdcStreamSensor:
    def start(_self: CdcSteps, *, mode: str | None = None) -> Any:
        raise RestartedError(mode)

    monkeypatch.setattr(CdcSteps, "start_stream", start)
    return CdcStreamSensor(task_id="follow", pipeline=str(pipeline_file()), max_restarts=2)


@pytest.fixture
def generation(store: SqlStateStore) -> int:
    """Of a stream that lives."""
    found = streaming(store)
    beat(store, found)
    return found


def told(sensor: CdcStreamSensor, context: Any, verdict: Verdict, **more: Any) -> Any:
    wait = {**WAIT, **more.pop("wait", {})}
    event = StreamEvent("shop", verdict, **more)
    return sensor.execute_complete(context, event.to_payload(), wait=wait)


def test_a_live_stream_is_watched_without_a_worker(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    trigger = deferred.value.trigger
    assert isinstance(trigger, CdcStreamTrigger)
    assert trigger.state == {"conn_id": "shop_state"}
    assert deferred.value.method_name == "execute_complete"
    assert set(deferred.value.kwargs or {}) == {"wait"}


def test_what_was_told_of_tables_that_stand_still_is_not_told_by_the_next_watch(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        told(sensor, context, Verdict.WAITING, standing={"shop.orders": "CDC-SINK-001"})
    assert deferred.value.trigger.serialize()[1]["standing"] == {"shop.orders": "CDC-SINK-001"}


def test_a_goal_that_is_reached_needs_no_watch(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    sensor.goal = "consistent"
    assert sensor.execute(context)["consistent"] is True


def test_a_goal_that_is_not_reached_is_watched_for(
    sensor: CdcStreamSensor, context: Any, store: SqlStateStore, generation: int
) -> None:
    beat(store, generation, inconsistent=(ORDERS,))
    sensor.goal = "consistent"
    with pytest.raises(TaskDeferred):
        sensor.execute(context)


def test_a_stream_that_nobody_holds_any_more_is_started_at_once(
    sensor: CdcStreamSensor, context: Any, store: SqlStateStore, generation: int
) -> None:
    store.release_lease(SHOP, generation)
    with pytest.raises(RestartedError, match="continuous"):
        sensor.execute(context)


def test_a_cleared_sensor_starts_a_stream_that_failed_before(
    sensor: CdcStreamSensor, context: Any, store: SqlStateStore, generation: int
) -> None:
    store.move(
        SHOP,
        generation,
        expected=Phase.STREAMING,
        to=Phase.FAILED,
        error=StoredError.of(IntegrityError("x")),
    )
    with pytest.raises(RestartedError):
        sensor.execute(context)


def test_a_lost_stream_is_started_again(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(RestartedError):
        told(sensor, context, Verdict.LOST)


def test_a_stream_that_does_not_stay_alive_is_given_up(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(AirflowException, match="after 2 restarts: it broke") as error:
        told(sensor, context, Verdict.LOST, detail="it broke", wait={"restarts": 2})
    assert not isinstance(error.value, AirflowFailException)  # a retry begins to count anew


def test_a_pause_that_was_taken_back_is_no_restart_that_counts(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(RestartedError):
        told(sensor, context, Verdict.ENDED, wait={"restarts": 2})


def test_a_stream_that_was_well_for_long_may_be_restarted_as_often_again(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(RestartedError):
        told(sensor, context, Verdict.LOST, at_us=10**12, wait={"restarts": 2})


@pytest.mark.parametrize("is_older", [False, True], ids=["a triggerer", "an older triggerer"])
def test_a_failure_that_no_retry_mends_fails_the_task_for_good(
    sensor: CdcStreamSensor,
    context: Any,
    generation: int,
    caplog: pytest.LogCaptureFixture,
    is_older: bool,
) -> None:
    error = StoredError.of(LogPurgedError("the log is purged", remedy="restart"))
    more = {"detail": str(error)} if is_older else {"detail": str(error), "error": error.text}
    with pytest.raises(AirflowFailException, match="CDC-LOG-002 the log is purged"):
        told(sensor, context, Verdict.FAILED, **more)
    texts = [record.getMessage() for record in caplog.records]
    assert "    what to do: restart" in texts
    assert not [text for text in texts if '{"' in text]


@pytest.mark.parametrize("is_older", [False, True], ids=["a triggerer", "an older triggerer"])
def test_a_failure_that_may_pass_is_a_lost_stream(
    sensor: CdcStreamSensor, context: Any, generation: int, is_older: bool
) -> None:
    error = StoredError.of(SourceUnreachableError("the source is away"))
    more = {"detail": str(error)} if is_older else {"detail": str(error), "error": error.text}
    with pytest.raises(RestartedError):
        told(sensor, context, Verdict.FAILED, **more)


def test_a_stream_whose_password_was_changed_is_started_again_once(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    """The new job reads the connection, which may have the new password."""
    refused = StoredError.of(AccessDeniedError("the source answered error 1045"))
    more: dict[str, Any] = {"detail": str(refused), "error": refused.text}
    with pytest.raises(RestartedError):
        told(sensor, context, Verdict.FAILED, **more, wait={"restarts": 1})
    again = {"restarts": 1, "is_refused": True}
    with pytest.raises(AirflowFailException, match="CDC-CFG-006"):
        told(sensor, context, Verdict.FAILED, **more, wait=again)
    with pytest.raises(RestartedError):  # it was well for long in between
        told(sensor, context, Verdict.FAILED, **more, at_us=10**12, wait=again)


def test_a_pipeline_that_was_planned_anew_is_not_streamed(
    sensor: CdcStreamSensor, context: Any, store: SqlStateStore
) -> None:
    store.ensure(SHOP)
    with pytest.raises(AirflowFailException, match="no stream to watch"):
        sensor.execute(context)


def test_a_paused_pipeline_ends_the_wait(
    sensor: CdcStreamSensor, context: Any, store: SqlStateStore, generation: int
) -> None:
    store.want(SHOP, Wanted.STOP)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    assert sensor.execute(context)["phase"] == "stopped"


def test_a_pause_before_another_goal_skips_the_rest(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    sensor.goal = "caught_up"
    with pytest.raises(AirflowSkipException):
        told(sensor, context, Verdict.STOPPED)


def test_a_deadline_holds_over_restarts(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        told(sensor, context, Verdict.WAITING, wait={"deadline_us": 77})
    assert isinstance(deferred.value.trigger, CdcStreamTrigger)
    assert deferred.value.trigger.deadline_us == 77
    with pytest.raises(AirflowSensorTimeout):
        told(sensor, context, Verdict.TIMEOUT)


def test_every_verdict_is_acted_on(sensor: CdcStreamSensor, context: Any, generation: int) -> None:
    for verdict in Verdict:
        try:
            answer = told(sensor, context, verdict)
        except (AirflowException, TaskDeferred, RestartedError):
            continue
        assert answer["pipeline"] == "shop"


def test_what_is_deferred_can_be_stored(
    sensor: CdcStreamSensor, context: Any, generation: int
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    path, arguments = deferred.value.trigger.serialize()
    assert path.endswith("CdcStreamTrigger")
    assert all(isinstance(value, str | int | float | dict) for value in arguments.values())


@pytest.mark.parametrize("is_found", [False, True])
def test_a_look_for_new_tables_starts_the_stream_again_if_there_are_any(
    sensor: CdcStreamSensor,
    context: Any,
    generation: int,
    monkeypatch: pytest.MonkeyPatch,
    is_found: bool,
) -> None:
    """What planning and the look do is shown where they are; here it is who calls them."""
    planned: list[str] = []

    def plan(self: CdcSteps) -> Any:
        planned.append(str(self.run.name))
        return PlanSummary("p", 1, is_new=False, tables=(), handed_off=True, changed=("added",))

    monkeypatch.setattr(CdcSteps, "end_for_tables", lambda _: is_found)
    monkeypatch.setattr(CdcSteps, "plan", plan)
    with pytest.raises(RestartedError if is_found else TaskDeferred) as ended:
        told(sensor, context, Verdict.LOOK)
    assert planned == ([str(SHOP)] if is_found else [])
    if not is_found:
        assert ended.value.trigger.look_us > 0  # type: ignore[attr-defined]


def test_what_happened_while_the_task_waited_is_in_the_log_that_airflow_keeps(
    sensor: CdcStreamSensor,
    context: Any,
    generation: int,
    store: SqlStateStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Airflow begins the trigger's log anew when the task is deferred again."""
    store.tell(SHOP, "of before", level="warning")
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    wait = json.loads(json.dumps(deferred.value.kwargs))["wait"]
    for number in range(21):
        store.tell(SHOP, f"stream restarts from the ledger: try {number}", level="warning")
    store.tell(SHOP, "over, after 67 s: the sink is away")
    store.tell(SHOP, "a request is done")
    capsys.readouterr()
    with pytest.raises(TaskDeferred):
        told(sensor, context, Verdict.WAITING, wait=wait)
    said = capsys.readouterr().out
    lines = {line.partition(" UTC: ")[2].partition(" [")[0] for line in said.splitlines()}
    assert "over, after 67 s: the sink is away" in lines
    assert "stream restarts from the ledger: try 20" in lines
    assert said.count("restarts from the ledger") == 19
    assert "2 more events are on the CDC page" in said
    assert "watched shop: streaming" in said
    assert "of before" not in said
    assert "a request is done" not in said


def test_a_wait_that_an_earlier_release_stored_is_gone_on_with(
    sensor: CdcStreamSensor, context: Any, generation: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TaskDeferred):
        told(sensor, context, Verdict.WAITING)
    assert "watched shop: streaming" in capsys.readouterr().out
