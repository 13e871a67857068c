"""What single events of the log say, for people to look at.

Tables and rows are taken apart by mysql-replication, which shares nothing with the column decoder:
where a stream stops at an event, this still tells what there is. What it cannot read is said so,
never raised. Its values are only to be looked at: it shows some types otherwise than SELECT does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pymysql.protocol import MysqlPacket
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.logged_events import LoggedEvent
from airflow_cdc_provider.core.statement_effect import StatementKind
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    EventType,
    type_name,
)
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader, Frames
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import read_gtids
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.source.log_window import RawEvent

_SIZE_AT = 9
_OPTIONS = {
    "mysql_version": (8, 0, 0),
    "only_tables": None,
    "ignored_tables": None,
    "only_schemas": None,
    "ignored_schemas": None,
    "freeze_schema": False,
    "ignore_decode_errors": False,
    "verify_checksum": False,
    "optional_meta_data": True,
    "enable_logging": False,
}
_ROWS = {
    EventType.WRITE_ROWS_V1: WriteRowsEvent,
    EventType.WRITE_ROWS: WriteRowsEvent,
    EventType.UPDATE_ROWS_V1: UpdateRowsEvent,
    EventType.UPDATE_ROWS: UpdateRowsEvent,
    EventType.PARTIAL_UPDATE_ROWS: PartialUpdateRowsEvent,
    EventType.DELETE_ROWS_V1: DeleteRowsEvent,
    EventType.DELETE_ROWS: DeleteRowsEvent,
}
_CONTROL = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+)?")
"""The first words of a statement that controls a transaction."""
_SIDES = {"values": "row", "before_values": "before", "after_values": "after"}
_PLAIN = (bool, int, float, str, type(None))


class _Dialect:
    """A stand-in for the control connection that mysql-replication asks for its server's family."""

    charset = "utf8mb4"

    def __init__(self, flavour: str) -> None:
        self._flavour = flavour

    def _get_dbms(self) -> str:
        """Return the server's family, which mysql-replication asks for."""
        return self._flavour


def library_event(kind: type[Any], event: bytes, tables: dict[int, Any], flavour: str) -> Any:
    """Decode an event without checksum by a class of the library mysql-replication.

    The library wants the bytes of a checksum behind an event, whatever they are.
    """
    length = (len(event) + CHECKSUM_BYTES).to_bytes(4, "little")
    padded = event[:_SIZE_AT] + length + event[_SIZE_AT + 4 :] + bytes(CHECKSUM_BYTES)
    dialect = _Dialect(flavour)
    packet = MysqlPacket(b"\0" + padded, "utf8")
    wrapper = BinLogPacketWrapper(
        packet, tables, dialect, use_checksum=True, allowed_events=(), **_OPTIONS
    )
    return kind(wrapper, len(event) - HEADER_BYTES, tables, dialect, **_OPTIONS)


def described_events(
    raw: RawEvent, flavour: str, *, most: int, values: bool
) -> Iterator[LoggedEvent]:
    """Yield the description of a raw event, and of the first events in a compressed one."""
    told = LoggedEvent(
        raw.start.file,
        raw.start.offset,
        raw.end.offset,
        type_name(raw.kind).partition(" (")[0],
        int.from_bytes(raw.data[:4], "little"),
        len(raw.data),
    )
    try:
        yield from _told(raw, told, _Reading(flavour, values=values), most)
    except CdcError as error:
        yield replace(told, problem=error.what)


def _told(raw: RawEvent, told: LoggedEvent, reading: _Reading, most: int) -> Iterator[LoggedEvent]:
    """Yield the description of an event, and of the events within a transaction payload."""
    plain = _Plain(raw.format)
    if raw.gtid:
        told = replace(told, transaction=_gtid(next(plain.events(raw.gtid))))
    if raw.table:
        reading.told(told, next(plain.events(raw.table)))
    if raw.kind != EventType.TRANSACTION_PAYLOAD:
        yield reading.told(told, next(plain.events(raw.data)))
        return
    yield told
    for number, event in enumerate(plain.events(raw.data)):
        if number == most:
            yield replace(told, compressed=True, problem=f"only its first {most} events are shown")
            return
        kind, second = type_name(event[4]).partition(" (")[0], int.from_bytes(event[:4], "little")
        inner = replace(told, kind=kind, time_s=second, bytes=len(event), compressed=True)
        yield reading.told(inner, event)


