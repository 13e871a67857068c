"""Tasks and triggers notify a real web server, with connections that Airflow keeps."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from airflow_cdc_provider.alerts import watch
from airflow_cdc_provider.core.errors import LogPurgedError, SinkUnreachableError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.operators.health import CdcHealthOperator
from airflow_cdc_provider.operators.requests import CdcResyncOperator
from airflow_cdc_provider.operators.steps import CdcPlanOperator, CdcPreflightOperator
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.stream import CdcStreamTrigger
from airflow_cdc_provider.triggers.verdict import StreamEvent, Verdict
from tests.airflow.conftest import SHOP, beat, streaming
from tests.alerts.conftest import TOKEN, HttpReceiver
from tests.alerts.conftest import receiver as receiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cdc_provider.state.store import SqlStateStore

PURGED = LogPurgedError("the log is gone", "binlog.000001", "changes", "`reset` the pipeline")
WAIT = {"since_us": 1, "restarts": 0, "deadline_us": 0}


@pytest.fixture
def notified(
    pipeline_file: Callable[..., Path], receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A pipeline file with a receiver that is a connection of Airflow's."""
    path = pipeline_file()
    path.write_text(path.read_text() + "notify: {webhook: {conn_id: ops}}\n")
    stored = {"conn_type": "http", "host": receiver.url}
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    monkeypatch.setenv("AIRFLOW_CONN_OPS", json.dumps(stored))
    monkeypatch.setattr(watch, "LOOK_S", 0.1)
    return path


def test_a_task_that_fails_for_good_is_told_with_the_way_in_airflow(
    store: SqlStateStore, notified: Path, receiver: HttpReceiver, context: Any
) -> None:
    generation = streaming(store)
    store.move(
        SHOP,
        generation,
        expected=Phase.STREAMING,
        to=Phase.FAILED,
        error=StoredError("CDC-INT-008 no; what to do: `reset` it"),
    )
    task = CdcPreflightOperator(task_id="preflight", pipeline=str(notified))
    with pytest.raises(AirflowException):
        task.execute(context)
    told = {one["kind"]: one for one in receiver.got}
    assert told["failed"]["code"] == "CDC-INT-008"
    assert "CdcControlOperator" in told["failed"]["remedy"]
    assert told["failed"]["link"].startswith("https://airflow.example.com/plugin/cdc/")


def test_a_task_that_airflow_tries_again_tells_nothing_before_its_last_try(
    store: SqlStateStore,
    notified: Path,
    receiver: HttpReceiver,
    context: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = CdcPlanOperator(task_id="plan", pipeline=str(notified))
    context["ti"].max_tries = 1
    monkeypatch.setattr("airflow_cdc_provider.hooks.notify.get_current_context", lambda: context)
    with pytest.raises(AirflowException, match="CDC-SRC-001"):
        task.execute(context)
    assert receiver.got == []
    context["ti"].try_number = 2
    with pytest.raises(AirflowException, match="CDC-SRC-001"):
        task.execute(context)
    (told,) = receiver.got
    assert (told["code"], told["over"]) == ("CDC-SRC-001", False)


def test_a_health_task_that_fails_is_no_failed_run(
    store: SqlStateStore, notified: Path, receiver: HttpReceiver, context: Any
) -> None:
    beat(store, streaming(store), lag_us=900_000_000)
    task = CdcHealthOperator(task_id="health", pipeline=str(notified), max_lag_s=1.0)
    with pytest.raises(AirflowException):
        task.execute(context)
    assert receiver.got == []


def test_a_request_that_cannot_be_asked_is_no_failed_run(
    store: SqlStateStore, notified: Path, receiver: HttpReceiver, context: Any
) -> None:
    beat(store, streaming(store))
    task = CdcResyncOperator(task_id="resync", pipeline=str(notified), tables=["shop.none"])
    assert task.notifies
    with pytest.raises(AirflowException):
        task.execute(context)
    assert receiver.got == []


def test_a_connection_that_is_missing_refuses_preflight_with_its_line(
    notified: Path, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_OPS")
    task = CdcPreflightOperator(task_id="preflight", pipeline=str(notified))
    with pytest.raises(AirflowException, match=r"(?s)notify.webhook.conn_id: there is no.*'ops'"):
        task.execute(context)


def outage(store: SqlStateStore, generation: int, *, for_s: int) -> None:
    error = SinkUnreachableError("the sink answered error 2003", where="db:3306")
    form = {"error": error.to_json(), "since_us": store.now_us() - for_s * 1_000_000}
    form |= {"part": "work", "tries": 3, "next_us": 0}
    note = {"generation": generation, "process": this_process(), "outages": [form]}
    store.keep_note(SHOP, NoteKind.OUTAGES, note)


def deferred(sensor: CdcStreamSensor, context: Any) -> CdcStreamTrigger:
    with pytest.raises(TaskDeferred) as caught:
        sensor.execute(context)
    _, arguments = caught.value.trigger.serialize()
    return CdcStreamTrigger(**json.loads(json.dumps(arguments)))


def watched(trigger: CdcStreamTrigger, seconds: float) -> None:
    """Run a trigger for some seconds, or until it has something to tell."""

    async def follow() -> None:
        async for _ in trigger.run():
            return

    async def run() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(follow(), seconds)
        await trigger.cleanup()

    asyncio.run(run())


def test_the_trigger_of_follow_tells_an_outage_and_stores_no_secret(
    store: SqlStateStore,
    notified: Path,
    receiver: HttpReceiver,
    context: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    generation = streaming(store)
    beat(store, generation)
    sensor = CdcStreamSensor(task_id="follow", pipeline=str(notified), poke_interval=0.05)
    trigger = deferred(sensor, context)
    assert TOKEN not in json.dumps(trigger.serialize())
    outage(store, generation, for_s=90)
    watched(trigger, 2.0)
    (told,) = receiver.got
    assert (told["kind"], told["code"]) == ("outage", "CDC-SNK-001")
    assert told["link"].startswith("https://airflow.example.com/plugin/cdc/cdc/page?dag_id=")
    again = deferred(sensor, context)  # a triggerer that starts again
    watched(again, 1.0)
    assert len(receiver.got) == 1
    assert TOKEN not in "".join(capfd.readouterr())


def test_a_stream_that_is_watched_goes_on_without_a_receiver_that_can_be_found(
    store: SqlStateStore, notified: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beat(store, streaming(store))
    trigger = CdcStreamTrigger(
        pipeline="shop",
        state={"conn_id": "shop_state"},
        goal="consistent",
        poll_s=0.05,
        notify={"section": {"webhook": {"conn_id": "gone"}, "after": "60s"}},
    )

    async def first() -> StreamEvent:
        try:
            async for event in trigger.run():
                return StreamEvent.from_payload(event.payload)
        finally:
            await trigger.cleanup()
        raise AssertionError("no event")

    assert asyncio.run(first()).verdict is Verdict.REACHED
    assert "there is no connection 'gone'" in caplog.text


def test_a_stream_that_failed_for_good_is_told_by_the_sensor_that_ends(
    store: SqlStateStore, notified: Path, receiver: HttpReceiver, context: Any
) -> None:
    generation = streaming(store)
    ended = StoredError.of(PURGED)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=ended)
    sensor = CdcStreamSensor(task_id="follow", pipeline=str(notified))
    event = StreamEvent("shop", Verdict.FAILED, str(ended), generation, error=ended.text)
    with pytest.raises(AirflowException):
        sensor.execute_complete(context, event.to_payload(), wait=WAIT)
    (told,) = receiver.got
    assert (told["kind"], told["code"]) == ("failed", PURGED.code)
