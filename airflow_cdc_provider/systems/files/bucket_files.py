"""Files of a bucket that are written piece by piece, or read where a reader asks.

Up to `SINGLE_BYTES` a file is held and put at once, if its name is free. A larger one goes in
parts, which become a file by one last request. That one replaces what has the name, so the name is
one that only its writer uses. Parts of a file that was never finished have no name; a rule of the
bucket ends them.
"""

from __future__ import annotations

import io
import secrets
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import obstore

from airflow_cdc_provider.systems.files.bucket_errors import BucketErrors, Right

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore as Client

SINGLE_BYTES = 8 * 1024 * 1024
"""Up to which a file is one put; and the size of the parts of a larger one."""


class Uploads(Protocol):
    """What a file in pieces asks of its bucket."""

    @property
    def errors(self) -> BucketErrors: ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False if the name is taken."""

    def begin(self, name: str, token: str) -> WritableFile:
        """Begin a file in parts, with a token; a name that is taken is refused."""

    def finish(self, writer: WritableFile, name: str, token: str) -> None:
        """Make a file of its parts."""


class UploadedFile:
    """A file that is written piece by piece: one put if it is small, else in parts."""

    def __init__(self, bucket: Uploads, name: str) -> None:
        self._errors, self._stream = bucket.errors, _Pieces(bucket, name)

    @property
    def stream(self) -> BinaryIO:
        """What the content is written to, within `explained`."""
        return cast(BinaryIO, self._stream)

    def explained(self) -> AbstractContextManager[None]:
        """Raise errors of the store as errors of the sink that say what to do."""
        return self._errors.explained(Right.PUT)

    def seal(self) -> int:
        """Give the file its name; return its number of bytes."""
        with self.explained():
            return self._stream.finish()

    def discard(self) -> None:
        """Forget what was written."""
        self._stream.forget()


class RangedFile(io.RawIOBase):
    """A file of a bucket that is read in ranges; `FileNotFoundError` if there is none."""

    def __init__(self, client: Client, key: str, errors: BucketErrors) -> None:
        self._client, self._key, self._errors = client, key, errors
        self._at, self._size = 0, 0
        with errors.explained(Right.READ, but=FileNotFoundError):
            self._size = obstore.head(client, key)["size"]

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read at any place."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Begin the next read elsewhere."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, up to as many as fit."""
        end = min(self._at + len(buffer), self._size)
        count = max(0, end - self._at)
        if count:
            with self._errors.explained(Right.READ, but=FileNotFoundError):
                found = obstore.get_range(self._client, self._key, start=self._at, end=end)
            buffer[:count] = memoryview(found)
            self._at = end
        return count


class _Pieces(io.RawIOBase):
    """Holds what is written, and sends it in parts once it is too much to be held."""

    def __init__(self, bucket: Uploads, name: str) -> None:
        self._bucket, self._name = bucket, name
        self._token = secrets.token_hex(16)
        self._held = bytearray()
        self._writer: WritableFile | None = None
        self._size = 0

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._size

    def write(self, content: Any) -> int:
        """Append content."""
        data = bytes(content)
        self._size += len(data)
        if self._writer is not None:
            self._writer.write(data)
            return len(data)
        self._held += data
        if len(self._held) > SINGLE_BYTES:
            self._writer = self._bucket.begin(self._name, self._token)
            self._writer.write(bytes(self._held))
            self._held = bytearray()
        return len(data)

    def finish(self) -> int:
        """Give the file its name; return its number of bytes."""
        if self._writer is not None:
            self._bucket.finish(self._writer, self._name, self._token)
        elif not self._bucket.put_if_absent(self._name, bytes(self._held)):
            raise self._bucket.errors.taken(self._name)
        self.forget()
        return self._size

    def forget(self) -> None:
        """Hold nothing any more."""
        self._writer, self._held = None, bytearray()
