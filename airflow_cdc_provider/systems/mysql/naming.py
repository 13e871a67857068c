"""How OpenLineage names the tables of these servers; MariaDB's as MySQL's, whose protocol it is."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.type_text import type_text

__all__ = ["dataset", "namespace", "type_text"]


def namespace(place: Endpoint) -> str:
    """Return the namespace `mysql://host:port`, without user or password."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"mysql://{host}:{place.port}"


def dataset(place: Endpoint, table: TableId) -> str:  # noqa: ARG001 - as every system is asked
    """Return a table's name as `database.table`; a dot inside a name stays as it is."""
    return f"{table.database}.{table.table}"
