"""The plugin that Airflow loads by entry point, in every one of its processes: it stays light."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_cdc_provider.links.progress import CdcProgressLink


class CdcPlugin(AirflowPlugin):
    """Makes the link from tasks to their progress known to the API server."""

    name = "cdc"
    operator_extra_links = [CdcProgressLink()]  # noqa: RUF012 - Airflow's own declaration
