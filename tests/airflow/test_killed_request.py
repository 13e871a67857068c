"""A task that is killed with SIGKILL while it reads rows again: the next try goes on with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.operators.requests import CdcResyncOperator
from tests.airflow.asking import Copied, copied, task_context
from tests.airflow.killed_tasks import FileState

if TYPE_CHECKING:
    from tests.servers.given import SqlServer

TASK = """
import json, sys
from airflow_cdc_provider.operators.requests import CdcResyncOperator
from tests.airflow.asking import task_context
from tests.airflow.killed_tasks import FileState
state, pipeline, table = sys.argv[1:]
context = {**task_context(), "task_state_store": FileState(state)}
CdcResyncOperator(task_id="resync", pipeline=pipeline, tables=[table]).execute(context)
"""


def test_a_try_after_a_kill_in_the_middle_asks_nothing_anew_and_waits_for_no_lease(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path
) -> None:
    with copied(mysql_server, mysql_sink, tmp_path, "killed_request") as shop:
        shop.drift()
        kept = FileState(tmp_path / "task.json")
        with closing(mysql_sink.connect(database=shop.shop.sink_database)) as connection:
            connection.begin()
            connection.cursor().execute("SELECT * FROM orders WHERE id = 2000 FOR UPDATE")
            kill_while_it_reads(shop, kept)
        with shop.opened() as run:
            (asked,) = run.store.requests(run.name)
            assert asked.status is RequestStatus.READING
            assert run.store.ensure(run.name).lease_until_us > run.store.now_us()
        context: Any = {**task_context(), "task_state_store": kept}
        task = CdcResyncOperator(task_id="resync", pipeline=str(shop.path), tables=[shop.table])
        done = task.execute(context)  # or it would be deferred until the lease has run out
        assert (done["request"], done["status"]) == (asked.request_id, "done")
        assert shop.is_equal
        with shop.opened() as run:
            assert len(run.store.requests(run.name)) == 1


def kill_while_it_reads(shop: Copied, kept: FileState) -> None:
    root = Path(__file__).parents[2]
    task = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TASK, kept.path, shop.path, shop.table],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        deadline = time.monotonic() + 120
        while not is_reading(shop, kept):
            assert task.poll() is None, "the task has ended before it read anything"
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        task.kill()
        task.wait()


def is_reading(shop: Copied, kept: FileState) -> bool:
    if not kept.path.exists() or "request" not in json.loads(kept.path.read_text()):
        return False
    with shop.opened() as run:
        found = run.store.request(run.name, kept.get("request")["id"])
        return found is not None and found.status is RequestStatus.READING
