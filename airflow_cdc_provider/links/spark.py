"""The link from a task to Spark's own UI, where its driver has told where that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink, conf

from airflow_cdc_provider.core.spark_place import SparkPlace

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class CdcSparkLink(BaseOperatorLink):
    """Leads to the application of a task's job: its UI, or the history server that is set."""

    name = "Spark"

    def get_link(
        self,
        operator: BaseOperator,
        *,
        ti_key: TaskInstanceKey,  # noqa: ARG002 - Airflow passes it
    ) -> str:
        """Return the address, empty if there is none: then no link is shown."""
        place: SparkPlace | None = getattr(operator, "spark_place", None)
        return "" if place is None else spark_url(place)


def spark_url(place: SparkPlace) -> str:
    """Return where an application is shown: by a history server after its end, too."""
    return place.history(conf.get("cdc", "spark_history_url", fallback="")) or place.ui
