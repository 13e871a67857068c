"""Operators without a server: pausing, errors by remedy, and what they say of themselves."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_cdc_provider.core import errors
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.hooks.steps import find_spark_master
from airflow_cdc_provider.links.progress import progress_url
from airflow_cdc_provider.operators.base import airflow_errors
from airflow_cdc_provider.operators.control import CdcControlOperator
from airflow_cdc_provider.operators.health import CdcHealthOperator
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.requests import CdcRequestOperator, CdcResyncOperator
from airflow_cdc_provider.operators.resync_steps import (
    CdcApprovalOperator,
    CdcEstimateOperator,
    CdcResyncCheckOperator,
)
from airflow_cdc_provider.operators.steps import (
    CdcFinishOperator,
    CdcHandoffOperator,
    CdcPlanOperator,
    CdcPreflightOperator,
)
from airflow_cdc_provider.operators.verify import CdcVerifyOperator
from airflow_cdc_provider.sensors.changes import CdcChangesSensor
from airflow_cdc_provider.sensors.requests import CdcRequestSensor
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from tests.airflow.conftest import SECRET, SHOP, streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow.sdk import BaseOperator

    from airflow_cdc_provider.state.store import SqlStateStore

WORKING: list[type[BaseOperator]] = [
    CdcPreflightOperator,
    CdcPlanOperator,
    CdcSnapshotOperator,
    CdcHandoffOperator,
    CdcStreamOperator,
]
ALL: list[type[BaseOperator]] = [
    *WORKING,
    CdcFinishOperator,
    CdcHealthOperator,
    CdcVerifyOperator,
    CdcStreamSensor,
    CdcChangesSensor,
]


@pytest.mark.parametrize("operator", WORKING)
def test_a_paused_pipeline_skips_its_tasks(
    operator: Callable[..., BaseOperator],
    store: SqlStateStore,
    pipeline_file: Callable[..., Path],
    context: Any,
) -> None:
    store.want(SHOP, Wanted.STOP)
    task = operator(task_id="step", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowSkipException, match="paused"):
        task.execute(context)


def failed(store: SqlStateStore, error: str) -> int:
    """End the pipeline's stream with an error; returns the generation."""
    generation = streaming(store)
    store.move(
        SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=StoredError(error)
    )
    return generation


@pytest.mark.parametrize("operator", [*WORKING, CdcFinishOperator, CdcVerifyOperator])
def test_a_pipeline_whose_stream_ended_for_good_is_refused_before_any_server_is_asked(
    operator: Callable[..., BaseOperator],
    store: SqlStateStore,
    pipeline_file: Callable[..., Path],
    context: Any,
) -> None:
    way_on = "reset --table shop.orders"
    generation = failed(store, f"CDC-INT-008 ALTER TABLE changed it; what to do: {way_on}")
    task = operator(task_id="step", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowFailException, match=rf"(?s)CDC-INT-008 ALTER TABLE.*{way_on}"):
        task.execute(context)
    assert (store.ensure(SHOP).phase, store.ensure(SHOP).generation) == (Phase.FAILED, generation)


