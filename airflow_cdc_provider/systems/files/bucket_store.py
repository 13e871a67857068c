"""A bucket as a store: a name is given once, because a put is refused if it is there.

A put says `If-None-Match: *`. Of several that put one name, the store refuses all but one.

**A lost answer.** A put may be done though its answer never came, and what is asked again may then
be refused by one's own file. So each put has a token of its own, which the store keeps beside the
file. Who is refused, or gets no answer, looks whose token is there. If nothing is there, the same
put is tried again with the same token: whichever arrives, it is the same file. If no answer comes
at all, the outcome stays open and that is an error: a later reader sees what became of it.

**Where it works.** Where a put obeys `If-None-Match: *`, and where a file is listed and read as
soon as it is there. `why_unfit` tries both. S3 is so, and so are Google's and Azure's stores, by
headers of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import obstore

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.systems.files.bucket_client import client_of
from airflow_cdc_provider.systems.files.bucket_errors import (
    FAILED,
    TAKEN,
    BucketErrors,
    Right,
    is_final,
    is_silent,
)
from airflow_cdc_provider.systems.files.bucket_files import SINGLE_BYTES, RangedFile, UploadedFile
from airflow_cdc_provider.systems.files.object_store import Unfit

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore as Client

_PARTS_AT_ONCE = 2
_READS_AT_ONCE = 16
_MOST_AHEAD = 64
_TRIES = 3
_WRITER = "writer"
"""The metadata in which a put's token is kept."""


