"""From a place to the store that is there, by the scheme of its URI."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from airflow_cdc_provider.core.endpoint import STORE_SCHEMES, Store
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.files.object_store import ObjectStore

Root = Path | ObjectStore
"""The place of a log: a store, or the folder of a file system."""


def files_at(root: Root) -> ObjectStore:
    """Return the store at a place; nothing is read or created yet."""
    return FileStore(root.absolute()) if isinstance(root, Path) else root


def require_package(store: Store) -> None:
    """Refuse if the library of stores is not installed here."""
    if find_spec("obstore") is None:
        raise RefusedError(
            "the package obstore is not installed, and nothing else reads and writes stores",
            where=store.uri,
            risk=NOTHING_STARTED,
            remedy="pip install 'airflow-provider-cdc[stores]', here and on each machine that does "
            "the work",
        )


def open_files(store: Store) -> ObjectStore:
    """Return the store at a place; nothing is read or created yet."""
    match store.scheme:
        case "file":
            return FileStore(Path(store.path))
        case scheme if scheme in STORE_SCHEMES:
            require_package(store)
            # an optional package, and not needed for folders
            from airflow_cdc_provider.systems.files.bucket_store import (  # noqa: PLC0415
                BucketStore,
            )

            return BucketStore.open(store)
        case other:
            raise RefusedError(
                f"stores of the scheme {other!r} are not in this release",
                where=store.uri,
                risk=NOTHING_STARTED,
                remedy="name a folder, as in file:///data/changes, or a store, as in s3://bucket/changes",
            )
