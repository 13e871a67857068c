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
from airflow_cdc_provider.systems.mysql.source.told_events import library_event
from tests.systems.mysql.binlog.captured import CapturedLog

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
