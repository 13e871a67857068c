"""Damage that its checksum does not show is refused by name or decoded, never anything else."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.core.errors import CdcError, CorruptLogError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.events.compressed_events import (
    frame_events,
    plain_event,
)
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.json.json_diffs import changed_document
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import json_text
from airflow_cdc_provider.systems.mysql.binlog.rows.number_cells import decimals
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells, RowLayout
from airflow_cdc_provider.systems.mysql.binlog.rows.text_cells import sets, variable
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_type
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.systems.mysql.binlog.capture import FOLDER
from tests.systems.mysql.binlog.captured import SERVER
from tests.systems.mysql.binlog.damage import chosen_event, damaged_event, within
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, every_type_schema

TRIES = 150
BEHIND = 20
"""How many events behind the damaged one are decoded too."""
OPENING = {EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID}
NAMES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))


def events_of(name: str) -> list[bytes]:
    stored = gzip.decompress((FOLDER / f"{name}.bin.gz").read_bytes())[4:]
    chunk, _ = frame_events(stored)
    return [stored[start:end] for start, end in zip(chunk.starts, chunk.ends, strict=True)]


def decode(events: list[bytes], name: str, zero_dates: ZeroDates) -> None:
    """Decode everything; what comes out must be whole."""
    flavour = MARIADB if name.startswith("mariadb") else MYSQL
    told: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    schema = every_type_schema(TableId("shop", "every_type"), flavour)
    gtids = MariaDbGtidPosition() if flavour == MARIADB else GtidSet()
    decoder = ColumnDecoder(
        MySqlPosition(SERVER, BinlogPosition.of(told["file"], 4), gtids),
        server_uuid=SERVER,
        flavour=flavour,
        captured=lambda _table: True,
        schemas={schema.table: schema}.get,
        zero_dates=zero_dates,
    )
    chunk, _ = frame_events(b"".join(events))
    for batch in [*decoder.feed(chunk), decoder.flush()]:
        for changes in batch.tables if batch else ():
            changes.before.validate(full=True)
            changes.after.validate(full=True)


@pytest.mark.parametrize("name", NAMES)
def test_damage_to_a_log_is_refused_by_name(name: str) -> None:
    events = events_of(name)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    refused = 0
    for _ in range(TRIES):
        place = chosen_event(events, source)
        damaged = damaged_event(events[place], source, checksum="no_checksum" not in name)
        opening = [n for n, event in enumerate(events[:place]) if event[4] in OPENING]
        before = events[opening[-2] : place] if len(opening) > 1 else events[1:place]
        tried = [events[0], *before, damaged, *events[place + 1 : place + BEHIND]]
        if not place:
            tried = [damaged, *events[1:BEHIND]]
        try:
            with within(20):
                decode(tried, name, source.choice(list(ZeroDates)))
        except CdcError:
            refused += 1
        except Exception as error:
            where = f"event {place} of {name}, type {damaged[4]}: {damaged.hex()}"
            raise AssertionError(where) from error
    assert refused > TRIES // 10


def column(values: list[bytes], *, lengths: bool = False) -> Cells:
    sizes = np.array([len(value) for value in values])
    places = np.cumsum(sizes) - sizes
    data = ByteViews(bytes(HEADER_BYTES) + b"".join(values))
    return Cells(data, places + HEADER_BYTES, sizes if lengths else None, None)


def test_a_group_of_a_decimal_over_its_digits_is_refused() -> None:
    wire = Wire("decimal", 5, length=10, scale=0)
    kind = arrow_type(mysql_type("decimal", precision=10, scale=0))
    good, bad = b"\x80" + (999_999_999).to_bytes(4, "big"), b"\x80" + (10**9).to_bytes(4, "big")
    assert decimals(column([good]), wire, kind).to_pylist() == [999_999_999]
    with pytest.raises(CorruptLogError, match="9 digits of a DECIMAL"):
        decimals(column([good, bad]), wire, kind)


def test_a_set_with_more_bits_than_members_is_refused() -> None:
    kind = mysql_type("set", members=("a", "b"))
    assert sets(column([b"\3"]), Wire("set", 1), kind).to_pylist() == ["a,b"]
    with pytest.raises(CorruptLogError, match="more bits"):
        sets(column([b"\4"]), Wire("set", 1), kind)


def test_a_binary_value_longer_than_its_column_is_refused() -> None:
    kind = mysql_type("binary", length=2)
    with pytest.raises(CorruptLogError, match="of 2 bytes at most has 3"):
        variable(column([b"a", b"abc"], lengths=True), Wire("char", prefix=1, length=2), kind)


@pytest.mark.parametrize("count", [1, 20])
def test_rows_that_begin_behind_their_event_are_refused(count: int) -> None:
    layout = RowLayout([Wire("integer", 4)])
    starts = np.arange(count) * 5
    ends = starts + 5
    assert len(layout.walk(ByteViews(bytes(5 * count)), starts, ends)) == count
    starts[-1] = ends[-1] + 1
    with pytest.raises(CorruptLogError, match="longer than its event"):
        layout.walk(ByteViews(bytes(5 * count + 9)), starts, ends)


def small_array(*offsets: int, size: int = 0) -> bytes:
    """Write an array of arrays at these places."""
    entries = b"".join(b"\2" + offset.to_bytes(2, "little") for offset in offsets)
    return len(offsets).to_bytes(2, "little") + size.to_bytes(2, "little") + entries


SAME_STRINGS = (2000).to_bytes(2, "little") + bytes(2) + b"\x0c\x74\x17" * 2000
"""An array of 2000 times the string behind it, at 4 + 3 * 2000."""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"\2" + small_array(0), id="an array that holds itself"),
        pytest.param(
            b"\2" + b"".join(small_array(*(level * 34 + 34,) * 10) for level in range(30)),
            id="arrays that all hold the next ones",
        ),
        pytest.param(
            b"\2" + SAME_STRINGS + b"\xd0\x86\3" + b"x" * 50_000, id="one string in many places"
        ),
        pytest.param(b"\x0c" + b"\xff" * 2_000_000, id="a length without an end"),
        pytest.param(b"\4\7", id="a literal that is none"),
        pytest.param(b"\x0f\xf6\3\1\2\0", id="a decimal of more decimals than digits"),
    ],
)
def test_a_json_document_that_leads_back_is_refused(document: bytes) -> None:
    tracemalloc.start()
    try:
        with within(5), pytest.raises(CorruptLogError, match="not whole"):
            json_text(document)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_part_for_a_document_that_leads_back_is_refused() -> None:
    with within(5), pytest.raises(CorruptLogError, match="not whole"):
        changed_document(b"\2" + small_array(0), b"\2\4$[0]")


def compressed_rows(announced: int, packed: bytes) -> bytes:
    """Write a compressed insert into a table of one column."""
    head = bytearray(HEADER_BYTES)
    head[4] = EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1
    width = (announced.bit_length() + 7) // 8
    return (
        bytes(head) + bytes(8) + b"\1\1" + bytes([0x80 | width]) + announced.to_bytes(width, "big")
    ) + packed


def test_a_compressed_event_is_unpacked_no_further_than_it_announces() -> None:
    rows = bytes(64 << 20)
    packed = zlib.compress(rows)
    assert plain_event(compressed_rows(len(rows), packed)).endswith(rows)
    tracemalloc.start()
    try:
        for announced in (1000, (1 << 30) + 1, 1 << 55):
            with pytest.raises(CorruptLogError, match="announces"):
                plain_event(compressed_rows(announced, packed))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
