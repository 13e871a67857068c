"""What several tests need of `test_sync_dag`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG


MONDAY, TUESDAY, WEDNESDAY = (datetime(2026, 2, day, tzinfo=UTC) for day in (2, 3, 4))


class Run:
    """One run of the DAG, and what its tasks returned."""

    def __init__(self, dag: DAG, day: datetime, **options: Any) -> None:
        run = dag.test(logical_date=day, **options)
        self.state = str(run.state)
        tasks = run.get_task_instances()
        self.states = {task.task_id: str(task.state) for task in tasks}
        self.ran = {name for name, state in self.states.items() if state == "success"}
        self.skipped = {name for name, state in self.states.items() if state == "skipped"}
        # at once: the next try of a task wipes what this one has left
        self.xcom = {task.task_id: task.xcom_pull(task_ids=task.task_id) for task in tasks}
        self.spark_links = {
            task.task_id: task.xcom_pull(task_ids=task.task_id, key="_link_CdcSparkLink")
            for task in tasks
        }

    def returned(self, task_id: str) -> dict[str, Any]:
        value = self.xcom[task_id]
        assert isinstance(value, dict)
        return value
