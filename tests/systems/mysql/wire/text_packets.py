"""Packets of MySQL's text protocol, made by hand."""

from __future__ import annotations

from airflow_cdc_provider.systems.mysql.wire.text_protocol import RowFramer, TextChunk

LARGEST = 0xFFFFFF
END = b"\xfe\x00\x00\x02\x00"


def packets(payload: bytes, sequence: int = 0) -> bytes:
    """Cut one payload into packets."""
    parts, rest = [], payload
    while True:
        part, rest = rest[:LARGEST], rest[LARGEST:]
        parts.append(len(part).to_bytes(3, "little") + bytes([sequence % 256]) + part)
        sequence += 1
        if len(part) < LARGEST:
            return b"".join(parts)


def length_encoded(field: bytes | None) -> bytes:
    """Write a field as the protocol does."""
    if field is None:
        return b"\xfb"
    size = len(field)
    if size < 251:
        return bytes([size]) + field
    for mark, width in ((b"\xfc", 2), (b"\xfd", 3), (b"\xfe", 8)):
        if size < 1 << 8 * width:
            return mark + size.to_bytes(width, "little") + field
    raise ValueError("no field is that long")


def row(*fields: bytes | None) -> bytes:
    return packets(b"".join(map(length_encoded, fields)))


def framed(
    stream: bytes, columns: int, *, step: int = 1 << 30, chunk_bytes: int = 64
) -> tuple[RowFramer, list[TextChunk]]:
    """Feed a stream in steps; return the framer and the chunks it gave."""
    framer = RowFramer(columns, chunk_bytes=chunk_bytes)
    chunks = []
    for at in range(0, len(stream), step):
        framer.feed(stream[at : at + step])
        while (chunk := framer.chunk()) is not None:
            chunks.append(chunk)
    return framer, chunks
