"""Events that no quiet server writes: made by hand, byte by byte."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    CorruptLogError,
    IntegrityError,
    UnknownEventError,
)
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.events.checksums import first_broken
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import LogPlace
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import read_wire
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.systems.mysql.binlog.captured import SERVER

START = MySqlPosition(SERVER, BinlogPosition.of("bin.000007", 4), GtidSet())


def event(kind: int, body: bytes, log_pos: int, flags: int = 0, server: int = 1) -> bytes:
    size = 19 + len(body) + 4
    head = b"\0\0\0\0" + bytes([kind]) + server.to_bytes(4, "little") + size.to_bytes(4, "little")
    whole = head + log_pos.to_bytes(4, "little") + flags.to_bytes(2, "little") + body
    return whole + zlib.crc32(whole).to_bytes(4, "little")


def chunk_of(*events: bytes, gap: int = 5) -> EventChunk:
    buffer, starts, ends = bytearray(), [], []
    for each in events:
        buffer += b"\x07" * gap
        starts.append(len(buffer))
        buffer += each
        ends.append(len(buffer))
    return EventChunk(bytes(buffer), np.array(starts), np.array(ends))


def rotate(file: str, offset: int = 4, *, fake: bool = True) -> bytes:
    body = offset.to_bytes(8, "little") + file.encode()
    return event(4, body, 0 if fake else 999, 0x20 if fake else 0)


def format_description(log_pos: int = 126) -> bytes:
    body = (4).to_bytes(2, "little") + b"9.7.4".ljust(50, b"\0") + bytes(4) + b"\x13" + bytes(40)
    return event(15, body + b"\x01", log_pos)


def fed(*events: bytes, start: MySqlPosition = START, gap: int = 5) -> ColumnDecoder:
    decoder = ColumnDecoder(start, server_uuid=SERVER, captured=lambda _table: True)
    assert list(decoder.feed(chunk_of(*events, gap=gap))) == []
    return decoder


def error_of(*events: bytes) -> CdcError:
    with pytest.raises(CdcError) as caught:
        fed(rotate("bin.000007"), format_description(), *events)
    return caught.value


def heartbeat_v2(file: str, offset: int) -> bytes:
    packed = b"\xfe" + offset.to_bytes(8, "little")
    fields = b"\x01" + bytes([len(file)]) + file.encode() + b"\x02\x09" + packed
    return event(41, fields + b"\x00\x00", 0, 0x20)


def test_a_dump_begins_with_a_rotation_and_a_header() -> None:
    decoder = fed(rotate("bin.000009"), format_description())
    assert decoder.position.binlog == BinlogPosition.of("bin.000009", 126)


def test_the_first_rotation_may_have_no_checksum() -> None:
    plain = rotate("bin.000009")[:-4]
    decoder = fed(plain, format_description())
    assert decoder.position.binlog == BinlogPosition.of("bin.000009", 126)


@pytest.mark.parametrize("gap", [0, 1, 4, 5, 9])
def test_heartbeats_move_over_gaps_but_never_back(gap: int) -> None:
    head = [rotate("bin.000007"), format_description()]
    decoder = fed(*head, event(27, b"bin.000007", 5000), gap=gap)
    assert decoder.position.binlog == BinlogPosition.of("bin.000007", 5000)
    decoder = fed(*head, event(27, b"bin.000007", 5000), event(27, b"bin.000007", 600), gap=gap)
    assert decoder.position.binlog == BinlogPosition.of("bin.000007", 5000)


def test_a_heartbeat_of_version_2_may_lie_beyond_4_gib() -> None:
    decoder = fed(rotate("bin.000007"), format_description(), heartbeat_v2("bin.000007", 6 << 30))
    assert decoder.position.binlog == BinlogPosition.of("bin.000007", 6 << 30)


def test_a_heartbeat_in_mid_transaction_is_no_boundary() -> None:
    gtid = b"\x00" + bytes(range(16)) + (5).to_bytes(8, "little") + bytes(40)
    decoder = fed(
        rotate("bin.000007"),
        format_description(),
        event(33, gtid, 300),
        event(27, b"bin.000007", 5000),
    )
    assert decoder.in_transaction
    assert decoder.position.binlog == BinlogPosition.of("bin.000007", 126)


@pytest.mark.parametrize("kind", [0, 1, 10, 43, 99, 172, 255])
def test_an_event_of_an_unknown_type_is_fatal_and_named(kind: int) -> None:
    error = error_of(event(kind, b"????", 777))
    assert isinstance(error, UnknownEventError)
    assert str(kind) in error.what
    assert "bin.000007:777" in error.where


@pytest.mark.parametrize(
    ("kind", "word"), [(26, "incident"), (164, "encrypted"), (17, "LOAD DATA"), (18, "LOAD DATA")]
)
def test_events_that_lose_changes_are_fatal(kind: int, word: str) -> None:
    error = error_of(event(kind, b"\x01\x00\x05LOST!", 777))
    assert isinstance(error, IntegrityError)
    assert word in error.what


@pytest.mark.parametrize("kind", [28, 29, 35, 36, 37, 160, 161, 163])
def test_events_that_change_nothing_move_the_position(kind: int) -> None:
    decoder = fed(rotate("bin.000007"), format_description(), event(kind, b"....", 777))
    assert decoder.position.binlog == BinlogPosition.of("bin.000007", 777)


def test_rows_outside_a_transaction_are_refused() -> None:
    error = error_of(event(30, bytes(30), 777))
    assert isinstance(error, CorruptLogError)


def test_an_event_with_a_wrong_checksum_is_found_among_many() -> None:
    events = [event(29, bytes([n % 256]) * (n % 90 + 1), 200 + n) for n in range(300)]
    for gap in (0, 3, 4, 5):
        chunk = chunk_of(*events, gap=gap)
        starts, ends = chunk.starts, chunk.ends
        assert first_broken(chunk.buffer, starts, ends) is None
        for broken in (0, 1, 150, 299):
            for place in (starts[broken], ends[broken] - 5, ends[broken] - 1):
                data = bytearray(chunk.buffer)
                data[place] ^= 0x10
                assert first_broken(data, starts, ends) == broken


def test_offsets_go_on_where_32_bits_end() -> None:
    place = LogPlace(4)
    turn = 1 << 32
    low = np.array([100, 0, turn - 50, 30, 0, 900])
    assert place.ends(low).tolist() == [100, 0, turn - 50, turn + 30, 0, turn + 900]
    assert place.ends(np.array([turn - 1])).tolist() == [2 * turn - 1]
    assert place.ends(np.array([7])).tolist() == [2 * turn + 7]


def test_a_compressed_varchar_is_as_long_as_its_plain_value_may_be() -> None:
    for data, prefix, length in (
        (b"\x2d\x01", 2, 300),
        (b"\x00\x01", 2, 255),
        (b"\xff\0", 1, 254),
    ):
        wire = read_wire(141, ByteReader(data))
        assert (wire.prefix, wire.length, wire.compressed) == (prefix, length, True)
