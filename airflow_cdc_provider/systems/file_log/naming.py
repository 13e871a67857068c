"""How OpenLineage names a table of files: it is its folder, whatever the files are."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.file_log.layout import table_folder


def namespace(place: Folder) -> str:
    """Return `file`, OpenLineage's namespace for files without a server; of a store its bucket."""
    store = place.store
    return f"{store.scheme}://{store.bucket}" if store.bucket else "file"


def dataset(place: Folder, table: TableId) -> str:
    """Return the path of a table's folder."""
    folder = place.store.path.lstrip("/") if place.store.bucket else place.path.rstrip("/")
    return f"{folder}/{table_folder(table)}".removeprefix("" if folder else "/")


def type_text(column_type: ColumnType) -> str:  # noqa: ARG001 - as every system is asked
    """Return an empty text: a file's columns have no types of a server."""
    return ""
