"""How OpenLineage names tables in a lake: by their folders."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.file_log.layout import table_folder


def namespace(place: Folder) -> str:  # noqa: ARG001 - as every system is asked
    """Return `file`, OpenLineage's namespace for files without a server."""
    return "file"


def dataset(place: Folder, table: TableId) -> str:
    """Return the path of a table's folder."""
    return f"{place.path.rstrip('/')}/{table_folder(table)}"


def type_text(column_type: ColumnType) -> str:  # noqa: ARG001 - as every system is asked
    """Return an empty text: a lake's columns have no types of a server."""
    return ""
