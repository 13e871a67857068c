"""A task that Airflow ends before its job has begun leaves no job behind, and no lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.steps import CdcPlanOperator
from airflow_cdc_provider.state.store import open_store
from tests.airflow.asking import copied, task_context
from tests.airflow.shop import open_shop

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_cdc_provider.operators.jobs import CdcJobOperator
    from tests.servers.given import SqlServer


def ended_while_it_starts(
    task: CdcJobOperator, name: str, patch: pytest.MonkeyPatch
) -> tuple[Any, list[int]]:
    """Have a step of the task's started and the task ended in the same moment.

    Returns what was started, and how long a lease there was at the end of `on_kill`.
    """
    begin, started, leases = getattr(CdcSteps, name), [], []

    def begin_and_end(steps: CdcSteps, **options: Any) -> Any:
        started.append(begin(steps, **options))
        task.on_kill()
        leases.append(steps.run.store.ensure(steps.run.name).lease_until_us)
        return started[0]

    patch.setattr(CdcSteps, name, begin_and_end)
    with pytest.raises(AirflowException, match="was ended while its job was being started"):
        task.execute(task_context("step"))
    return started[0], leases


def test_a_snapshot_that_is_ended_while_it_starts_reads_nothing_and_gives_the_lease_back(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_shop(mysql_server, mysql_sink, tmp_path, "ended_early") as shop:
        path = shop.write_pipeline()
        path.write_text(path.read_text().replace("always: true", "always: false"))
        CdcPlanOperator(task_id="plan", pipeline=str(path)).execute(task_context("plan"))
        task = CdcSnapshotOperator(task_id="step", pipeline=str(path))
        job, _ = ended_while_it_starts(task, "start_snapshot", monkeypatch)
        store = open_store(f"sqlite:///{tmp_path}/state.db")
        # not at the end of `on_kill`: the job's thread may just begin, and renew the lease
        assert store.ensure(PipelineName(shop.name)).lease_until_us == 0
        job.wait()  # it ends, and does not go on
        assert store.ensure(PipelineName(shop.name)).lease_until_us == 0
        store.close()


@pytest.mark.spark
def test_a_stream_that_is_ended_while_it_starts_is_no_orphan(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with copied(mysql_server, mysql_sink, tmp_path, "ended_stream", mode="continuous") as shop:
        task = CdcStreamOperator(task_id="step", pipeline=str(shop.path))
        job, leases = ended_while_it_starts(task, "start_stream", monkeypatch)
        assert not job.is_running
        assert leases == [0]
