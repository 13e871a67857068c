"""The link from a task to the CDC page of its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class CdcPageLink(BaseOperatorLink):
    """Leads to the page of the pipeline that a task's DAG is about."""

    name = "CDC page"

    def get_link(
        self,
        operator: BaseOperator,  # noqa: ARG002 - Airflow passes it
        *,
        ti_key: TaskInstanceKey,
    ) -> str:
        """Return the page's address."""
        return page_url(ti_key.dag_id)


def page_url(dag_id: str) -> str:
    """Return the address under which Airflow's UI shows the page of a DAG's pipeline.

    The UI has the page in a frame, and the frame's own path, Airflow's base path included, is the
    end of its address.
    """
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/plugin/cdc{urlsplit(base).path}/cdc/page?{urlencode({'dag_id': dag_id})}"
