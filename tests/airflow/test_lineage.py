"""What operators and sensors tell OpenLineage, in its own classes, by what the state store has."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.utils.utils import TaskInfoComplete
from airflow.utils.state import TaskInstanceState  # noqa: TID251 - the listener's own
from openlineage.client.serde import Serde

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.core.verify_report import (
    Difference,
    DifferenceKind,
    TableVerdict,
    VerifyReport,
)
from airflow_cdc_provider.hooks import lineage as lineage_module
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.backfill import CdcBackfillOperator
from airflow_cdc_provider.operators.compare import CdcCompareOperator, CdcRepairOperator
from airflow_cdc_provider.operators.health import CdcHealthOperator
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.requests import CdcResyncOperator, _Asked
from airflow_cdc_provider.operators.steps import (
    CdcFinishOperator,
    CdcHandoffOperator,
    CdcPlanOperator,
    CdcPreflightOperator,
)
from airflow_cdc_provider.operators.verify import CdcVerifyOperator
from airflow_cdc_provider.pipeline.steps.table_announcements import TableAnnouncement
from airflow_cdc_provider.sensors.changes import CdcChangesSensor
from airflow_cdc_provider.sensors.requests import CdcRequestSensor
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.views.lineage import MOST_BYTES
from tests.airflow.conftest import SHOP
from tests.behaviours.state_behaviours import ORDERS, at, plan_of, report_of, splits_of
from tests.views.lineage import wide

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow.sdk import BaseOperator

    from airflow_cdc_provider.state.store import SqlStateStore

CUSTOMERS = TableId("shop", "customers")
SERVER = "mysql://127.0.0.1:9"
PASSWORD = "s3cret/pa:ss@word"
START, DONE, FAILED = (
    TaskInstanceState.RUNNING,
    TaskInstanceState.SUCCESS,
    TaskInstanceState.FAILED,
)


@pytest.fixture
def path(pipeline_file: Callable[..., Path], store: SqlStateStore) -> str:
    """A pipeline of two tables that are read: the one in two splits, the other is not yet."""
    generation = store.take_over(SHOP, "somebody").generation
    store.start_plan(SHOP, generation, "plan", [plan_of(), plan_of(CUSTOMERS)])
    splits = splits_of(2)
    store.add_splits(SHOP, generation, splits)
    for split in splits:
        store.mark_split(
            SHOP, generation, split, SplitStatus.FINISHED, report=report_of(split, rows=10)
        )
    store.beat(SHOP, generation, StreamState(at(500), inconsistent=(CUSTOMERS,)))
    return str(pipeline_file())


def opened(task: Any) -> Any:
    """Do with a task what opening its pipeline does."""
    with CdcSteps(task.pipeline, owner="the task") as steps:
        task.see(steps)
    return task


def told(task: BaseOperator, state: TaskInstanceState = DONE) -> dict[str, Any]:
    """Ask a task as the provider's listener does; the answer as it is sent."""
    instance = SimpleNamespace(task=task)
    run = SimpleNamespace(run_id="manual__1")
    manager: Any = ExtractorManager  # it is not typed
    found = manager().extract_metadata(run, task, state, instance)
    form = json.loads(Serde.to_json(found))
    assert PASSWORD not in json.dumps(form)
    return dict(form)


def facet(dataset: dict[str, Any], name: str) -> Any:
    """Return what a facet says, without what every facet has."""
    facets = dataset["facets"] | dataset.get("inputFacets", {}) | dataset.get("outputFacets", {})
    if name not in facets:
        return None
    return {key: value for key, value in facets[name].items() if not key.startswith("_")}


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [f"{each['namespace']} {each['name']}" for each in datasets]


def test_a_stream_task_tells_tables_columns_and_where_they_are_equal(path: str) -> None:
    form = told(opened(CdcStreamOperator(task_id="stream", pipeline=path)))
    assert names(form["inputs"]) == [f"{SERVER} shop.customers", f"{SERVER} shop.orders"]
    assert names(form["outputs"]) == [f"{SERVER} dr_shop.customers", f"{SERVER} dr_shop.orders"]
    orders = form["outputs"][1]
    assert facet(orders, "dataSource") == {"name": SERVER, "uri": SERVER}
    assert [(each["name"], each["type"]) for each in facet(orders, "schema")["fields"]] == [
        ("id", "bigint unsigned"),
        ("state", "enum('new','it''s paid')"),
    ]
    (origin,) = facet(orders, "columnLineage")["fields"]["state"]["inputFields"]
    assert origin == {
        "namespace": SERVER,
        "name": "shop.orders",
        "field": "state",
        "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}],
    }
    for dataset in (orders, form["inputs"][1]):
        assert facet(dataset, "version") == {"datasetVersion": str(at(500))}
    for dataset in (form["outputs"][0], form["inputs"][0]):
        assert facet(dataset, "version") is None
    assert facet(orders, "outputStatistics") is None
    assert facet(form["inputs"][1], "columnLineage") is None


