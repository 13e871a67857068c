"""What others do to a lake's table that takes away what it had, by the formats' own libraries."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder


def catalog_of(root: Path) -> SqlCatalog:
    """Open Iceberg's catalog as others do."""
    return SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=str(root))


def set_back(form: str, root: Path, table: TableId, *, commits: int = 1) -> None:
    """Set a table back by so many commits."""
    if form == "delta":
        restored = DeltaTable(str(root / table_folder(table)))
        restored.restore(restored.version() - commits)
        return
    found = catalog_of(root).load_table((table.database, table.table))
    ordered = sorted(found.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    found.manage_snapshots().rollback_to_snapshot(ordered[-1 - commits].snapshot_id).commit()


def dropped(form: str, root: Path, table: TableId) -> None:
    """Drop a table; its files of rows stay."""
    if form == "delta":
        log = root / table_folder(table) / "_delta_log"
        log.rename(root / f"dropped-{table_folder(table)}")
        return
    catalog_of(root).drop_table((table.database, table.table))
