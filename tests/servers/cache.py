"""The user's cache folder, shared by all checkouts, and folders that are made there once.

Two test runs may want the same folder at the same moment, and a run may be killed while making one.
So a folder is built under a temporary name beside its place and renamed into it, with a lock file
held meanwhile: whoever sees the final name sees a finished folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Give the folder of this project in the user's cache (`XDG_CACHE_HOME` is respected)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "airflow-provider-cdc"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel drops it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Give `folder`, letting `make` fill it first if it is not there yet."""
    if folder.is_dir():
        return folder
    with locked(folder.parent / f".{folder.name}.lock"):
        if not folder.is_dir():
            unfinished = folder.parent / f".{folder.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder
