"""What `approve` and `verdict` of `<pipeline>__verify` advise, of what `compare` has found."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.operators.compare import CdcApproveRepairOperator, CdcVerdictOperator
from airflow_cdc_provider.operators.log_errors import CdcTaskFailure
from airflow_cdc_provider.operators.verify_dag import verify_dag
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, TableEstimate
from airflow_cdc_provider.pipeline.steps.repairing import Repair
from airflow_cdc_provider.views.reports import repair_line
from tests.airflow.conftest import TaskInstance

ORDERS, CUSTOMERS = "shop.orders", "shop.customers"
FORM = {"compared": 2, "missing": 1, "extra": 0, "different": 0, "equal": False}
RESUME = "`airflow cdc resume a.yaml --table shop.orders`"


class Told(TaskInstance):
    """A task that is given what others of its run have returned."""

    def xcom_pull(self, *, task_ids: str, key: str = "return_value") -> Any:
        return self.others.get((task_ids, key))


def context(found: dict[str, Any], **rejected: str) -> Any:
    others: dict[Any, Any] = {("compare", "return_value"): {**FORM, **found}}
    if rejected:
        others["approve", "rejected"] = rejected
    return {"ti": Told(others=others), "params": {}}


def told(found: dict[str, Any], caplog: pytest.LogCaptureFixture, **rejected: str) -> str:
    """Return what the verdict writes into its log."""
    with pytest.raises(CdcTaskFailure, match="source and sink differ in"):
        CdcVerdictOperator(task_id="verdict", pipeline="a.yaml").execute(context(found, **rejected))
    return caplog.text


def test_a_table_that_stands_still_is_not_to_be_repaired_but_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = told({"differing": [ORDERS], "stopped": [ORDERS]}, caplog)
    assert RESUME in text
    assert "repair: ask" not in text
    caplog.clear()
    text = told({"differing": [ORDERS, CUSTOMERS], "stopped": [ORDERS]}, caplog)
    assert RESUME in text
    assert "repair: ask" in text


def test_nobody_is_asked_about_tables_that_stand_still_and_is_told_why() -> None:
    approve = CdcApproveRepairOperator(task_id="approve", subject="?")
    found = {"differing": [ORDERS], "stopped": [ORDERS], "repairs": []}
    with pytest.raises(AirflowSkipException, match=r"resume FILE --table shop\.orders"):
        approve.execute(context(found))
    with pytest.raises(AirflowSkipException, match="there is nothing to repair"):
        approve.execute(context({"differing": [], "stopped": [CUSTOMERS], "equal": True}))


def test_a_rejected_repair_is_told_as_that_and_by_whom(caplog: pytest.LogCaptureFixture) -> None:
    text = told({"differing": [ORDERS]}, caplog, by="ann")
    assert "the repair was rejected by ann: nothing was read again" in text
    assert "if it is wanted after all, trigger the DAG with repair: ask" in text
    caplog.clear()
    text = told({"differing": [ORDERS]}, caplog, by="")
    assert "the repair was rejected because nobody answered in time" in text


@pytest.mark.parametrize(("mode", "flows"), [("continuous", True), ("bounded", False)])
def test_only_of_a_continuous_pipeline_it_is_said_that_the_stream_goes_on(
    pipeline_file: Any, mode: str, flows: bool
) -> None:
    approve: Any = verify_dag(pipeline_file(mode)).get_task("approve")
    assert ("stream goes on" in approve.body) is flows
    assert "read again:\n\n" in approve.body


@pytest.mark.parametrize(
    ("ranges", "verb"), [(1, "one range of its key"), (3, "3 ranges of its key")]
)
def test_one_range_is_read_again_and_several_are(ranges: int, verb: str) -> None:
    orders = TableId("shop", "orders")
    found = TableVerdict(orders, orders, 9, 9, 9, 8, 0, 0, 1, 0, (), truncated=False, seconds=0.1)
    keys = tuple(KeyRange((number,), (number + 1,)) for number in range(ranges))
    estimated = Estimate((TableEstimate(orders, 7, 7),))
    line = repair_line(Repair(found, Scope((orders,), keys), estimated))
    assert f"{verb} (about 7 rows) {'is' if ranges == 1 else 'are'} read again" in line