def test_a_snapshot_tells_the_rows_it_wrote_and_which_tables_it_replaced(path: str) -> None:
    task = opened(CdcSnapshotOperator(task_id="snapshot", pipeline=path))
    task._job = SimpleNamespace()
    customers, orders = told(task)["outputs"]
    assert facet(orders, "outputStatistics") == {"rowCount": 20, "size": 1000}
    assert facet(orders, "lifecycleStateChange") == {"lifecycleStateChange": "OVERWRITE"}
    assert facet(customers, "outputStatistics") == {"rowCount": 0, "size": 0}
    assert facet(customers, "lifecycleStateChange") is None


def test_a_snapshot_that_had_nothing_to_read_tells_the_tables_alone(path: str) -> None:
    _, orders = told(opened(CdcSnapshotOperator(task_id="snapshot", pipeline=path)))["outputs"]
    assert facet(orders, "outputStatistics") is None
    assert facet(orders, "lifecycleStateChange") is None


@pytest.mark.parametrize("state", [START, DONE, FAILED])
@pytest.mark.parametrize(
    "operator",
    [
        CdcSnapshotOperator,
        CdcStreamOperator,
        CdcFinishOperator,
        CdcStreamSensor,
        CdcChangesSensor,
        CdcResyncOperator,
    ],
)
def test_a_task_that_has_not_opened_its_pipeline_finds_it_itself(
    operator: Callable[..., BaseOperator], state: TaskInstanceState, path: str
) -> None:
    form = told(operator(task_id="step", pipeline=path), state)
    assert len(form["inputs"]) == len(form["outputs"]) == 2


@pytest.mark.parametrize(
    "operator",
    [CdcPreflightOperator, CdcPlanOperator, CdcHandoffOperator, CdcHealthOperator],
)
def test_what_moves_no_rows_tells_of_no_table(
    operator: Callable[..., BaseOperator], path: str
) -> None:
    form = told(opened(operator(task_id="step", pipeline=path)))
    assert (form["inputs"], form["outputs"]) == ([], [])


@pytest.mark.parametrize("operator", [CdcFinishOperator, CdcChangesSensor])
def test_who_sends_asset_events_tells_how_much_was_changed_and_up_to_where(
    operator: Callable[..., Any], path: str
) -> None:
    task = opened(operator(task_id="step", pipeline=path))
    task._news = (TableAnnouncement(ORDERS, TableId("dr_shop", "orders"), at(700), 12, 5),)
    outputs = {each["name"]: each for each in told(task)["outputs"]}
    assert facet(outputs["dr_shop.orders"], "outputStatistics") == {"rowCount": 7}
    assert facet(outputs["dr_shop.orders"], "version") == {"datasetVersion": str(at(700))}
    assert facet(outputs["dr_shop.customers"], "outputStatistics") == {"rowCount": 0}


def test_a_table_that_is_consistent_for_the_first_time_has_no_count(path: str) -> None:
    task: Any = opened(CdcFinishOperator(task_id="finish", pipeline=path))
    task._news = (TableAnnouncement(ORDERS, TableId("dr_shop", "orders"), at(700), 12, None),)
    outputs = {each["name"]: each for each in told(task)["outputs"]}
    assert facet(outputs["dr_shop.orders"], "outputStatistics") is None


