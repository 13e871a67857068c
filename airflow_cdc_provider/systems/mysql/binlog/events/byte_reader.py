"""A cursor over the bytes of one event, for the events that are rare."""

from __future__ import annotations

import struct

from airflow_cdc_provider.core.errors import CorruptLogError

_PACKED_BYTES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""By a packed number's first byte: how many follow."""

UNREADABLE = (ArithmeticError, LookupError, RecursionError, ValueError, struct.error)
"""What reading ends in where an event's own numbers lead nowhere.

Vector steps do not look at each offset before they read there: numpy's and Arrow's own errors tell
that one lies outside. Whoever reads events turns these into a named error.
"""


def damaged(what: str) -> CorruptLogError:
    """Return the error for an event with contents that no server writes."""
    return CorruptLogError(
        what,
        risk="the log is damaged or newer than this reader; nothing of the event was handed on",
        remedy="compare with the server's own `mysqlbinlog --verify-binlog-checksum`",
    )


def as_text(data: bytes) -> str:
    """Decode a name as UTF-8; other bytes are a damaged event."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise damaged(f"a name is no UTF-8: {data[:64]!r}") from None


class ByteReader:
    """A cursor that reads numbers and strings of an event; reading past its end is an error."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    @property
    def left(self) -> int:
        """Return the number of bytes not read yet."""
        return len(self.data) - self.offset

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        end = self.offset + count
        if count < 0 or end > len(self.data):
            raise damaged(f"an event ends after {len(self.data)} bytes, {end} were expected")
        taken = self.data[self.offset : end]
        self.offset = end
        return taken

    def number(self, width: int) -> int:
        """Read an unsigned little-endian number."""
        return int.from_bytes(self.take(width), "little")

    def packed(self) -> int:
        """Read a length-encoded number of the client protocol."""
        first = self.number(1)
        if first < 0xFB:
            return first
        if first not in _PACKED_BYTES:
            raise damaged(f"a number begins with the byte {first:#x}, which none does")
        return self.number(_PACKED_BYTES[first])

    def counted(self) -> bytes:
        """Read a string after its length-encoded length."""
        return self.take(self.packed())

    def text(self, count: int) -> str:
        """Read `count` bytes as UTF-8."""
        return as_text(self.take(count))

    def rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.take(self.left)
