"""What mysql-replication reads from a log: the oracle of the column decoder, beside SELECT.

It is asked about logs and types only where the library is right.
"""

from __future__ import annotations

from typing import Any

from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader
from airflow_cdc_provider.systems.mysql.source.log_events import library_event
from tests.systems.mysql.binlog.captured import CapturedLog
from tests.systems.mysql.binlog.log_file import read_file

Row = dict[str, Any] | None
LoggedRow = tuple[Op, Row, Row]
_ROWS = {
    EventType.WRITE_ROWS_V1: (WriteRowsEvent, Op.INSERT, None, "values"),
    EventType.WRITE_ROWS: (WriteRowsEvent, Op.INSERT, None, "values"),
    EventType.UPDATE_ROWS_V1: (UpdateRowsEvent, Op.UPDATE, "before_values", "after_values"),
    EventType.UPDATE_ROWS: (UpdateRowsEvent, Op.UPDATE, "before_values", "after_values"),
    EventType.DELETE_ROWS_V1: (DeleteRowsEvent, Op.DELETE, "values", None),
    EventType.DELETE_ROWS: (DeleteRowsEvent, Op.DELETE, "values", None),
}


def rows_by_the_library(log: CapturedLog) -> list[LoggedRow]:
    """Return every row change of a log, in order."""
    tables, found = dict[int, Any](), list[LoggedRow]()
    reader = FrameReader()
    for frames in (frames for chunk in log.chunks() for frames in reader.read(chunk)):
        for place, code in enumerate(frames.types.tolist()):
            event = frames.data.text_at(int(frames.starts[place]), int(frames.ends[place]))
            if code == EventType.TABLE_MAP:
                table_map = library_event(TableMapEvent, event, tables, log.flavour)
                tables[table_map.table_id] = table_map.get_table()
            elif code in _ROWS:
                kind, op, before, after = _ROWS[EventType(code)]
                rows = library_event(kind, event, tables, log.flavour).rows
                found.extend((op, row.get(before), row.get(after)) for row in rows)
    return found


def places_by_the_library(log: CapturedLog, table: str) -> list[tuple[int, int, int]]:
    """Return where each row's event begins, the row's number in it, and the server's id.

    Events inside a compressed transaction begin where that does.
    """
    tables, found = dict[int, Any](), list[tuple[int, int, int]]()
    reader = FrameReader()
    (whole,) = read_file(log.path, 1 << 30)
    begins = {
        int.from_bytes(whole.buffer[start + 13 : start + 17], "little"): start + 4
        for start in whole.starts.tolist()
    }
    for frames in reader.read(whole):
        for place, code in enumerate(frames.types.tolist()):
            event = frames.data.text_at(int(frames.starts[place]), int(frames.ends[place]))
            table_id = int.from_bytes(event[19:25], "little")
            if code == EventType.TABLE_MAP and b"%c%s\0" % (len(table), table.encode()) in event:
                table_map = library_event(TableMapEvent, event, tables, log.flavour)
                tables[table_map.table_id] = table_map.get_table()
            elif code in _ROWS and table_id in tables:
                rows = library_event(_ROWS[EventType(code)][0], event, tables, log.flavour)
                begin = begins[int(frames.log_pos[place])]
                server_id = rows.packet.server_id
                found += [(begin, number, server_id) for number in range(len(rows.rows))]
    return found
