"""From raw events to plain ones: checksums verified and cut off, compressed events unpacked.

`FrameReader` yields `Frames`: events in one buffer with the offsets where each begins and ends,
so that later steps work on all of them at once. A compressed transaction (MySQL's
TRANSACTION_PAYLOAD) is unpacked as a stream and yields several `Frames`, each about 4 MB, so its
size does not matter. MariaDB's compressed events are rewritten as the plain events they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.core.errors import RESET, CorruptLogError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.checksums import first_broken
from airflow_cdc_provider.systems.mysql.binlog.events.compressed_events import (
    COMPRESSED_TYPES,
    plain_event,
    unpacked_payload,
)
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    EventType,
    type_name,
)

_IN_USE_FLAG = 1
_NO_CHECKSUM = 0
_CRC32 = 1


@dataclass(slots=True)
class Frames:
    """Plain events: event i is `data[starts[i]:ends[i]]`, without a checksum."""

    data: ByteViews
    starts: IntArray
    ends: IntArray
    types: ByteArray
    log_pos: IntArray
    """Where each event ends in its file, modulo 2^32; 0 if it lies in none."""
    stored_bytes: IntArray
    """How many bytes of the log each event took."""
    file_bytes: IntArray
    """How long each event is in its file; of a compressed transaction all are as long as that."""

    def __len__(self) -> int:
        return len(self.starts)

    def body(self, index: int) -> bytes:
        """Return a copy of one event without its header."""
        return self.data.text_at(int(self.starts[index]) + HEADER_BYTES, int(self.ends[index]))

    def part(self, first: int, last: int) -> Frames:
        """Return the events from `first` up to, not including, `last`."""
        cut = slice(first, last)
        return Frames(
            self.data,
            self.starts[cut],
            self.ends[cut],
            self.types[cut],
            self.log_pos[cut],
            self.stored_bytes[cut],
            self.file_bytes[cut],
        )


class FrameReader:
    """Verifies and decompresses the log's events in order."""

    def __init__(self) -> None:
        self.checksums: bool | None = None
        """None until a format description has told."""

    def read(self, chunk: EventChunk) -> Iterator[Frames]:
        """Yield a chunk's events, verified and decompressed, in log order."""
        if not len(chunk.starts):
            return
        data = ByteViews(chunk.buffer)
        starts, ends = chunk.starts, chunk.ends
        lengths = ends - starts
        if int(lengths.min()) < HEADER_BYTES:
            raise CorruptLogError("an event is shorter than its own header")
        frames = Frames(
            data,
            starts,
            ends,
            data.u8[starts + 4],
            data.little(starts + 13, 4),
            lengths,
            lengths,
        )
        first = 0
        for number in np.flatnonzero(frames.types == EventType.FORMAT_DESCRIPTION).tolist():
            yield from self._verified(frames.part(first, number))
            yield self._format_description(frames.part(number, number + 1))
            first = number + 1
        yield from self._verified(frames.part(first, len(frames)))

    def _verified(self, frames: Frames) -> Iterator[Frames]:
        """Verify the events' checksums, cut these off, and yield the events decompressed."""
        if not len(frames):
            return
        if self.checksums is None:
            self.checksums = self._guess(frames)
        if self.checksums:
            broken = first_broken(frames.data.buffer, frames.starts, frames.ends)
            if broken is not None:
                raise _corrupt(frames, broken)
            frames.ends = frames.ends - CHECKSUM_BYTES
        yield from _unpacked(frames)

    def _guess(self, frames: Frames) -> bool:
        """Tell whether the events before any format description have checksums.

        Only the ROTATE with which a dump begins comes so early; if its last four bytes are its
        CRC32, they are its checksum and no part of the file's name.
        """
        return first_broken(frames.data.buffer, frames.starts[:1], frames.ends[:1]) is None

    def _format_description(self, frames: Frames) -> Frames:
        """Verify a format description, and remember whether the log has checksums."""
        end = int(frames.ends[0]) - CHECKSUM_BYTES
        algorithm = int(frames.data.u8[end - 1])
        if algorithm not in {_NO_CHECKSUM, _CRC32}:
            raise CorruptLogError(
                f"checksum algorithm {algorithm} is not known",
                where=f"format description ending at {int(frames.log_pos[0])}",
                risk="damaged events would go unseen",
                remedy="SET GLOBAL binlog_checksum = 'CRC32'",
            )
        self.checksums = algorithm == _CRC32
        if self.checksums:
            event = bytearray(frames.data.text_at(int(frames.starts[0]), int(frames.ends[0])))
            event[17] &= 0xFF ^ _IN_USE_FLAG  # set while the file is written, after the checksum
            if first_broken(event, np.zeros(1, np.int64), np.array([len(event)])) is not None:
                raise _corrupt(frames, 0)
        frames.ends = frames.ends - CHECKSUM_BYTES
        return frames


