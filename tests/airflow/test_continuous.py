"""A continuous stream that is killed comes back; one that is paused ends its run. All real."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from pymysql import MySQLError

from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.hooks.job_handle import JobHandle
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator, _detached
from airflow_cdc_provider.operators.steps import CdcHandoffOperator, CdcPlanOperator
from airflow_cdc_provider.pipeline.steps.pausing import pause
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.stream import CdcStreamTrigger
from airflow_cdc_provider.triggers.verdict import Verdict
from tests.airflow.conftest import TaskState
from tests.airflow.shop import Shop, open_shop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
_PATIENCE_S = 240.0


@pytest.fixture
def shop(mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path) -> Iterator[Shop]:
    with open_shop(mysql_server, mysql_sink, tmp_path, "live") as shop:
        yield shop
        for job in _detached:
            if job.is_running:
                job.stop()
        _detached.clear()


def context() -> Any:
    return {"task_state_store": TaskState()}


def deferral(execute: Callable[[], Any]) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        execute()
    return deferred.value


def event_of(deferred: TaskDeferred) -> dict[str, Any]:
    """Let the trigger run as the triggerer would: made again from what is stored."""
    _, arguments = deferred.trigger.serialize()

    async def first() -> Any:
        trigger = CdcStreamTrigger(**arguments)
        async with asyncio.timeout(_PATIENCE_S):
            event = await anext(trigger.run())
        await trigger.cleanup()
        return event.payload

    payload: dict[str, Any] = asyncio.run(first())
    return payload


def verdict_of(sensor: CdcStreamSensor) -> Verdict:
    try:
        sensor.execute(context())
    except TaskDeferred as deferred:
        return Verdict(event_of(deferred)["verdict"])
    return Verdict.REACHED


def assert_streams(path: str) -> None:
    """The job of the newest generation streams, and no word of an older one is taken for it."""
    with CdcSteps(path, owner="a person") as steps:
        found = steps.status()
    assert found.state.phase is Phase.STREAMING
    assert found.stream is not None
    assert found.stream.generation == found.state.generation
    assert found.stream.heartbeat_us


def wait_until_equal(shop: Shop) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not shop.is_equal():
        assert time.monotonic() < deadline, "the stream does not bring the change"
        time.sleep(0.5)


def change_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the source account's password, in its connection first, and end its sessions."""
    account = replace(shop.reads, password="another one")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_SOURCE", account.dsn)
    shop.source.execute(f"ALTER USER '{account.user}'@'%' IDENTIFIED BY '{account.password}'")
    asked = f"SELECT id FROM information_schema.processlist WHERE user = '{account.user}'"
    for (session,) in shop.source.execute(asked):
        with suppress(MySQLError):  # it may have ended by itself
            shop.source.execute(f"KILL {session}")


@pytest.mark.sample(1, of="long streams")
def test_a_killed_stream_is_started_again_and_a_paused_one_ends(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(shop.write_pipeline("continuous"))
    for operator in (CdcPlanOperator, CdcSnapshotOperator, CdcHandoffOperator):
        operator(task_id="step", pipeline=path).execute(context())

    streaming = context()
    for _ in range(2):  # the second time it is cleared while its first job streams
        CdcStreamOperator(task_id="stream", pipeline=path).execute(streaming)
        assert_streams(path)
    handle = JobHandle.from_payload(streaming["task_state_store"].get("job"))
    assert handle is not None
    assert handle.pid is not None  # it has outlived its task
    shop.change(1)
    wait_until_equal(shop)

    consistent = CdcStreamSensor(
        task_id="consistent", pipeline=path, goal="consistent", poke_interval=0.2
    )
    assert verdict_of(consistent) is Verdict.REACHED

    follow = CdcStreamSensor(task_id="follow", pipeline=path, poke_interval=0.2, stale_s=6.0)
    following = context()
    watching = deferral(lambda: follow.execute(following))
    os.killpg(handle.pid, signal.SIGKILL)
    lost = event_of(watching)
    assert lost["verdict"] == Verdict.LOST.value
    shop.change(2)

    again = deferral(lambda: follow.execute_complete(following, lost, **(watching.kwargs or {})))
    assert (again.kwargs or {})["wait"]["restarts"] == 1
    wait_until_equal(shop)

    with CdcSteps(path, owner="a person") as steps:
        assert "is paused" in pause(steps.run, wait_s=30)
        steps.run.store.want(steps.run.name, Wanted.RUN)  # before anybody has looked
    lost = event_of(again)
    assert "wanted again" in lost["detail"]
    again = deferral(lambda: follow.execute_complete(following, lost, **(again.kwargs or {})))
    assert_streams(path)

    change_password(shop, monkeypatch)
    refused = event_of(again)
    assert "CDC-CFG-006" in refused["detail"]
    again = deferral(lambda: follow.execute_complete(following, refused, **(again.kwargs or {})))
    shop.change(3)
    wait_until_equal(shop)

    with CdcSteps(path, owner="a person") as steps:
        assert "is paused" in pause(steps.run, wait_s=30)
    stopped = event_of(again)
    assert stopped["verdict"] == Verdict.STOPPED.value
    ended = follow.execute_complete(following, stopped, **(again.kwargs or {}))
    assert ended["phase"] == "stopped"
    assert shop.is_equal()
