"""A folder of a file system as a store: a name is given once, because a link fails if it is there.

A file is written under a hidden name, flushed to the disk, and then linked to its own name.

**Where it works.** On local file systems and on NFS, whose `link` is atomic. A file system that
cannot link is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_cdc_provider.core.errors import RefusedError, SinkUnreachableError

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class FileStore:
    """The files of one folder, as an `ObjectStore`; the folder comes with its first file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file."""
        path = self._path(name)
        with explained(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so, in order; not those of unfinished files."""
        folder, slash, first = prefix.rpartition("/")
        with explained(self._root / folder):
            try:
                found = [each.name for each in os.scandir(self._root / folder) if each.is_file()]
            except FileNotFoundError:
                return ()
        names = sorted(each for each in found if each.startswith(first) and each[0] != ".")
        return tuple(f"{folder}{slash}{each}" for each in names)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False, and nothing changes, if the name is taken."""
        path = self._path(name)
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with explained(path):
                write_whole(hidden, content)
            return link_once(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """Delete a file; harmless if there is none."""
        path = self._path(name)
        with explained(path):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """Return a file's path; a name that leads elsewhere is an error."""
        if any(not part or part.startswith(".") for part in name.split("/")):
            raise ValueError(f"{name!r} is no name in a store")
        return self._root / name


def write_whole(path: Path, content: bytes) -> None:
    """Write a new file and flush it to the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def link_once(hidden: Path, path: Path) -> bool:
    """Link a file to its final name; False if the name is taken."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        # over NFS the answer to a link that was made can be lost, and it is asked again
        return hidden.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            with explained(path):
                raise
        raise RefusedError(
            f"the file system cannot link a name that only one writer gets: {error.strerror}",
            where=str(path.parent),
            risk="two writers could both believe that they committed; nothing was written",
            remedy="use a folder on a local file system or on NFS",
        ) from error
    with explained(path):
        flush_folder(path.parent)
    return True


def flush_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that its files' names last."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise errors of the file system as errors of the sink that say what to do."""
    try:
        yield
    except OSError as error:
        raise SinkUnreachableError(
            f"{error.strerror or error}",
            where=str(path),
            risk="none: what no manifest names does not count",
            remedy="make the folder writable and give it room, then run again",
        ) from error
