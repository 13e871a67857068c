"""Events of one log file as they came: where each ends, and a digest that identifies the log.

Many events are looked at as columns, a few one by one: what comes to a stream that keeps up is one
small transaction at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, Imprint

TYPE_AT, LOG_POS_AT, FLAGS_AT = 4, 13, 17
"""Where an event's header has them."""
ARTIFICIAL_FLAG = 0x20
DIGEST_BYTES = 16
ROTATE, FORMAT_DESCRIPTION = 4, 15
_STOP = 3
MADE_UP = frozenset({_STOP, ROTATE, FORMAT_DESCRIPTION, 27, 41})
"""The server makes these up for a dump, or changes them; the last two are heartbeats."""
_OPENING = frozenset({33, 34, 42, 162})
"""The GTID events of both families, which open a transaction."""
_OPENS = np.isin(np.arange(256), list(_OPENING))
"""The same, by type."""
_MARIADB_ANNOTATE_ROWS = 160
_CRC = 4
_LONGEST_DIGESTED = 1 << 16
_MOST_FEW = 64
_NEAR = 1 << 31
"""Offsets below it are whole in an event's header."""


class LogStretch(Protocol):
    """Some events of one log file, whose digests show later whether the log is the same."""

    def imprint(self, place: BinlogPosition) -> Imprint | None:
        """Return a digest of the last transaction up to `place`, which identifies the log.

        Of its last event alone if it is large or came in pieces; None if no event is there.
        """


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events of one log file within a chunk, held as columns."""

    chunk: EventChunk
    file: BinlogPosition
    created: int | None
    has_checksums: bool
    index: IntArray
    """Which of the chunk's events."""
    types: ByteArray
    ends: IntArray
    """Where each ends in the file."""

    def begin(self, number: int) -> int:
        """Return the offset in the file at which an event begins."""
        return int(self.ends[number]) - self._bytes(number)

    def _bytes(self, number: int) -> int:
        """Return an event's length."""
        place = int(self.index[number])
        return int(self.chunk.ends[place] - self.chunk.starts[place])

    def digested(self, number: int) -> bytes:
        """Return an event's bytes for a digest, without checksum; none of an annotation."""
        if self.types[number] == _MARIADB_ANNOTATE_ROWS:
            return b""
        place = int(self.index[number])
        end = int(self.chunk.ends[place]) - (_CRC if self.has_checksums else 0)
        return bytes(self.chunk.buffer[int(self.chunk.starts[place]) : end])

    def digest(self, first: int, last: int) -> str:
        """Return the digest of consecutive events."""
        digest = blake2b(digest_size=DIGEST_BYTES)
        for number in range(first, last + 1):
            digest.update(self.digested(number))
        return digest.hexdigest()

    def imprint(self, place: BinlogPosition) -> Imprint | None:
        """Return a digest of the last transaction up to `place`, which identifies the log.

        Of its last event alone if it is large or came in pieces; None if no event is there.
        """
        last = len(self.ends) - 1
        if self.file.file_number == place.file_number:
            last = int(np.searchsorted(self.ends, place.offset, side="right")) - 1
        if last < 0 or self.created is None or self.file.file_number > place.file_number:
            return None
        first = self._first_of(last)
        end = self.file.at(int(self.ends[last]))
        return Imprint(end, self.begin(first), self.created, self.digest(first, last))

    def _first_of(self, last: int) -> int:
        """Return the first event to digest up to `last`: its small transaction's, else `last`."""
        opened = np.flatnonzero(_OPENS[self.types[: last + 1]])
        if not len(opened):
            return last
        first = int(opened[-1])
        small = int(self.ends[last]) - self.begin(first) <= _LONGEST_DIGESTED
        return first if small else last


class FewStretch:
    """A few events of one log file, held one by one."""

    def __init__(
        self, data: bytes, events: list[tuple[int, int, int]], file: BinlogPosition, created: int
    ) -> None:
        self._data = data
        self._events = events
        """Of each: where it starts in the data, where it stops, where it ends in the file."""
        self._file = file
        self._created = created
        self.has_checksums = True

    @classmethod
    def of(
        cls, chunk: EventChunk, file: BinlogPosition, created: int, *, has_checksums: bool
    ) -> FewStretch | None:
        """Return a chunk's events, None if they are too many or any of them needs the columns."""
        if len(chunk.starts) > _MOST_FEW or not isinstance(chunk.buffer, bytes):
            return None
        data, events, reached = chunk.buffer, list[tuple[int, int, int]](), file.offset
        for start, stop in zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True):
            end = int.from_bytes(data[start + LOG_POS_AT : start + LOG_POS_AT + 4], "little")
            is_made_up = (
                data[start + TYPE_AT] in MADE_UP or data[start + FLAGS_AT] & ARTIFICIAL_FLAG
            )
            if is_made_up or not reached < end < _NEAR:
                return None
            events.append((start, stop, end))
            reached = end
        found = cls(data, events, file, created)
        found.has_checksums = has_checksums
        return found

    @property
    def end(self) -> int:
        """Return the offset in the file at which the last event ends."""
        return self._events[-1][2]

    def imprint(self, place: BinlogPosition) -> Imprint | None:
        """Return a digest of the last transaction up to `place`, which identifies the log.

        Of its last event alone if it is large or came in pieces; None if no event is there.
        """
        events = self._events
        if self._file.file_number > place.file_number:
            return None
        if self._file.file_number == place.file_number:
            events = [event for event in events if event[2] <= place.offset]
        if not events:
            return None
        end = events[-1][2]
        opened = [n for n, event in enumerate(events) if self._type(event) in _OPENING]
        some = events[opened[-1] :] if opened else events[-1:]
        if end - _begin(some[0]) > _LONGEST_DIGESTED:
            some = events[-1:]
        return Imprint(self._file.at(end), _begin(some[0]), self._created, self._digest(some))

    def _type(self, event: tuple[int, int, int]) -> int:
        """Return the type code of an event."""
        return self._data[event[0] + TYPE_AT]

    def _digest(self, events: list[tuple[int, int, int]]) -> str:
        """Return the digest of consecutive events, without checksums and MariaDB annotations."""
        digest, behind = blake2b(digest_size=DIGEST_BYTES), _CRC if self.has_checksums else 0
        for event in events:
            if self._type(event) != _MARIADB_ANNOTATE_ROWS:
                digest.update(self._data[event[0] : event[1] - behind])
        return digest.hexdigest()


def _begin(event: tuple[int, int, int]) -> int:
    """Return the offset in the file at which an event begins."""
    start, stop, end = event
    return end - (stop - start)
