"""Log events cut out of the packet stream of a binlog dump.

The server sends `[length: 3 bytes][sequence: 1 byte][0x00][event]`; an event of 16 MiB or more
goes on in the next packets, without the zero. `packet_chain` finds where packets begin.
`EventFramer` decides and does no I/O: its owner receives into `space()`, tells how many bytes
came, and takes what is complete.
"""

from __future__ import annotations

import zlib

import numpy as np

from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.errors import CorruptLogError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from airflow_cdc_provider.systems.mysql.wire.packet_chain import (
    HEADER_BYTES,
    LARGEST_PACKET,
    PACKET_HEAD,
    SHORTEST,
    joined_parts,
    plain_packets,
)

_ERROR = 0xFF
_COPY_BELOW = 1 << 16
_ROOM = 1 << 16
_EVENT_HEADER = 19
_CRC = 4


class EventFramer:
    """Cuts the bytes of a binlog dump into chunks of whole events."""

    def __init__(self, *, buffer_bytes: int = 1 << 21) -> None:
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray(buffer_bytes)
        self._filled = 0
        self.last_packet: bytes | None = None
        """The payload of the packet that ended the dump: an error, or the end of the log."""

    @property
    def pending(self) -> int:
        """Bytes received and not yet handed out."""
        return self._filled

    def space(self) -> memoryview:
        """Return the free part of the buffer to receive into; release it before `received`."""
        if len(self._buffer) - self._filled < _ROOM:
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> None:
        """Count the bytes that were received into `space()`."""
        self._filled += count

    def take(self) -> EventChunk | None:
        """Return the events that are complete, and remove them; None if there is none."""
        if self.last_packet is not None:
            return None
        packets, used = self._packets()
        if not len(packets):
            return None
        starts = packets + SHORTEST
        ends = np.append(packets[1:], used)
        filled, self._filled = self._filled, self._filled - used
        if used < _COPY_BELOW:
            chunk = EventChunk(bytes(memoryview(self._buffer)[:used]), starts, ends)
            self._buffer[: filled - used] = self._buffer[used:filled]
            return chunk
        full = self._buffer
        rest = full[used:filled]
        self._buffer = bytearray(max(self._buffer_bytes, 2 * len(rest)))
        self._buffer[: len(rest)] = rest
        del full[used:]
        return EventChunk(full, starts, ends)

    def _packets(self) -> tuple[IntArray, int]:
        """Return the starts of the packets with whole events, and the place after the last.

        Each ends where the next begins, one of several parts too: they are moved together.
        """
        found, at = plain_packets(self._buffer, 0, self._filled)
        while (behind := self._joined_at(at)) is not None:
            more, end = plain_packets(self._buffer, behind, self._filled)
            found, at = np.concatenate([found, [at], more]), end
        return found, at

    def _joined_at(self, at: int) -> int | None:
        """Join the parts of a large event that begins here and return its end, or None.

        A packet that is no event is kept as the last one.
        None if there is neither, or not all of it has come.
        """
        if at + SHORTEST > self._filled:
            return None
        word, status = PACKET_HEAD.unpack_from(self._buffer, at)
        end = at + HEADER_BYTES + (word & LARGEST_PACKET)
        if end > self._filled:
            return None
        if status:
            self.last_packet = bytes(self._buffer[at + HEADER_BYTES : end])
            return None
        return self._join_parts(at)

    def _join_parts(self, at: int) -> int | None:
        """Join the parts of a large event in the buffer.

        Return its end, None if parts are missing.
        """
        joined = joined_parts(self._buffer, at, self._filled)
        if joined is None:
            return None
        end, self._filled = joined
        return end


def is_error(packet: bytes) -> bool:
    """Tell whether a dump's last packet is an error rather than the end of the log."""
    return packet[0] == _ERROR


def rotation_target(event: bytes) -> BinlogPosition:
    """Return the binlog position that a rotation event names, with or without checksum.

    It may come before the event that tells whether the log has checksums, so it is looked for.
    """
    has_checksum = zlib.crc32(event[:-_CRC]) == int.from_bytes(event[-_CRC:], "little")
    body = event[_EVENT_HEADER:-_CRC] if has_checksum else event[_EVENT_HEADER:]
    try:
        return BinlogPosition.of(body[8:].decode("ascii"), int.from_bytes(body[:8], "little"))
    except ValueError as error:
        raise CorruptLogError(
            f"a rotation of the log names no file: {body[8:60]!r}",
            "between two files of the log",
            "changes could be counted to the wrong place",
            "read again; if it stays, check the log with mysqlbinlog",
        ) from error
