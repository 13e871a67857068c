"""What others read of a lake's tables: by the formats' own libraries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder


def table_of(form: str, root: Path, table: str) -> pa.Table:
    """Return all rows of a table as a new reader finds them."""
    named = TableId.parse(table)
    if form == "delta":
        return pa.table(DeltaTable(str(root / table_folder(named))).to_pyarrow_table())
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    return catalog.load_table((named.database, named.table)).scan().to_arrow()