def request(*tables: TableId, kind: RequestKind = RequestKind.RESYNC) -> Request:
    return Request(
        SHOP, "resync-1", kind, Scope(tables), "ann", 0, RequestStatus.DONE, rows=9, position=at(1)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda path: CdcResyncOperator(task_id="t", pipeline=path, tables=["shop.orders"]),
        lambda path: CdcResyncOperator(
            task_id="t", pipeline=path, choice={"tables": ["shop.orders"]}
        ),
        lambda path: CdcBackfillOperator(task_id="t", pipeline=path, table="shop.orders"),
        lambda path: CdcRepairOperator(
            task_id="t",
            pipeline=path,
            repair={"scope": {"tables": [["shop", "orders"]], "from": None, "to": None}},
        ),
    ],
)
def test_a_request_tells_of_its_tables_and_of_the_rows_that_were_read(
    make: Callable[[str], Any], path: str
) -> None:
    task = make(path)
    assert names(told(task, START)["outputs"]) == [f"{SERVER} dr_shop.orders"]
    task = opened(task)
    task._request = request(ORDERS)
    (orders,) = told(task)["outputs"]
    assert facet(orders, "outputStatistics") == {"rowCount": 9}
    assert facet(orders, "version") == {"datasetVersion": str(at(500))}


def test_rows_of_several_tables_are_counted_together_and_told_of_none(path: str) -> None:
    task: Any = opened(CdcResyncOperator(task_id="resync", pipeline=path))
    task._request = request(ORDERS, CUSTOMERS)
    assert {facet(each, "outputStatistics") for each in told(task)["outputs"]} == {None}


def test_an_estimate_reads_no_rows(path: str) -> None:
    task = CdcResyncOperator(task_id="resync", pipeline=path, only_estimate="yes")
    assert told(opened(task))["outputs"] == []


def test_a_sensor_tells_of_the_request_it_waited_for(path: str) -> None:
    task: Any = opened(CdcRequestSensor(task_id="wait", pipeline=path, request_id="resync-1"))
    assert told(task, START)["outputs"] == []
    task._request = request(ORDERS)
    assert names(told(task)["outputs"]) == [f"{SERVER} dr_shop.orders"]
    task._request = request(ORDERS, kind=RequestKind.PAUSE)
    assert told(task)["outputs"] == []


def verdict(*, missing: int = 0) -> TableVerdict:
    return TableVerdict(
        ORDERS,
        TableId("dr_shop", "orders"),
        rows_source=100,
        rows_sink=99,
        bytes=1,
        equal_rows=99,
        unsettled=0,
        samples=(Difference(DifferenceKind.MISSING, "a key of a row"),),
        truncated=False,
        seconds=1.0,
        missing=missing,
        extra=0,
        different=0,
    )


@pytest.mark.parametrize("state", [DONE, FAILED])
@pytest.mark.parametrize("operator", [CdcVerifyOperator, CdcCompareOperator])
def test_a_comparison_reads_both_sides_and_tells_whether_they_are_equal(
    operator: Callable[..., Any], state: TaskInstanceState, path: str
) -> None:
    task = opened(operator(task_id="verify", pipeline=path))
    for found, is_equal in ((verdict(), True), (verdict(missing=1), False)):
        task._report = VerifyReport((found,), 1.0)
        form = told(task, state)
        assert form["outputs"] == []
        assert names(form["inputs"]) == [f"{SERVER} shop.orders", f"{SERVER} dr_shop.orders"]
        source, sink = form["inputs"]
        assert facet(source, "inputStatistics") == {"rowCount": 100}
        assert facet(sink, "inputStatistics") == {"rowCount": 99}
        (assertion,) = facet(sink, "dataQualityAssertions")["assertions"]
        assert (assertion["assertion"], assertion["success"]) == ("equals_source", is_equal)
        assert "a key of a row" not in json.dumps(form)


