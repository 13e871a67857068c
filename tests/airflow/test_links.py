"""Links of tasks: there while a task runs, and only where they lead somewhere."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.records import PipelineEvent
from airflow_cdc_provider.core.spark_place import SparkPlace
from airflow_cdc_provider.hooks.job_log import log_shown_on_failure
from airflow_cdc_provider.links.spark import CdcSparkLink
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator
from airflow_cdc_provider.operators.requests import CdcResyncOperator

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNING = SparkPlace("app-20260101-0001", 7, "http://driver:4040")


def events(*texts: str) -> list[PipelineEvent]:
    return [PipelineEvent(1, "info", text) for text in texts]


@pytest.mark.parametrize("place", [RUNNING, SparkPlace("local-1764", 7)])
def test_what_a_driver_tells_is_read_by_the_task(place: SparkPlace) -> None:
    told = events("stream job started", str(place), str(SparkPlace("app-0", 6, "http://old:1")))
    assert SparkPlace.find(told, 7) == place


def test_a_job_of_another_generation_is_not_linked() -> None:
    assert SparkPlace.find(events(str(RUNNING)), 8) is None


def address(place: SparkPlace | None) -> str:
    operator: Any = SimpleNamespace(spark_place=place)
    key: Any = None
    return CdcSparkLink().get_link(operator, ti_key=key)


def test_the_link_leads_to_the_ui_or_to_the_history_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address(None) == ""
    assert address(RUNNING) == "http://driver:4040"
    monkeypatch.setenv("AIRFLOW__CDC__SPARK_HISTORY_URL", "http://history:18080/")
    assert address(RUNNING) == "http://history:18080/history/app-20260101-0001/"


def test_links_are_there_before_the_task_has_ended(
    pipeline_file: Callable[..., Path], context: Any
) -> None:
    task = CdcResyncOperator(task_id="resync", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowException):  # there is no server
        task.execute(context)
    assert context["ti"].xcoms["_link_CdcProgressLink"].endswith("/task-state-store")
    assert "/cdc/page" in context["ti"].xcoms["_link_CdcPageLink"]
    assert context["ti"].xcoms["_link_CdcSparkLink"] == ""


def test_the_link_to_spark_is_stored_as_soon_as_it_is_known(context: Any) -> None:
    task = CdcSnapshotOperator(task_id="snapshot", pipeline="shop.yaml")
    status: Any = SimpleNamespace(events=events(str(RUNNING)))
    task.show_spark(context, status, 8)
    assert context["ti"].xcoms == {}
    task.show_spark(context, status, 7)
    assert context["ti"].xcoms["_link_CdcSparkLink"] == "http://driver:4040"


def test_a_failed_jobs_log_ends_in_the_tasks_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    with pytest.raises(RefusedError), log_shown_on_failure(path, logging.getLogger("task")):
        raise RefusedError("no")
    shown = caplog.text
    assert "line 99" in shown
    assert "line 80" in shown
    assert "line 79" not in shown
    assert str(path) in shown


def test_a_job_that_ends_well_shows_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "job.log"
    path.write_text("line\n")
    with log_shown_on_failure(path, logging.getLogger("task")):
        pass
    assert not caplog.text
