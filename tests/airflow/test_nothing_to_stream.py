"""The stream's task where the sink already has all of the source's log: no job, as without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.operators.jobs import CdcStreamOperator
from airflow_cdc_provider.pipeline.run import give_back
from tests.pipeline.test_nothing_to_stream import NO_SPARK, handed_off, shop

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.run import Run
    from tests.pipeline.conftest import Shop

__all__ = ["shop"]


@pytest.fixture
def quiet(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Give a pipeline that is handed off, whose Spark answers nowhere."""
    for name, dsn in shop.environment.items():
        monkeypatch.setenv(name, dsn)
    monkeypatch.setenv("AIRFLOW__CDC__JOB_LOG_FOLDER", str(shop.path.parent / "logs"))
    with shop.path.open("a") as file:
        file.write(f"spark:\n  conf: {{spark.master: '{NO_SPARK}'}}\n")
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


def test_a_bounded_stream_task_with_a_change_to_bring_starts_its_job(
    quiet: Run, shop: Shop, context: Any
) -> None:
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    task = CdcStreamOperator(task_id="stream", pipeline=str(shop.path), mode="bounded")
    with pytest.raises(Exception, match=NO_SPARK.removeprefix("spark://")):
        task.execute(context)
