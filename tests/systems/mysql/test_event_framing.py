"""Events cut out of a dump's packets, however the bytes arrive."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import CorruptLogError
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from airflow_cdc_provider.systems.mysql.source.event_framing import (
    EventFramer,
    is_error,
    rotation_target,
)
from airflow_cdc_provider.systems.mysql.wire.packet_chain import LARGEST_PACKET


def packets(event: bytes) -> bytes:
    """Write an event as the server sends it."""
    payload, sent, number = b"\0" + event, b"", 0
    while True:
        part, payload = payload[:LARGEST_PACKET], payload[LARGEST_PACKET:]
        sent += len(part).to_bytes(3, "little") + bytes([number % 256]) + part
        number += 1
        if len(part) < LARGEST_PACKET:
            return sent


def taken(framer: EventFramer) -> list[bytes]:
    found = []
    while (chunk := framer.take()) is not None:
        view = memoryview(chunk.buffer)
        found += [bytes(view[a:b]) for a, b in zip(chunk.starts, chunk.ends, strict=True)]
    return found


def fed(framer: EventFramer, data: bytes, sizes: list[int]) -> list[bytes]:
    """Receive bytes in pieces of these sizes, again and again; return the events."""
    found, turn = [], 0
    while data:
        with framer.space() as space:
            count = min(len(space), len(data), sizes[turn % len(sizes)])
            space[:count] = data[:count]
        framer.received(count)
        data, turn = data[count:], turn + 1
        found += taken(framer)
    return found


@given(
    events=st.lists(st.binary(min_size=19, max_size=300), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=8),
    buffer_bytes=st.sampled_from([64, 1024, 1 << 17]),
)
def test_events_are_the_same_however_the_bytes_arrive(
    events: list[bytes], sizes: list[int], buffer_bytes: int
) -> None:
    sent = b"".join(packets(event) for event in events)
    assert fed(EventFramer(buffer_bytes=buffer_bytes), sent, sizes) == events


@pytest.mark.parametrize("extra", [-1, 0, 1, LARGEST_PACKET, LARGEST_PACKET + 5])
def test_an_event_of_several_packets_is_whole_again(extra: int) -> None:
    large = bytes(range(256)) * 65536
    large = (large + large + large)[: LARGEST_PACKET - 1 + extra]
    events = [b"a" * 30, large, b"b" * 40]
    sent = b"".join(packets(event) for event in events)
    assert fed(EventFramer(), sent, [1 << 20]) == events


def test_what_ends_the_dump_comes_after_the_events_before_it() -> None:
    error = b"\xff\xd4\x04#HY000purged"
    sent = packets(b"a" * 30) + len(error).to_bytes(3, "little") + b"\1" + error
    framer = EventFramer()
    assert fed(framer, sent, [7]) == [b"a" * 30]
    assert framer.last_packet == error
    assert is_error(error)


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_rotation_names_its_file_with_and_without_checksums(has_checksum: bool) -> None:
    event = bytes(19) + (154).to_bytes(8, "little") + b"binlog.000042"
    if has_checksum:
        event += zlib.crc32(event).to_bytes(4, "little")
    assert rotation_target(event) == BinlogPosition(42, 154)


def test_a_rotation_that_names_no_file_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="names no file"):
        rotation_target(bytes(27) + b"binlog.000042\x00\x01\x02\x03")
