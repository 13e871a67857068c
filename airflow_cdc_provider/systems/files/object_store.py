"""What is asked of a store of files, whatever it is: a folder or a bucket.

A system without transactions commits by a name: who creates a name first has committed. So the one
thing that a store must do is to create a file if and only if its name is free. A store that cannot
is refused, never worked around by a lock or by a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class ObjectStore(Protocol):
    """Files by name below one place. A file is whole from the moment its name is there.

    A name is a path below the place, with `/`; no part of it begins with a dot. A store that does
    not answer or is not writable is a `SinkUnreachableError`. As text it is its place.
    """

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file."""

    def read_each(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """Yield the contents of files in order, as `read` returns them; some are read ahead."""

    def columns_of(self, name: str) -> Path | BinaryIO:
        """Return what a reader of columns opens: a path, or a file that is read where it asks.

        `FileNotFoundError` if there is no such file; of a path, when it is opened.
        """

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so, in order; not those in folders below the prefix's own."""

    def lost(self, names: Iterable[str]) -> str:
        """Return the first of these files, sealed just now, that is not there; empty if none is.

        A bucket keeps what it has taken, and is not asked.
        """

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False, and nothing changes, if the name is taken.

        Of several that create one name, on any machines, one gets True. After True the file lasts.
        """

    def create(self, name: str) -> NewFile:
        """Begin a file that is written piece by piece, under a name that only its writer uses."""

    def unfinished(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so of files that were begun and left, as far as is known."""

    def delete(self, name: str) -> None:
        """Delete a file, finished or not; harmless if there is none."""

    def holds_any(self, folder: str) -> bool:
        """Tell whether a folder holds anything."""

    def below(self, folder: str) -> ObjectStore:
        """Return a folder of this store as a store."""

    def why_unfit(self, folder: str) -> Unfit | None:
        """Try what is asked of a store, in a folder; return what is missing. Nothing stays there.

        A name must be given once, and files be read, listed and deleted.
        """


class NewFile(Protocol):
    """A file while it is written: its name is not there yet."""

    @property
    def stream(self) -> BinaryIO:
        """What the content is written to, within `explained`."""

    def explained(self) -> AbstractContextManager[None]:
        """Raise errors of writing as errors of the sink that say what to do."""

    def seal(self) -> int:
        """Finish the file, so that it lasts under its name; return its number of bytes."""

    def discard(self) -> None:
        """Forget the unfinished file; a store that is away hides no error by another."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a store cannot be used, in the words of a finding."""

    observed: str
    wanted: str
    why: str
    remedy: str
    is_remote: bool = False
    """It is a bucket, not a folder."""
