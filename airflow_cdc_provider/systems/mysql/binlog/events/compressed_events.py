"""Compressed transactions of MySQL and compressed events of MariaDB.

MySQL (`binlog_transaction_compression`) puts all events of a transaction, without checksums, into
one TRANSACTION_PAYLOAD event: fields of type, length and value, an end mark, then the packed bytes.
MariaDB (`log_bin_compress`) packs the tail of single events: a byte with the algorithm and the
width of the length, the plain length big-endian, then zlib's bytes.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

import numpy as np
import zstandard

from airflow_cdc_provider.core.errors import CorruptLogError, UnknownEventError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader, damaged
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG

PLAIN_TYPES = {
    EventType.MARIADB_QUERY_COMPRESSED: EventType.QUERY,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: EventType.WRITE_ROWS,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: EventType.UPDATE_ROWS,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: EventType.DELETE_ROWS,
}
"""What MariaDB's compressed events stand for."""

COMPRESSED_TYPES = np.zeros(256, np.bool_)
"""By event type: whether it has to be unpacked."""
COMPRESSED_TYPES[[EventType.TRANSACTION_PAYLOAD, *PLAIN_TYPES]] = True

_END_MARK = 0
_COMPRESSION = 2
_ZSTD = 0
_NONE = 255
_CHUNK_BYTES = 4 << 20


def unpacked_payload(body: bytes) -> Iterator[EventChunk]:
    """Yield the events of a TRANSACTION_PAYLOAD, decompressed as a stream."""
    reader = ByteReader(body)
    compression = _NONE
    while (kind := reader.packed()) != _END_MARK:
        value = ByteReader(reader.counted())
        if kind == _COMPRESSION:
            compression = value.packed()
    packed = reader.rest()
    carried = b""
    for piece in _pieces(packed, compression):
        chunk, used = frame_events(carried + piece)
        carried = bytes(chunk.buffer[used:])
        if len(chunk.starts):
            yield chunk
    if carried:
        raise CorruptLogError(
            "a compressed transaction ends inside an event",
            risk="its last rows are missing; nothing of it was handed on",
            remedy=CHECK_LOG,
        )


def _pieces(packed: bytes, compression: int) -> Iterator[bytes]:
    """Yield a compressed transaction's bytes, decompressed, in pieces of some megabytes."""
    if compression == _NONE:
        yield packed
        return
    if compression != _ZSTD:
        raise UnknownEventError(
            f"a transaction is compressed by algorithm {compression}, which is not known",
            risk="its rows would be lost",
            remedy="SET GLOBAL binlog_transaction_compression = OFF",
        )
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed))
    try:
        while piece := stream.read(_CHUNK_BYTES):
            yield piece
    except zstandard.ZstdError as error:
        raise CorruptLogError(f"a compressed transaction cannot be unpacked: {error}") from None


def plain_event(event: bytes) -> bytes:
    """Return the plain event for one of MariaDB's compressed ones."""
    kind = EventType(event[4])
    offset = (
        _query_text(event) if kind == EventType.MARIADB_QUERY_COMPRESSED else _rows(event, kind)
    )
    head = bytearray(event[:offset])
    head[4] = PLAIN_TYPES[kind]
    return bytes(head) + _inflated(event, offset)


def _query_text(event: bytes) -> int:
    """Return the offset of the packed text in MariaDB's compressed statement event."""
    if len(event) < HEADER_BYTES + 13:
        raise damaged(f"a statement's event is only {len(event)} bytes long")
    database_bytes = event[HEADER_BYTES + 8]
    status_bytes = int.from_bytes(event[HEADER_BYTES + 11 : HEADER_BYTES + 13], "little")
    return HEADER_BYTES + 13 + status_bytes + database_bytes + 1


def _rows(event: bytes, kind: EventType) -> int:
    """Return the offset of the packed rows in MariaDB's compressed row event."""
    reader = ByteReader(event, HEADER_BYTES + 8)
    if kind >= EventType.MARIADB_WRITE_ROWS_COMPRESSED:
        reader.take(reader.number(2) - 2)
    columns = reader.packed()
    images = 2 if PLAIN_TYPES[kind] in {EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_V1} else 1
    reader.take(images * ((columns + 7) // 8))
    return reader.offset


_LARGEST = 1 << 30
"""What no server lets a packet, and so an event, grow over."""


def _inflated(event: bytes, offset: int) -> bytes:
    """Return the decompressed tail of MariaDB's compressed event."""
    if offset >= len(event):
        raise damaged("a compressed event ends before what it has packed")
    head = event[offset]
    width = head & 0x07
    algorithm = head >> 4 & 0x07
    size = int.from_bytes(event[offset + 1 : offset + 1 + width], "big")
    if not head & 0x80 or algorithm != 0:
        raise UnknownEventError(
            f"an event is compressed by algorithm {algorithm}, which is not known",
            risk="its rows would be lost",
            remedy="SET GLOBAL log_bin_compress = OFF",
        )
    if size > _LARGEST:
        raise damaged(f"a compressed event announces {size} bytes")
    unpacker = zlib.decompressobj()
    try:  # one byte more than announced is enough to know; a damaged event may hold any number
        plain = unpacker.decompress(event[offset + 1 + width :], size + 1)
    except zlib.error as error:
        raise damaged(f"a compressed event cannot be unpacked: {error}") from None
    if len(plain) != size or not unpacker.eof:
        raise damaged(f"a compressed event has other than the {size} bytes it announces")
    return plain


def frame_events(data: bytes) -> tuple[EventChunk, int]:
    """Return the whole events at the start of `data`, and how many bytes they take."""
    starts, ends, offset = [], [], 0
    while offset + 19 <= len(data):
        end = offset + int.from_bytes(data[offset + 9 : offset + 13], "little")
        if end > len(data):
            break
        if end < offset + 19:
            raise CorruptLogError(f"an event at byte {offset} says it is {end - offset} bytes long")
        starts.append(offset)
        ends.append(end)
        offset = end
    return EventChunk(data, np.array(starts, np.int64), np.array(ends, np.int64)), offset
