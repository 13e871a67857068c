"""One result in the text protocol as its own bytes, whole or piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator

from airflow_cdc_provider.systems.mysql.server.raw_connection import RawConnection
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk


def chunks_of(
    raw: RawConnection, sql: str | bytes, decoder: TextDecoder, *, max_bytes: float = math.inf
) -> tuple[TextChunk, ...] | None:
    """Run a query and return its rows as chunks of bytes; None if more than `max_bytes`.

    Beyond `max_bytes` the rest is still on the socket, which is of no use.
    """
    raw.start_query(sql)
    framer = decoder.framer()
    chunks: list[TextChunk] = []
    held = 0
    while not framer.finished:
        with framer.space() as space:
            count = raw.recv_into(space)
        framer.received(count)
        held += count
        if held > max_bytes:
            return None
        while (chunk := framer.chunk()) is not None:
            chunks.append(chunk)
    raw.finish_result()
    return tuple(chunks)


def chunks_as_they_come(raw: RawConnection, sql: str, decoder: TextDecoder) -> Iterator[TextChunk]:
    """Run a query and yield its rows as chunks of bytes; it must be read to its end."""
    raw.start_query(sql)
    framer = decoder.framer()
    while not framer.finished:
        with framer.space() as space:
            count = raw.recv_into(space)
        framer.received(count)
        while (chunk := framer.chunk()) is not None:
            yield chunk
    raw.finish_result()