def test_tables_that_share_one_of_the_sink_are_one_dataset_there(
    pipeline_file: Callable[..., Path], store: SqlStateStore
) -> None:
    generation = store.take_over(SHOP, "somebody").generation
    orders, customers = plan_of(), plan_of(CUSTOMERS)
    more = Column("more", mysql_type("int"))
    target = replace(orders.target, columns=(*customers.target.columns, more))
    schema = replace(customers.schema, columns=(*customers.schema.columns, more))
    shared = replace(customers, schema=schema, target=target)
    store.start_plan(SHOP, generation, "plan", [orders, shared])
    store.beat(SHOP, generation, StreamState(at(500)))
    task: Any = opened(CdcVerifyOperator(task_id="verify", pipeline=str(pipeline_file())))
    other = replace(verdict(missing=1), table=CUSTOMERS)
    task._report = VerifyReport((verdict(), other), 1.0)
    form = told(task)
    here, there = [f"{SERVER} shop.customers", f"{SERVER} shop.orders"], f"{SERVER} dr_shop.orders"
    assert names(form["inputs"]) == [*here, there]
    sink = form["inputs"][-1]
    assert facet(sink, "inputStatistics") == {"rowCount": 198}
    said = facet(sink, "dataQualityAssertions")["assertions"]
    assert {(each["description"].rpartition(": ")[2], each["success"]) for each in said} == {
        ("shop.orders", True),
        ("shop.customers", False),
    }
    form = told(opened(CdcStreamOperator(task_id="stream", pipeline=task.pipeline)))
    assert names(form["outputs"]) == [there]
    (output,) = form["outputs"]
    assert [each["name"] for each in facet(output, "schema")["fields"]] == ["id", "state", "more"]
    linked = facet(output, "columnLineage")["fields"]
    assert {each["name"] for each in linked["id"]["inputFields"]} == {
        "shop.orders",
        "shop.customers",
    }
    assert [each["name"] for each in linked["more"]["inputFields"]] == ["shop.customers"]


def test_a_comparison_that_is_switched_off_tells_nothing(path: str) -> None:
    task = CdcVerifyOperator(task_id="verify", pipeline=path, enabled="no")
    assert told(opened(task))["inputs"] == []


def test_before_a_plan_there_is_nothing_to_tell(
    pipeline_file: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    task = CdcSnapshotOperator(task_id="snapshot", pipeline=str(pipeline_file()))
    assert told(task, START)["outputs"] == []
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_pipeline_that_is_refused_is_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    task = CdcSnapshotOperator(task_id="snapshot", pipeline="/nowhere.yaml", refused="it clashes")
    assert told(task, START)["outputs"] == []
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_what_cannot_be_told_is_one_warning_without_a_secret(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_STATE", f"postgresql://cdc:{PASSWORD.split('/')[0]}@[")
    task = CdcStreamOperator(task_id="stream", pipeline=path)
    assert told(task, START)["outputs"] == []
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    said = line.getMessage()
    assert "OpenLineage is not told of this task's tables, and the task goes on" in said
    assert "s3cret" not in said


def test_a_store_that_does_not_answer_is_not_waited_for(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = opened(CdcStreamOperator(task_id="stream", pipeline=path))
    monkeypatch.setattr(lineage_module, "PATIENCE_S", 0.2)
    held = "airflow_cdc_provider.state.read_only_store.store_exists"

    def slow(_dsn: str) -> bool:
        time.sleep(2.0)
        return False

    monkeypatch.setattr(held, slow)
    began = time.monotonic()
    assert told(task)["outputs"] == []
    assert time.monotonic() - began < 1.5
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "did not answer within" in line.getMessage()


def test_an_event_of_two_thousand_wide_tables_stays_below_a_mebibyte(
    path: str, store: SqlStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state = store.ensure(SHOP)
    plans = [each.plan for each in wide(2000, 30, name="spalte_ä")]
    store.start_plan(SHOP, state.generation, "another", plans)
    task: Any = opened(CdcFinishOperator(task_id="finish", pipeline=path))
    task._news = tuple(
        TableAnnouncement(each.schema.table, each.sink_table, at(900), 5, 2) for each in plans[:50]
    )
    form = told(task)
    assert MOST_BYTES // 2 < len(json.dumps(form)) < MOST_BYTES
    assert len(form["inputs"]) == len(form["outputs"]) == 2000
    assert facet(form["outputs"][0], "outputStatistics") == {"rowCount": 3}
    cut = form["run_facets"]["extractionError"]
    assert cut["totalTasks"] == 2000
    assert cut["failedTasks"] > 1500
    assert "are told by their names only" in cut["errors"][0]["errorMessage"]
    assert "are told by their names only" in caplog.text


def test_the_whole_of_a_task_as_openlineage_may_be_told_to_send_it_has_no_password(
    path: str, state_dsn: str
) -> None:
    task: Any = opened(CdcResyncOperator(task_id="resync", pipeline=path))
    task._asked = _Asked(state_dsn, SHOP, "resync-1")
    form = Serde.to_json({"task": dict(TaskInfoComplete(task))})
    assert PASSWORD not in form
    assert "s3cret" not in form
    assert state_dsn not in form
