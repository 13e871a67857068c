"""Updates that log only parts of JSON columns, rewritten as the whole updates they stand for.

With `binlog_row_value_options=PARTIAL_JSON` MySQL logs updates of tables with JSON columns as
PARTIAL_UPDATE_ROWS. Such an event is UPDATE_ROWS but for its after images: each begins with the
options of its row (a length-encoded number; 1 is partial JSON) and, if partial, a bitmap with a
bit for every JSON column of the table. A column whose bit is set holds, behind its length, diffs
to the before image's document instead of a document. Applied here row by row, they give an event
that goes the way of all others; everything else of it is copied as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.errors import CdcError, UnknownEventError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.json.json_diffs import changed_document
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import TableMap
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire

_PARTIAL_JSON = 1


def whole_updates(frames: Frames, events: IntArray, table: TableMap) -> Frames:
    """Return one table's row events, with partial JSON updates made whole."""
    buffer = bytearray()
    starts, ends = [], []
    for number in events.tolist():
        event = frames.data.text_at(int(frames.starts[number]), int(frames.ends[number]))
        if frames.types[number] == EventType.PARTIAL_UPDATE_ROWS:
            event = _whole_update(event, table)
        starts.append(len(buffer))
        buffer += event
        ends.append(len(buffer))
    types = frames.types[events]
    return Frames(
        ByteViews(bytes(buffer)),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        np.where(types == EventType.PARTIAL_UPDATE_ROWS, EventType.UPDATE_ROWS, types).astype(
            np.uint8
        ),
        frames.log_pos[events],
        frames.stored_bytes[events],
        frames.file_bytes[events],
    )


def _whole_update(event: bytes, table: TableMap) -> bytes:
    """Rewrite one partial update event as UPDATE_ROWS; incomplete images are left out."""
    reader = ByteReader(event, HEADER_BYTES + 8)
    reader.take(reader.number(2) - 2)
    columns = reader.packed()
    bitmaps = [int.from_bytes(reader.take((columns + 7) // 8), "little") for _ in range(2)]
    head = event[: reader.offset]
    whole = (1 << len(table.wires)) - 1
    if columns != len(table.wires) or any(bitmap & whole != whole for bitmap in bitmaps):
        return head
    images: list[bytes] = []
    while reader.left:
        images.extend(_row(reader, table))
    return head + b"".join(images)


def _row(reader: ByteReader, table: TableMap) -> list[bytes]:
    """Read both images of an updated row, and return them with whole JSON documents."""
    nulls_before, before = _image(reader, table.wires)
    partial = _partial_columns(reader, table.wires)
    nulls_after, after = _image(reader, table.wires)
    for index in partial:
        diffs, prefix = after[index], table.wires[index].prefix
        if not diffs:
            continue
        try:
            document = changed_document(before[index][prefix:], diffs[prefix:])
        except CdcError as error:
            where = f"table {table.table}, column {table.columns[index].name}"
            raise error.located(where) from error
        after[index] = len(document).to_bytes(prefix, "little") + document
    return [nulls_before, *before, nulls_after, *after]


def _partial_columns(reader: ByteReader, wires: Sequence[Wire]) -> list[int]:
    """Read an after image's options; return the indexes of JSON columns that hold diffs."""
    options = reader.packed()
    if options & ~_PARTIAL_JSON:
        raise UnknownEventError(
            f"a row is logged with options {options}, which are not known",
            risk="its values would be read wrong",
            remedy="SET GLOBAL binlog_row_value_options = '', and report the server's version",
        )
    if not options:
        return []
    documents = [index for index, wire in enumerate(wires) if wire.kind == "json"]
    bits = int.from_bytes(reader.take((len(documents) + 7) // 8), "little")
    return [index for number, index in enumerate(documents) if bits >> number & 1]


def _image(reader: ByteReader, wires: Sequence[Wire]) -> tuple[bytes, list[bytes]]:
    """Read a row image: its bitmap of NULLs, and its cells with their lengths."""
    bitmap = reader.take((len(wires) + 7) // 8)
    nulls = int.from_bytes(bitmap, "little")
    cells = [b"" if nulls >> index & 1 else _cell(reader, wire) for index, wire in enumerate(wires)]
    return bitmap, cells


def _cell(reader: ByteReader, wire: Wire) -> bytes:
    """Read one cell with its length."""
    if not wire.prefix:
        return reader.take(wire.width)
    length = reader.take(wire.prefix)
    return length + reader.take(int.from_bytes(length, "little"))
