"""Rows of the text protocol: cut out of the packet stream, fields located column by column.

A result's rows arrive as packets `[length: 3 bytes][sequence: 1 byte][row]`, and a row is its
fields one after the other, each as `[length][bytes]` with a length of 1, 3, 4 or 9 bytes, or the
single byte 0xFB for NULL. Only the packets are walked one by one. Inside a chunk of about a
megabyte the fields are found by vector steps: the first field of all rows, then the second of
all rows, and so on. No field ever becomes a Python object.

`RowFramer` decides and does no I/O: its owner receives into `space()`, tells how many bytes came,
and takes chunks until `finished`. A connection that ends before `finished` has lost rows; it is
never the end of the result.

A packet of 0xFFFFFF bytes goes on in the next one (rows of 16 MiB and more). The parts are moved
together in the buffer, so that every row is contiguous behind its first packet header.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

import numpy as np

from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import IntegrityError, ResultAbortedError
from airflow_cdc_provider.systems.mysql.wire.packet_chain import (
    HEADER_BYTES,
    LARGEST_PACKET,
    joined_parts,
)

CHUNK_BYTES = 1 << 20
_SHORT_PACKET = 0xFF
_WORTH_A_SHORT_WALK = 1 << 13  # bytes; of less, looking at all headers again costs more
_EOF_BYTES = 5
_END_OF_ROWS, _ERROR = 0xFE, 0xFF
_NULL, _TWO_BYTES, _THREE_BYTES, _EIGHT_BYTES = 0xFB, 0xFC, 0xFD, 0xFE

_HEADER_AND_FIRST = struct.Struct("<IB").unpack_from
"""Length and sequence number as one word, and the first byte behind."""


@dataclass(frozen=True, slots=True)
class Field:
    """The fields of one column in a chunk: where each begins, its length, which are NULL."""

    start: IntArray
    length: IntArray
    null: BoolArray | None
    """None if no row is NULL here."""
    short: bool
    """Every length took a single byte and nothing is NULL."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Some whole rows of a SELECT's result, in the bytes that the server sent.

    Row i is `buffer[edges[i]:edges[i + 1]]`, its packet header first. The chunk owns its buffer,
    nobody else writes to it.
    """

    buffer: bytearray = field(repr=False)
    edges: IntArray = field(repr=False)
    columns: int
    """Fields in each row."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.edges) - 1

    @property
    def starts(self) -> IntArray:
        """Return where each row's packet header begins."""
        return self.edges[:-1]

    @property
    def bytes(self) -> int:
        """Return the bytes held in memory."""
        return len(self.buffer)

    def data(self) -> ByteArray:
        """Return the buffer as an array of bytes."""
        return np.frombuffer(self.buffer, np.uint8)

    def fields(self) -> tuple[Field, ...]:
        """Locate the fields of every column.

        A row that does not end with its last field is an error.
        Not kept: the positions take more memory than the bytes.
        """
        data = self.data()
        at = self.starts + HEADER_BYTES
        found = []
        for _ in range(self.columns):
            located = _locate(data, at)
            found.append(located)
            at = located.start + located.length
        if not np.array_equal(at, self.edges[1:]):
            row = int(np.flatnonzero(at != self.edges[1:])[0])
            raise _misframed(f"row {row} of a chunk does not end with its last field")
        return tuple(found)


def _locate(data: ByteArray, at: IntArray) -> Field:
    """Locate one field of every row: read its length at `at`."""
    if len(at) and int(at.max()) >= len(data):
        raise _misframed("a row has fewer fields than the result has columns")
    first = data[at]
    if len(first) == 0 or int(first.max()) < _NULL:
        return Field(at + 1, first.astype(np.int64), None, short=True)
    length = first.astype(np.int64)
    skip = np.ones(len(at), np.int64)
    null = first == _NULL
    length[null] = 0
    for mark, width in ((_TWO_BYTES, 2), (_THREE_BYTES, 3), (_EIGHT_BYTES, 8)):
        rows = np.flatnonzero(first == mark)
        if len(rows):
            length[rows] = _little_endian(data, at[rows] + 1, width)
            skip[rows] = 1 + width
    bounds = int(length.min()), int(length.max())  # eight bytes may wrap to less than none
    if bool((first == _ERROR).any()) or bounds[0] < 0 or bounds[1] > len(data):
        raise _misframed("a field's length is out of bounds")
    return Field(at + skip, length, null if null.any() else None, short=False)


def _little_endian(data: ByteArray, at: IntArray, width: int) -> IntArray:
    """Read little-endian numbers of `width` bytes."""
    if int(at.max()) + width > len(data):
        raise _misframed("a field's length is cut off")
    number = np.zeros(len(at), np.int64)
    for i in range(width):
        number |= data[at + i].astype(np.int64) << (8 * i)
    return number


def _misframed(what: str) -> IntegrityError:
    """Return the error for rows that are not framed as the protocol says."""
    return IntegrityError(
        f"the server's rows cannot be read: {what}",
        risk="values could be taken for others",
        remedy="read the split again; if it stays, report it with the server's version",
    )