class _Plain:
    """Verifies, decompresses and yields the single events of one log file."""

    def __init__(self, format_description: bytes) -> None:
        self._reader = FrameReader()
        next(self.events(format_description))

    def events(self, data: bytes) -> Iterator[bytes]:
        """Yield the plain events, without checksums, that a logged event contains."""
        chunk = EventChunk(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))
        for frames in self._reader.read(chunk):
            for start, end in zip(frames.starts, frames.ends, strict=True):
                yield frames.data.text_at(int(start), int(end))


def _gtid(event: bytes) -> str:
    """Return the GTID of a GTID event as text, empty for an anonymous one."""
    data = ByteViews(event)
    none, end = np.zeros(1, np.int64), np.array([len(data)], np.int64)
    frames = Frames(data, none, end, data.u8[4:5], none, end, end)
    return str(read_gtids(frames, none).gtid(0) or "")


class _Reading:
    """Describes plain events in log order; rows need the table maps before them."""

    def __init__(self, flavour: str, *, values: bool) -> None:
        self._flavour = flavour
        self._values = values
        self._tables: dict[int, Any] = {}

    def told(self, told: LoggedEvent, event: bytes) -> LoggedEvent:
        """Return the description of an event with its statement, table or rows."""
        kind = event[4]
        if kind == EventType.QUERY:
            return _statement(told, event)
        if kind != EventType.TABLE_MAP and kind not in _ROWS:
            return told
        try:
            return (
                self._table(told, event) if kind == EventType.TABLE_MAP else self._rows(told, event)
            )
        except Exception as error:  # noqa: BLE001 - whatever the library meets is told, not raised
            return replace(told, problem=f"mysql-replication cannot read it: {error!r}")

    def _table(self, told: LoggedEvent, event: bytes) -> LoggedEvent:
        """Add the table of a table map to an event's description, and keep the map for rows."""
        found = library_event(TableMapEvent, event, self._tables, self._flavour)
        self._tables[found.table_id] = found.get_table()
        return replace(told, tables=(f"{found.schema}.{found.table}",))

    def _rows(self, told: LoggedEvent, event: bytes) -> LoggedEvent:
        """Add the table and the rows of a row event to its description."""
        found = library_event(_ROWS[EventType(event[4])], event, self._tables, self._flavour)
        told = replace(told, tables=(f"{found.schema}.{found.table}",))
        rows = found.rows
        values = tuple(_shown(row) for row in rows) if self._values else ()
        return replace(told, rows=len(rows), values=values)


def _statement(told: LoggedEvent, event: bytes) -> LoggedEvent:
    """Add the kind and the tables of a statement to an event's description.

    Its text is left out: it may hold values, and passwords.
    """
    logged = LoggedStatement.read(event[HEADER_BYTES:])
    effect = effect_of(
        logged.sql,
        default_database=logged.database,
        ansi_quotes=logged.ansi_quotes,
        backslash_escapes=logged.backslash_escapes,
    )
    words = _CONTROL.match(logged.sql) if effect.kind is StatementKind.TRANSACTION else None
    return replace(
        told,
        statement=words[0].upper() if words else effect.kind.value,
        tables=tuple(map(str, effect.tables)),
    )


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row, or its before and after images, as plain values."""
    return {
        name: {column: _plain_value(value) for column, value in row[side].items()}
        for side, name in _SIDES.items()
        if side in row
    }


def _plain_value(value: object) -> object:
    """Return a value as it is if JSON has it, else as text."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value if isinstance(value, _PLAIN) else str(value)
