"""MySQL and MariaDB, as the registry hands them out."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.columns.sink_port import Owner, SinkSettings
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource


def source(endpoint: Endpoint) -> MySqlSource:
    """Return a source; nothing is connected yet."""
    return MySqlSource(endpoint)


def sink(
    endpoint: Endpoint, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
) -> MySqlSink:
    """Return a sink under one generation; nothing is connected yet."""
    return MySqlSink(endpoint, owner, tuple(plans), settings)