class RowFramer:
    """Cuts the packets of a SELECT's result into chunks of whole rows."""

    def __init__(self, columns: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._columns = columns
        self._chunk_bytes = chunk_bytes
        self._buffer = bytearray(2 * chunk_bytes)
        self._filled = 0
        self._walked = 0
        self._starts = array("q")
        self._short = True
        self.finished = False
        """The packet that ends the rows was seen."""
        self.warnings = 0
        """The server's warning count, once finished."""
        self.rows = 0
        """Rows in the chunks handed out so far."""

    def space(self) -> memoryview:
        """Return the free part of the buffer to receive into; release it before `received`."""
        if len(self._buffer) - self._filled < self._chunk_bytes // 4:
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> None:
        """Count the bytes that were received into `space()`."""
        self._filled += count

    def feed(self, data: bytes) -> None:
        """Add bytes that were received elsewhere."""
        while data:
            with self.space() as space:
                count = min(len(space), len(data))
                space[:count] = data[:count]
            self.received(count)
            data = data[count:]

    def chunk(self) -> TextChunk | None:
        """Return the rows that are complete, None while they are less than a chunk.

        An error packet in the middle raises `ResultAbortedError`.
        """
        if not self.finished:
            self._walk()
        if not self._starts or not (self.finished or self._walked >= self._chunk_bytes // 2):
            return None
        return self._hand_out()

    def _walk(self) -> None:
        """Note where rows begin in the bytes received, from packet header to packet header.

        This loop and that over short rows run once a row and are all of the product that do. A
        whole packet of the largest size, which goes on in the next, only fits where more than
        that has come.
        """
        if self._filled > LARGEST_PACKET:
            self._walk_large()
            return
        if self._short and self._filled - self._walked > _WORTH_A_SHORT_WALK:
            self._walk_short()
        buffer, at, filled, add = self._buffer, self._walked, self._filled, self._starts.append
        last = filled - HEADER_BYTES - 1
        while at <= last:
            word, first = _HEADER_AND_FIRST(buffer, at)
            end = at + HEADER_BYTES + (word & LARGEST_PACKET)
            if end > filled:
                break
            if first >= _END_OF_ROWS:
                self._finish(at, end)
                break
            add(at)
            at = end
        self._walked = at

    def _walk_short(self) -> None:
        """Walk packets as if all rows were short, then drop the starts from the first that is not.

        Short is less than 256 bytes.
        So the loop only reads one byte a row. From the first row that is none of these on, a
        longer one or the end of the rows, nothing counts; until the next chunk no more are tried.
        """
        starts, walked = self._starts, len(self._starts)
        buffer, at, add = self._buffer, self._walked, self._starts.append
        whole = self._filled - HEADER_BYTES - _SHORT_PACKET
        while at < whole:
            add(at)
            at += buffer[at] + HEADER_BYTES
        data = np.frombuffer(buffer, np.uint8)
        headers = np.frombuffer(starts, np.int64)[walked:]
        other = (data[headers + 1] | data[headers + 2]) != 0
        other |= data[headers + HEADER_BYTES] >= _END_OF_ROWS
        del headers  # the array can grow again
        if other.any():
            first = walked + int(other.argmax())
            at = starts[first]
            del starts[first:]
            self._short = False
        self._walked = at

    def _walk_large(self) -> None:
        """Note where rows begin, as `_walk` does, where a row may take several packets."""
        at = self._walked
        while at < self._filled - HEADER_BYTES:
            word, first = _HEADER_AND_FIRST(self._buffer, at)
            length = word & LARGEST_PACKET
            end: int | None = at + HEADER_BYTES + length
            if length == LARGEST_PACKET:
                end = self._join_parts(at)
            if end is None or end > self._filled:
                break
            # A field of 2**24 bytes begins with 0xFE as well, but fills its first packet.
            if first >= _END_OF_ROWS and length < LARGEST_PACKET:
                self._finish(at, end)
                break
            self._starts.append(at)
            at = end
        self._walked = at

    def _join_parts(self, at: int) -> int | None:
        """Join the parts of a large packet in the buffer; None if some have not come."""
        joined = joined_parts(self._buffer, at, self._filled)
        if joined is None:
            return None
        end, self._filled = joined
        return end

    def _finish(self, at: int, end: int) -> None:
        """Read the packet that ends the rows: their end, or an error."""
        packet = bytes(self._buffer[at + HEADER_BYTES : end])
        if not packet:
            raise _misframed("a row is an empty packet")
        if packet[0] == _ERROR:
            number = int.from_bytes(packet[1:3], "little")
            text = packet[9:] if packet[3:4] == b"#" else packet[3:]
            raise ResultAbortedError(
                f"the server ended the result: error {number}, {text.decode(errors='replace')}",
                risk="none: rows read so far are dropped",
                remedy="the split is read again",
            )
        if end != self._filled:
            raise _misframed(f"{self._filled - end} bytes follow the end of the rows")
        # An OK packet in this place has two counters, both 0, and the status before the warnings.
        warnings = packet[1:3] if len(packet) == _EOF_BYTES else packet[5:7]
        self.warnings = int.from_bytes(warnings, "little")
        self.finished = True

    def _hand_out(self) -> TextChunk:
        """Return the rows walked so far as a chunk, and begin a new buffer."""
        used = self._walked
        rest = b"" if self.finished else bytes(self._buffer[used : self._filled])
        buffer = self._buffer
        del buffer[used:]
        self._starts.append(used)
        edges = np.frombuffer(self._starts, np.int64)
        chunk = TextChunk(buffer=buffer, edges=edges, columns=self._columns)
        self.rows += chunk.rows
        self._starts = array("q")
        self._short = True
        self._buffer = bytearray(max(2 * self._chunk_bytes, 2 * len(rest)))
        self._buffer[: len(rest)] = rest
        self._filled, self._walked = len(rest), 0
        return chunk
