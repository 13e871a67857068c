"""A cursor over the bytes of one event, for the events that are rare."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import CorruptLogError


class ByteReader:
    """Reads numbers and strings one after another; reading past the end is an error."""

    __slots__ = ("octets", "place")

    def __init__(self, octets: bytes, place: int = 0) -> None:
        self.octets = octets
        self.place = place

    @property
    def left(self) -> int:
        """Return the number of bytes not read yet."""
        return len(self.octets) - self.place

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        end = self.place + count
        if count < 0 or end > len(self.octets):
            raise CorruptLogError(
                f"an event ends after {len(self.octets)} bytes, {end} were expected",
                risk="the log is damaged or newer than this reader",
                remedy="compare with the server's own `mysqlbinlog --verify-binlog-checksum`",
            )
        taken = self.octets[self.place : end]
        self.place = end
        return taken

    def number(self, width: int) -> int:
        """Read an unsigned little-endian number."""
        return int.from_bytes(self.take(width), "little")

    def packed(self) -> int:
        """Read a length-encoded number of the client protocol."""
        first = self.number(1)
        if first < 0xFB:
            return first
        return self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0))

    def counted(self) -> bytes:
        """Read a string behind its length-encoded length."""
        return self.take(self.packed())

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.take(self.left)
