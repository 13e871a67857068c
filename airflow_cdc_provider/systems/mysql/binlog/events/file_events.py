"""Read a log file that lies on disk, for captured logs and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from airflow_cdc_provider.core.errors import CorruptLogError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk

MAGIC = b"\xfebin"
CHUNK_BYTES = 4 << 20


def read_file(path: Path, chunk_bytes: int = CHUNK_BYTES) -> Iterator[EventChunk]:
    """Yield the file's whole events, about `chunk_bytes` at a time.

    Events written when the server died may be cut short at the end of the file: they are left out.
    """
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise CorruptLogError(
                f"{path.name} does not begin as a binary log",
                remedy="give an unencrypted log file of MySQL or MariaDB",
            )
        carried = b""
        while piece := file.read(chunk_bytes):
            chunk, used = frame_events(carried + piece)
            carried = bytes(chunk.buffer[used:])
            if len(chunk.starts):
                yield chunk


def frame_events(octets: bytes) -> tuple[EventChunk, int]:
    """Find the whole events at the start of `octets`, and how many bytes they take."""
    starts, ends, place = [], [], 0
    while place + 19 <= len(octets):
        end = place + int.from_bytes(octets[place + 9 : place + 13], "little")
        if end > len(octets):
            break
        if end < place + 19:
            raise CorruptLogError(f"an event at byte {place} says it is {end - place} bytes long")
        starts.append(place)
        ends.append(end)
        place = end
    return EventChunk(octets, np.array(starts, np.int64), np.array(ends, np.int64)), place
