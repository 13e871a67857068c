"""A log file that lies on disk, for captured logs and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.compressed_events import frame_events

MAGIC = b"\xfebin"


def read_file(path: Path, chunk_bytes: int = 4 << 20) -> Iterator[EventChunk]:
    """Yield the file's whole events, about `chunk_bytes` at a time.

    Events written when the server died may be cut short at the end of the file: they are left out.
    """
    with path.open("rb") as file:
        assert file.read(4) == MAGIC
        carried = b""
        while piece := file.read(chunk_bytes):
            chunk, used = frame_events(carried + piece)
            carried = bytes(chunk.buffer[used:])
            if len(chunk.starts):
                yield chunk