def _unpacked(frames: Frames) -> Iterator[Frames]:
    """Yield events in order, with compressed ones replaced by what they contain."""
    packed = np.flatnonzero(COMPRESSED_TYPES[frames.types]).tolist()
    if not packed:
        yield frames
        return
    first, last = 0, len(frames)
    while packed:
        if frames.types[packed[0]] != EventType.TRANSACTION_PAYLOAD:
            payloads = (p for p in packed if frames.types[p] == EventType.TRANSACTION_PAYLOAD)
            until = next(payloads, last)
            yield _rewritten(frames.part(first, until))
            packed = [number for number in packed if number >= until]
            first = until
            continue
        number = packed.pop(0)
        if number > first:
            yield frames.part(first, number)
        yield from _payload_frames(frames, number)
        first = number + 1
    if first < last:
        yield frames.part(first, last)


def _payload_frames(frames: Frames, number: int) -> Iterator[Frames]:
    """Yield the events inside one compressed transaction, with the end offset of their wrapper."""
    wrapper_bytes = int(frames.stored_bytes[number])
    for chunk in unpacked_payload(frames.body(number)):
        count = len(chunk.starts)
        data = ByteViews(chunk.buffer)
        starts, ends = chunk.starts, chunk.ends
        yield Frames(
            data,
            starts,
            ends,
            data.u8[starts + 4],
            np.full(count, frames.log_pos[number], np.int64),
            np.maximum((ends - starts), wrapper_bytes * (ends - starts) // max(len(data), 1)),
            np.full(count, wrapper_bytes, np.int64),
        )


def _rewritten(frames: Frames) -> Frames:
    """Return the events with MariaDB's compressed ones rewritten as plain ones."""
    buffer = bytearray()
    starts, ends = [], []
    types = frames.types.copy()
    packed = COMPRESSED_TYPES[frames.types].tolist()
    bounds = zip(frames.starts.tolist(), frames.ends.tolist(), strict=True)
    for index, (start, end) in enumerate(bounds):
        event = frames.data.text_at(start, end)
        if packed[index]:
            event = plain_event(event)
            types[index] = event[4]
        starts.append(len(buffer))
        buffer += event
        ends.append(len(buffer))
    return Frames(
        ByteViews(bytes(buffer)),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        types,
        frames.log_pos,
        frames.stored_bytes,
        frames.file_bytes,
    )


def _corrupt(frames: Frames, index: int) -> CorruptLogError:
    """Return the error for an event with a wrong checksum."""
    return CorruptLogError(
        f"the checksum of an event of {type_name(int(frames.types[index]))} is wrong",
        where=f"event ending at offset {int(frames.log_pos[index])}",
        risk="the event's rows may be damaged; nothing of it was handed on",
        remedy="run the server's `mysqlbinlog --verify-binlog-checksum` on the file; "
        f"if the file is damaged, {RESET}",
    )
