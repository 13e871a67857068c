"""A task whose process is killed leaves its Spark job behind; the next try ends it and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.hooks.job_handle import JobHandle
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.steps import CdcHandoffOperator, CdcPlanOperator
from tests.airflow.killed_tasks import FileState
from tests.airflow.shop import Shop, open_shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.given import SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
TASK = """
import sys
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator
from tests.airflow.killed_tasks import FileState
state, pipeline = sys.argv[1:]
context = {"task_state_store": FileState(state)}
CdcSnapshotOperator(task_id="step", pipeline=pipeline).execute(context)
"""


@pytest.fixture
def shop(mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path) -> Iterator[Shop]:
    with open_shop(mysql_server, mysql_sink, tmp_path, "killed_task") as shop:
        yield shop


def wait_for_planning(path: str, task: subprocess.Popen[bytes]) -> None:
    with CdcSteps(path, owner="a watcher") as steps:
        deadline = time.monotonic() + 300
        while not steps.status().splits_planned:
            assert task.poll() is None, "the task has ended before it planned a split"
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_killed_task_s_job_is_ended_by_the_next_try_which_goes_on(shop: Shop) -> None:
    path, kept = str(shop.write_pipeline()), FileState(shop.folder / "task.json")
    context: Any = {"task_state_store": kept}
    planned = CdcPlanOperator(task_id="step", pipeline=path).execute(context)
    root = Path(__file__).parents[2]
    task = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TASK, kept.path, path],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        wait_for_planning(path, task)
    finally:
        task.kill()
        task.wait()
    left = JobHandle.from_payload(kept.get("job"))
    assert left is not None
    assert left.pid is not None  # killing the task has not ended its job

    read = CdcSnapshotOperator(task_id="step", pipeline=path).execute(context)
    assert left.pid is None
    assert read["generation"] > planned["generation"]
    CdcHandoffOperator(task_id="step", pipeline=path).execute(context)
    shop.change(1)
    CdcStreamOperator(task_id="step", pipeline=path, mode="bounded").execute(context)
    assert shop.is_equal()
