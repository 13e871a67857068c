"""The tasks where the sink has all of the source's log, or nearly: no job, as without Airflow."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.operators.health import CdcHealthOperator
from airflow_cdc_provider.operators.jobs import (
    KILL_PATIENCE_S,
    CdcSnapshotOperator,
    CdcStreamOperator,
)
from airflow_cdc_provider.operators.steps import (
    CdcFinishOperator,
    CdcHandoffOperator,
    CdcPlanOperator,
    CdcPreflightOperator,
)
from airflow_cdc_provider.operators.verify import CdcVerifyOperator
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.small_work import InProcessJob
from tests.airflow.idle_runs import without_spark
from tests.pipeline.test_nothing_to_stream import shop
from tests.pipeline.without_spark import NO_SPARK, handed_off

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.run import Run
    from tests.pipeline.conftest import Shop

__all__ = ["shop"]


@pytest.fixture
def quiet(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Give a pipeline that is handed off, whose Spark answers nowhere."""
    without_spark(shop, monkeypatch)
    run = handed_off(shop)
    give_back(run)
    return run


def test_a_bounded_stream_task_with_nothing_to_do_starts_no_job(
    quiet: Run, shop: Shop, context: Any
) -> None:
    task = CdcStreamOperator(task_id="stream", pipeline=str(shop.path), mode="bounded")
    returned = task.execute(context)
    assert (returned["phase"], returned["consistent"]) == (Phase.STOPPED.value, True)
    assert (returned["changes"], returned["lag_s"]) == (0, 0)
    assert context["task_state_store"].values.keys() <= {"progress"}
    assert not (shop.path.parent / "logs").exists()
    assert quiet.store.ensure(quiet.name).lease_until_us == 0


def test_a_bounded_stream_task_with_much_to_bring_starts_its_job(
    quiet: Run, shop: Shop, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_work, "SMALL_LOG_BYTES", 100)
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    task = CdcStreamOperator(task_id="stream", pipeline=str(shop.path), mode="bounded")
    with pytest.raises(Exception, match=NO_SPARK.removeprefix("spark://")):
        task.execute(context)


def test_a_bounded_stream_task_brings_a_few_changes_itself(
    quiet: Run, shop: Shop, context: Any
) -> None:
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    task = CdcStreamOperator(task_id="stream", pipeline=str(shop.path), mode="bounded")
    returned = task.execute(context)
    assert (returned["phase"], returned["consistent"]) == (Phase.STOPPED.value, True)
    assert (returned["changes"], returned["lag_s"]) == (1, 0)
    assert shop.sink_rows("SELECT note FROM orders WHERE id = 4") == [("four",)]
    assert context["task_state_store"].values.keys() <= {"progress"}
    assert not (shop.path.parent / "logs").exists()
    assert quiet.store.ensure(quiet.name).lease_until_us == 0


def test_a_stream_task_that_is_killed_ends_what_it_does_itself(
    quiet: Run, shop: Shop, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.at_source("UPDATE orders SET note = 'changed' WHERE id = 1")
    task = CdcStreamOperator(task_id="stream", pipeline=str(shop.path), mode="bounded")
    asked = list[float]()
    monkeypatch.setattr(InProcessJob, "stop", lambda _, patience_s: asked.append(patience_s))
    task.execute(context)
    task.on_kill()
    assert asked == [KILL_PATIENCE_S]


def test_a_snapshot_task_reads_a_small_table_itself(
    shop: Shop, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(shop, monkeypatch)
    with closing(shop.run()) as run:
        plan(run)
        give_back(run)
    returned = CdcSnapshotOperator(task_id="snapshot", pipeline=str(shop.path)).execute(context)
    assert (returned["ran"], returned["phase"]) == (True, Phase.SNAPSHOT.value)
    assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(3,)]


@pytest.mark.parametrize("shop", ["mysql"], indirect=True)
def test_a_pipeline_that_has_ended_is_done_by_its_preflight(
    shop: Shop, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.path.open("a") as file:
        file.write("stream: {stop: consistent}\n")
    without_spark(shop, monkeypatch)
    give_back(handed_off(shop))
    stream = CdcStreamOperator(task_id="stream", pipeline=str(shop.path))
    assert stream.execute(context)["consistent"]
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    monkeypatch.setenv("SHOP_DSN", "mysql://nobody@127.0.0.1:1/")
    preflight = CdcPreflightOperator(task_id="preflight", pipeline=str(shop.path))
    assert preflight.execute(context)["ended"]
    preflight.snapshot_tasks, preflight.stream_tasks = ("plan",), ("stream",)
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        preflight.execute(context)
    assert skipped.value.tasks == ["plan", "stream"]
    assert stream.execute(context)["phase"] == Phase.STOPPED.value
    finish = CdcFinishOperator(task_id="finish", pipeline=str(shop.path))
    finish.execute(context)
    health = CdcHealthOperator(
        task_id="health", pipeline=str(shop.path), max_lag_s=0, max_silence_s=0
    )
    health.execute(context)
    assert shop.sink_rows("SELECT COUNT(*) FROM orders WHERE id = 4") == [(0,)]


@pytest.mark.parametrize("shop", ["mysql"], indirect=True)
def test_a_pipeline_without_a_snapshot_reads_nothing_and_is_not_compared(
    shop: Shop, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.path.open("a") as file:
        file.write("stream: {start: latest, mode: bounded}\n")
    without_spark(shop, monkeypatch)
    path = str(shop.path)
    CdcPreflightOperator(task_id="preflight", pipeline=path).execute(context)
    assert CdcPlanOperator(task_id="plan", pipeline=path).execute(context)["handed_off"]
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    assert not CdcSnapshotOperator(task_id="snapshot", pipeline=path).execute(context)["ran"]
    CdcHandoffOperator(task_id="hand_off", pipeline=path).execute(context)
    returned = CdcStreamOperator(task_id="stream", pipeline=path).execute(context)
    assert (returned["changes"], returned["consistent"]) == (1, False)
    CdcFinishOperator(task_id="finish", pipeline=path).execute(context)
    assert shop.sink_rows("SELECT id FROM orders") == [(4,)]
    verify = CdcVerifyOperator(task_id="verify", pipeline=path)
    with pytest.raises(AirflowSkipException, match="began without rows"):
        verify.execute(context)
    # the next run has nothing to plan or to read
    preflight = CdcPreflightOperator(
        task_id="preflight", pipeline=path, snapshot_tasks=("plan",), stream_tasks=("stream",)
    )
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        preflight.execute(context)
    assert skipped.value.tasks == ["plan", "stream"]
