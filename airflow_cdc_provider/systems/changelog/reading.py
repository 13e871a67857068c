"""Reading a change log: the files that count, in the order in which they are to be read.

    for file in sealed_files("/path", "shop.orders"):
        ...

Also for readers of other programs: `spark.read.json([str(file) for file in ...])`.
"""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import TRANSACTION, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest


def sealed_files(path: str | Path, table: str) -> list[Path]:
    """Return a sink table's files, splits before changes, in the order to read them."""
    return _files(Path(path), table_folder(TableId.parse(table)))


def marker_files(path: str | Path) -> list[Path]:
    """Return the files of the transactions' BEGIN and END markers."""
    return _files(Path(path), TRANSACTION)


def _files(root: Path, folder: str) -> list[Path]:
    """Return a folder's files in the order to read them."""
    state = Manifest(root, "").read_any()
    return [root / file.path for file in state.files(folder)]