class BucketStore:
    """The files below a prefix of a bucket, as an `ObjectStore`."""

    def __init__(self, place: Store, client: Client, base: str = "") -> None:
        """`base` is a folder below the place that `client` opens, with a slash at its end."""
        self._place, self._client, self._base = place, client, base
        self.errors = BucketErrors(place)

    @classmethod
    def open(cls, place: Store) -> BucketStore:
        """Return the store at a place; no server is asked yet."""
        return cls(place, client_of(place))

    def __str__(self) -> str:
        return str(self._place)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as a place, with its key; a client is made there."""
        return BucketStore.open, (self._place,)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file."""
        key = self._key(name)
        with self.errors.explained(Right.READ):
            try:
                return bytes(obstore.get(self._client, key).bytes())
            except FileNotFoundError as error:
                self.errors.require_bucket(error)
                return None

    def read_each(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """Yield the contents of files in order; more and more are read at once."""
        left, wanted = iter(names), 1
        while found := tuple(islice(left, wanted)):
            if wanted == 1:
                yield self.read(found[0])
            else:
                with ThreadPoolExecutor(min(wanted, _READS_AT_ONCE)) as readers:
                    contents = tuple(readers.map(self.read, found))
                yield from contents
            wanted = min(2 * wanted, _MOST_AHEAD)

    def columns_of(self, name: str) -> BinaryIO:
        """Return a file that is read where a reader asks."""
        return cast(BinaryIO, RangedFile(self._client, self._key(name), self.errors))

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so, in order."""
        folder, slash, first = prefix.rpartition("/")
        with self.errors.explained(Right.LIST):
            path = f"{self._base}{folder}".rstrip("/") or None
            found = obstore.list_with_delimiter(self._client, path)["objects"]
        names = sorted(each["path"].rpartition("/")[2] for each in found)
        return tuple(f"{folder}{slash}{each}" for each in names if each.startswith(first))

    def lost(self, names: Iterable[str]) -> str:  # noqa: ARG002 - the port's
        """Return no file: a bucket keeps what it has taken."""
        return ""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False, and nothing changes, if the name is taken."""
        key, token = self._key(name), secrets.token_hex(16)
        failures: list[BaseException] = []
        for _ in range(_TRIES):
            try:
                self._put(key, content, token)
                return True
            except FAILED as error:
                failures.append(error)
            if is_final(failures[-1]):
                break
            if (holder := self._writer_of(key)) is not None:
                return holder == token
            if is_silent(failures[-1]):
                break  # it waited long enough for one call
        with self.errors.explained(Right.PUT):
            raise failures[-1]

    def create(self, name: str) -> UploadedFile:
        """Begin a file that is written piece by piece."""
        self._key(name)
        return UploadedFile(self, name)

    def unfinished(self, prefix: str) -> Sequence[str]:  # noqa: ARG002 - of the port
        """Return none: parts of unfinished files have no name; a rule of the bucket ends them."""
        return ()

    def delete(self, name: str) -> None:
        """Delete a file; harmless if there is none."""
        key = self._key(name)
        with self.errors.explained(Right.DELETE):
            try:
                obstore.delete(self._client, key)
            except FileNotFoundError as error:
                self.errors.require_bucket(error)

    def holds_any(self, folder: str) -> bool:
        """Tell whether a folder holds anything."""
        key = self._key(folder)
        with self.errors.explained(Right.LIST):
            first = next(iter(obstore.list(self._client, key, chunk_size=1)), ())
            return len(first) > 0

    def below(self, folder: str) -> BucketStore:
        """Return a folder of this store as a store."""
        return BucketStore(self._place.below(folder), self._client, f"{self._key(folder)}/")

    def why_unfit(self, folder: str) -> Unfit | None:
        """Try whether a name is given once, and whether files are read, listed and deleted.

        A store that does not answer may do so later: that is an error, not a reason.
        """
        name = f"{folder}/tried-{secrets.token_hex(8)}"
        try:
            observed = self._tried(name)
        except RetryableError:
            raise
        except CdcError as error:
            with suppress(CdcError):
                self.delete(name)
            return _unfit(error.what, error.remedy)
        remedy = "use a store whose puts obey If-None-Match, or a folder on a file system"
        return _unfit(observed, remedy) if observed else None

    def _tried(self, name: str) -> str:
        """Put, read, list and delete a file; return what was not as it must be."""
        key = self._key(name)
        if not self.put_if_absent(name, b"first"):
            return "a name that nobody has was said to be taken"
        with self.errors.explained(Right.PUT):
            try:
                self._put(key, b"second", "second")
                is_given_twice = True
            except TAKEN:
                is_given_twice = False
        content, listed = self.read(name), self.list(name)
        self.delete(name)
        if is_given_twice:
            return "a name was given twice: the store does not obey If-None-Match"
        if content != b"first":
            return "a file is not what was put"
        if list(listed) != [name]:
            return "a file that is there was not listed"
        return "" if self.read(name) is None else "a file that was deleted is still read"

    # --- for files in pieces ------------------------------------------------------------------

    def begin(self, name: str, token: str) -> WritableFile:
        """Begin a file in parts; a name that is taken is refused."""
        key = self._key(name)
        if self._writer_of(key) is not None:
            raise self.errors.taken(name)
        with self.errors.explained(Right.PUT):
            return obstore.open_writer(
                self._client,
                key,
                attributes={_WRITER: token},
                buffer_size=SINGLE_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def finish(self, writer: WritableFile, name: str, token: str) -> None:
        """Make a file of its parts; if no answer comes, look whether it was made."""
        try:
            writer.close()
        except FAILED:
            if self._writer_of(self._key(name)) != token:
                with self.errors.explained(Right.PUT):
                    raise

    def _put(self, key: str, content: bytes, token: str) -> None:
        """Put a file if its name is free."""
        obstore.put(
            self._client,
            key,
            content,
            mode="create",
            use_multipart=False,
            attributes={_WRITER: token},
        )

    def _writer_of(self, key: str) -> str | None:
        """Return the token of who put a file, empty for a file of others; None without a file."""
        with self.errors.explained(Right.READ):
            try:
                found = obstore.get(self._client, key, options={"head": True})
            except FileNotFoundError:
                return None
            return str(found.attributes.get(_WRITER, ""))

    def _key(self, name: str) -> str:
        """Return a file's key below the place; a name that leads elsewhere is an error."""
        if any(not part or part.startswith(".") for part in name.split("/")):
            raise ValueError(f"{name!r} is no name in a store")
        return f"{self._base}{name}"


def _unfit(observed: str, remedy: str) -> Unfit:
    """Return why a store cannot be used."""
    return Unfit(
        observed,
        wanted="a store that gives a name once, where files can be put, read, listed and deleted",
        why="each commit is a name that only one writer gets",
        remedy=remedy,
        is_remote=True,
    )