@pytest.mark.parametrize("error", ["CDC-CFG-006 no grant", "CDC-SRC-001 away", "CDC-LOG-003 other"])
def test_what_a_person_may_have_mended_is_tried_again(
    error: str, store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    failed(store, error)
    task = CdcPlanOperator(task_id="plan", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowException, match=r"CDC-SRC-001 .*refused"):  # no server is there
        task.execute(context)


def test_no_asset_is_told_of_while_the_stream_has_failed(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    failed(store, "CDC-SNK-003 the sink refused a row")
    task = CdcFinishOperator(task_id="finish", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowException, match="the sink refused a row") as raised:
        task.execute(context)
    assert not isinstance(raised.value, AirflowFailException)  # the stream may come back


@pytest.mark.parametrize(
    "error",
    [
        errors.SourceUnreachableError,
        errors.LeaseHeldError,
        errors.FencedError,
        errors.StateMovedError,
    ],
)
def test_an_error_that_trying_again_may_mend_is_retried(error: type[errors.CdcError]) -> None:
    with pytest.raises(AirflowException, match=error.code) as raised, airflow_errors():
        raise error("what", remedy="wait")
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize(
    "error",
    [
        errors.PreflightError,
        errors.PipelineFileError,
        errors.LogPurgedError,
        errors.UnknownEventError,
        errors.RowRefusedError,
    ],
)
def test_an_error_that_needs_a_person_is_not_retried(error: type[errors.CdcError]) -> None:
    with pytest.raises(AirflowFailException, match="what to do: mend it"), airflow_errors():
        raise error("what", remedy="mend it")


def test_an_unreachable_source_is_worth_a_retry_and_shows_no_password(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    task = CdcPreflightOperator(task_id="preflight", pipeline=str(pipeline_file()))
    with pytest.raises(AirflowException) as raised:
        task.execute(context)
    assert not isinstance(raised.value, AirflowFailException)
    chain: BaseException | None = raised.value
    while chain is not None:
        assert SECRET not in repr(chain)
        chain = chain.__cause__ or chain.__context__


def test_a_connection_that_does_not_exist_is_named_with_its_line(
    pipeline_file: Callable[..., Path], context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = CdcPlanOperator(task_id="plan", pipeline=str(pipeline_file()))
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_SINK")
    with pytest.raises(AirflowFailException, match=r"(?s)line 4.*shop_sink"):
        task.execute(context)


@pytest.mark.parametrize("word", ["False", "false", "no", "0", "", "never"])
def test_verify_is_skipped_when_it_is_not_wanted(word: str, context: Any) -> None:
    task = CdcVerifyOperator(task_id="verify", pipeline="not read", enabled=word)
    with pytest.raises(AirflowSkipException):
        task.execute(context)


def test_verify_refuses_a_word_that_does_not_say_when(
    pipeline_file: Callable[..., Path], context: Any
) -> None:
    path = str(pipeline_file())
    task = CdcVerifyOperator(task_id="verify", pipeline=path, enabled="sometimes")
    with pytest.raises(
        AirflowFailException, match="write by_file, after_snapshot, always or never"
    ):
        task.execute(context)


def test_verify_does_as_the_file_says_unless_the_run_says_otherwise(
    pipeline_file: Callable[..., Path], context: Any
) -> None:
    path = pipeline_file()
    path.write_text(path.read_text() + "verify: never\n")
    task = CdcVerifyOperator(task_id="verify", pipeline=str(path), enabled="by_file")
    with pytest.raises(AirflowSkipException, match="verify: never"):
        task.execute(context)
    task = CdcVerifyOperator(task_id="verify", pipeline=str(path), enabled="always")
    with pytest.raises(AirflowException, match="no plan"):
        task.execute(context)


ASKING: list[type[BaseOperator]] = [
    CdcRequestOperator,
    CdcResyncOperator,
    CdcResyncCheckOperator,
    CdcEstimateOperator,
    CdcApprovalOperator,
    CdcControlOperator,
    CdcRequestSensor,
]


@pytest.mark.parametrize("operator", [*ALL, *ASKING])
def test_every_argument_is_by_name_and_documented(operator: type[BaseOperator]) -> None:
    documented = operator.__doc__ or ""
    own = inspect.signature(operator.__init__).parameters
    for name, parameter in own.items():
        if name in {"self", "kwargs", "args"} or name not in operator.__init__.__annotations__:
            continue
        if name in {"poke_interval", "timeout"}:
            continue  # the base's own
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert f":param {name}:" in documented


GIVEN: dict[Any, dict[str, Any]] = {
    CdcEstimateOperator: {"choice": {}},
    CdcControlOperator: {"action": "pause"},
    CdcRequestSensor: {"request_id": "x"},
}


@pytest.mark.parametrize("operator", [*ALL, *ASKING])
def test_every_templated_field_is_an_attribute(operator: Callable[..., BaseOperator]) -> None:
    is_ours = operator is not CdcApprovalOperator
    given = {"pipeline": "shop.yaml"} if is_ours else {"subject": "it", "estimate": {}}
    task = operator(task_id="step", **given, **GIVEN.get(operator, {}))
    for field in task.template_fields:
        assert hasattr(task, field)


def test_making_an_operator_reads_no_file() -> None:
    CdcSnapshotOperator(task_id="snapshot", pipeline="/no/such/file.yaml")


def test_the_link_leads_to_the_tab_where_progress_is_kept() -> None:
    url = progress_url("shop__sync", "manual__2026-01-01T00:00:00+00:00", "snapshot")
    assert url.endswith(
        "/dags/shop__sync/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
        "/tasks/snapshot/task-state-store"
    )


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ("spark://spark-master:7077", "spark://spark-master:7077"),
        ('{"conn_type": "spark", "host": "spark://m", "port": 7077}', "spark://m:7077"),
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]"),
        ('{"conn_type": "spark", "host": "yarn"}', "yarn"),
        ('{"conn_type": "spark", "host": "k8s://https://k", "port": 443}', "k8s://https://k:443"),
    ],
)
def test_a_spark_connection_names_the_master(
    connection: str, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", connection)
    assert find_spark_master("spark_test") == master


def test_a_connection_without_a_master_is_refused_and_no_other_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", "http://somewhere")
    with pytest.raises(errors.RefusedError, match="no Spark master"):
        find_spark_master("spark_test")


def test_killing_a_task_without_a_job_is_no_error() -> None:
    CdcSnapshotOperator(task_id="snapshot", pipeline="x").on_kill()


def test_killing_a_task_ends_its_job_within_airflows_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[tuple[int, float]] = []
    monkeypatch.setattr(
        "airflow_cdc_provider.operators.jobs.stop_group",
        lambda pid, *, patience_s: ended.append((pid, patience_s)),
    )
    task = CdcSnapshotOperator(task_id="snapshot", pipeline="x")
    task._job = SimpleNamespace(pid=123)  # type: ignore[assignment]
    task.on_kill()
    assert ended == [(123, 3.0)]
    assert ended[0][1] < 5
