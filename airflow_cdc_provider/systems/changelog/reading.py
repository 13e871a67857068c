"""Reading a change log: the files that count, in the order in which they are to be read.

    for file in sealed_files("/path", "shop.orders"):
        ...

Also for readers of other programs: `spark.read.json([str(file) for file in ...])`. Of a log in a
store, `sealed_uris` returns the URIs.
"""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import TRANSACTION, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.files.opening import Root, open_files


def sealed_files(path: str | Path, table: str) -> list[Path]:
    """Return a sink table's files, splits before changes, in the order to read them."""
    root = _folder(path)
    return [root / name for name in _names(root, table_folder(TableId.parse(table)))]


def marker_files(path: str | Path) -> list[Path]:
    """Return the files of the transactions' BEGIN and END markers."""
    root = _folder(path)
    return [root / name for name in _names(root, TRANSACTION)]


def sealed_uris(uri: str, table: str) -> list[str]:
    """Return the same of a log in a store, as URIs; the environment says how to get in."""
    store = Store(uri.rstrip("/"))
    names = _names(open_files(store), table_folder(TableId.parse(table)))
    return [f"{store.uri}/{name}" for name in names]


def _folder(path: str | Path) -> Path:
    """Return a log's folder; refuse the URI of a store."""
    if "://" in str(path):
        raise RefusedError(
            f"{path} is a store, which has no paths",
            where="sealed_files",
            risk=NOTHING_STARTED,
            remedy="call sealed_uris, which returns the URIs of its files",
        )
    return Path(path)


def _names(root: Root, folder: str) -> list[str]:
    """Return the names of a folder's files in the order to read them."""
    return [file.path for file in Manifest(root, "").read_any().files(folder)]
