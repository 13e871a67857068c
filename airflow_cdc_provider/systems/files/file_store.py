"""A folder of a file system as a store: a name is given once, because a link fails if it is there.

A file is written under a hidden name, flushed to the disk, and then linked to its own name.

**Where it works.** On local file systems and on NFS, whose `link` is atomic. A file system that
cannot link is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from airflow_cdc_provider.core.errors import CdcError, RefusedError, SinkUnreachableError
from airflow_cdc_provider.systems.files.object_store import Unfit

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNFINISHED = ".unfinished"
_TRIED_BYTES = 1024 * 1024
"""A folder that has no room for so much takes no file of a commit."""


class FileStore:
    """The files of one folder, as an `ObjectStore`; the folder comes with its first commit.

    A file that is written piece by piece needs it: where it is gone, it is not made anew.
    """

    def __init__(self, root: Path, top: Path | None = None) -> None:
        self._root, self._top = root, top or root

    def __str__(self) -> str:
        return str(self._root)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file."""
        path = self._path(name)
        with explained(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def read_each(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """Yield the contents of files in order, each when it is asked for."""
        return map(self.read, names)

    def columns_of(self, name: str) -> Path:
        """Return a file's path."""
        return self._path(name)

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so, in order; not those of unfinished files."""
        return self._named(prefix, (each for each in self._files(prefix) if each[0] != "."))

    def lost(self, names: Iterable[str]) -> str:
        """Return the first of these files that is not there; empty if all are."""
        return next((name for name in names if not self._path(name).exists()), "")

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
            with suppress(OSError):  # the folder may be gone by now
                hidden.unlink(missing_ok=True)

    def create(self, name: str) -> HiddenFile:
        """Begin a file that is written piece by piece, under a hidden name until it is sealed."""
        with explained(self._top):
            self._top.stat()
        return HiddenFile(self._path(name))

    def unfinished(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so of files that were begun and never sealed."""
        hidden = (each for each in self._files(prefix) if each[0] == ".")
        ends = (each[1:].removesuffix(_UNFINISHED) for each in hidden if each.endswith(_UNFINISHED))
        return self._named(prefix, ends)

    def delete(self, name: str) -> None:
        """Delete a file, finished or not; harmless if there is none."""
        path = self._path(name)
        with explained(path):
            path.unlink(missing_ok=True)
            _hidden(path).unlink(missing_ok=True)

    def holds_any(self, folder: str) -> bool:
        """Tell whether a folder holds anything."""
        path = self._path(folder)
        with explained(path):
            return path.is_dir() and any(path.iterdir())

    def below(self, folder: str) -> FileStore:
        """Return a folder of this one as a store."""
        return FileStore(self._path(folder), self._top)

    def why_unfit(self, folder: str) -> Unfit | None:
        """Try whether the file system has room, and links a name only once.

        Return what it does instead.
        """
        known = (self._root / folder, self._root, *self._root.parents)
        there = next(each for each in known if each.is_dir())
        tried = [there / f".tried-{secrets.token_hex(8)}" for _ in range(3)]
        try:
            write_whole(tried[0], bytes(_TRIED_BYTES))
            write_whole(tried[1], b"")
            if not link_once(tried[0], tried[2]) or link_once(tried[1], tried[2]):
                return _unfit("a name was given twice")
        except CdcError as error:
            return _unfit(error.what)
        except OSError as error:
            return _full(str(error)) if error.errno in _NO_ROOM else _unfit(str(error))
        finally:
            with suppress(OSError):
                for each in tried:
                    each.unlink(missing_ok=True)
        return None

    def _files(self, prefix: str) -> Iterator[str]:
        """Yield the names of the files in a prefix's folder, hidden ones too."""
        folder = self._root / prefix.rpartition("/")[0]
        with explained(folder), suppress(FileNotFoundError):
            yield from [each.name for each in os.scandir(folder) if each.is_file()]

    def _named(self, prefix: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of a folder's names that begin as the prefix does, in order."""
        folder, slash, first = prefix.rpartition("/")
        return tuple(f"{folder}{slash}{each}" for each in sorted(names) if each.startswith(first))

    def _path(self, name: str) -> Path:
        """Return a file's path; a name that leads elsewhere is an error."""
        if any(not part or part.startswith(".") for part in name.split("/")):
            raise ValueError(f"{name!r} is no name in a store")
        return self._root / name


class HiddenFile:
    """A file that is written under a hidden name, flushed to the disk, and sealed by a rename."""

    def __init__(self, target: Path) -> None:
        self._target, self._path = target, _hidden(target)
        with self.explained():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._path.open("xb")

    @property
    def stream(self) -> BinaryIO:
        """What the content is written to, within `explained`."""
        return self._file

    def explained(self) -> AbstractContextManager[None]:
        """Raise errors of the file system as errors of the sink that say what to do."""
        return explained(self._target)

    def seal(self) -> int:
        """Flush the file to the disk and rename it to its name; return its number of bytes."""
        with self.explained():
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            self._path.rename(self._target)
            flush_folder(self._target.parent)
        return size

    def discard(self) -> None:
        """Close and delete the file; a disk that is full hides no error by another."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _hidden(path: Path) -> Path:
    """Return the hidden name of a file while it is written."""
    return path.with_name(f".{path.name}{_UNFINISHED}")


def _unfit(observed: str) -> Unfit:
    """Return why a folder cannot be used."""
    return Unfit(
        observed,
        wanted="a folder that can be written to, on a file system with links",
        why="each commit is a name that only one writer gets",
        remedy="use a folder on a local file system or on NFS, writable for this account",
    )


def _full(observed: str) -> Unfit:
    """Return why a folder without room cannot be used."""
    return Unfit(
        observed,
        wanted="room for the files of commits",
        why="nothing could be committed; what is there stays as it is",
        remedy="make room, or give the folder a larger disk or quota",
    )


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
            remedy="make the folder writable and give it room; what is at work tries it again by "
            "itself, else run again",
        ) from error
