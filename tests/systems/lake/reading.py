"""What others read of a lake's tables: by the formats' own libraries, and by DuckDB's readers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
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


def rows_by_duckdb(form: str, root: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table as DuckDB's reader of the format finds them, without libraries."""
    folder = root / table_folder(TableId.parse(table))
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg") if form == "iceberg" else ("delta",):
            connection.execute(f"LOAD '{_extension(name)}'")
        connection.execute("SET TimeZone = 'UTC'")
        if form == "delta":
            found = connection.sql(f"SELECT * FROM delta_scan('{folder}')")
        else:
            latest = max((folder / "metadata").glob("*.metadata.json"))
            found = connection.sql(f"SELECT * FROM iceberg_scan('{latest}')")
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _extension(name: str) -> Path:
    """Return the file of an extension of DuckDB that a package has brought."""
    found = find_spec(f"duckdb_extension_{name}")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.rglob("*.duckdb_extension"))
