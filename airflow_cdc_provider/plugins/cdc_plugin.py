"""The plugin that Airflow loads by entry point."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class CdcPlugin(AirflowPlugin):
    """Makes the provider known to Airflow's plugin manager."""

    name = "cdc"
