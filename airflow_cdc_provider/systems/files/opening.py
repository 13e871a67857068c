"""From a place to the store that is there, by the scheme of its URI."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.files.object_store import ObjectStore

Root = Path | ObjectStore
"""The place of a log: a store, or the folder of a file system."""


def files_at(root: Root) -> ObjectStore:
    """Return the store at a place; nothing is read or created yet."""
    return FileStore(root.absolute()) if isinstance(root, Path) else root


def open_files(store: Store) -> ObjectStore:
    """Return the store at a place; nothing is read or created yet."""
    match store.scheme:
        case "file":
            return FileStore(Path(store.path))
        case other:
            raise RefusedError(
                f"stores of the scheme {other!r} are not in this release",
                where=store.uri,
                risk=NOTHING_STARTED,
                remedy="name a folder on a local file system or on NFS, as in file:///data/changes",
            )
