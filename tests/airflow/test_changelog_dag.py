"""`<pipeline>__sync` with a change log as its sink, in a real Airflow."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.systems.changelog.reading import sealed_files
from tests.airflow.shop import ROWS, known_dag, open_shop

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import DAG

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
]


def states(dag: DAG, day: int) -> dict[str, str]:
    run = dag.test(logical_date=datetime(2026, 2, day, tzinfo=UTC))
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def events(log: Path, table: str) -> list[dict[str, Any]]:
    files = sealed_files(log, table)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_the_first_run_writes_the_log_and_the_second_goes_on_with_it(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path
) -> None:
    with open_shop(mysql_server, mysql_sink, tmp_path, "logged") as shop:
        path, log = shop.write_pipeline(), tmp_path / "log"
        sink = next(line for line in path.read_text().splitlines() if line.startswith("sink:"))
        path.write_text(path.read_text().replace(sink, f"sink: {{type: changelog, path: {log}}}"))
        dag, orders = known_dag(path), f"{shop.source_database}.orders"
        assert set(states(dag, 2).values()) == {"success"}
        assert [event["op"] for event in events(log, orders)] == ["r"] * ROWS
        shop.change(1)
        second = states(dag, 3)
        left_out = {name for name, state in second.items() if state == "skipped"}
        assert left_out == {"plan", "snapshot", "hand_off"}
        assert set(second.values()) == {"success", "skipped"}
        later = [event["op"] for event in events(log, orders)][ROWS:]
        updated = ROWS // 50 + 1  # the new order is one of every 50th
        assert sorted(later) == ["c", "d", *["u"] * updated]
        moved = [event["op"] for event in events(log, f"{shop.source_database}.customers")][ROWS:]
        assert moved == ["d", "c"]
