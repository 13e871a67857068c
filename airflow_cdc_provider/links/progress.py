"""The link from a task to its progress: what the job mirrors into the task's state store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class CdcProgressLink(BaseOperatorLink):
    """Leads to the task's Storage tab, which shows the job and its progress."""

    name = "Progress"

    def get_link(
        self,
        operator: BaseOperator,  # noqa: ARG002 - Airflow passes it
        *,
        ti_key: TaskInstanceKey,
    ) -> str:
        """Return the tab's address."""
        return progress_url(ti_key.dag_id, ti_key.run_id, ti_key.task_id)


def progress_url(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the URL of the Storage tab of a task in Airflow's UI, which shows its progress."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    run, task = quote(run_id, safe=""), quote(task_id, safe="")
    return f"{base}/dags/{quote(dag_id, safe='')}/runs/{run}/tasks/{task}/task-state-store"
