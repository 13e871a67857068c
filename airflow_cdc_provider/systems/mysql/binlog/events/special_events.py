"""Events that are read alone, and those that end the stream."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import RESET, SEE_LOG, IntegrityError, UnknownEventError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import (
    ByteReader,
    as_text,
    damaged,
)
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType, type_name
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition

_HEARTBEAT_FILE, _HEARTBEAT_OFFSET, _HEARTBEAT_END = 1, 2, 0


def rotate_target(body: bytes) -> BinlogPosition:
    """Read the binlog position to which a ROTATE event leads."""
    reader = ByteReader(body)
    offset = reader.number(8)
    name = as_text(reader.rest())
    try:
        return BinlogPosition.of(name, offset)
    except ValueError as error:
        raise damaged(f"the log goes on in a file without a number: {error}") from None


def heartbeat_place(kind: int, body: bytes, log_pos: int) -> tuple[str, int]:
    """Return the file and offset that a heartbeat names; offset 0 is unknown."""
    if kind == EventType.HEARTBEAT:
        return as_text(body), log_pos
    reader = ByteReader(body)
    file, offset = "", 0
    while reader.left and (field := reader.packed()) != _HEARTBEAT_END:
        value = ByteReader(reader.counted())
        if field == _HEARTBEAT_FILE:
            file = as_text(value.rest())
        elif field == _HEARTBEAT_OFFSET:
            offset = value.packed()
    return file, offset


def refuse(kind: int, where: str, body: bytes) -> IntegrityError:
    """Return the error for an event that cannot be passed."""
    match kind:
        case EventType.INCIDENT:
            code = int.from_bytes(body[:2], "little")
            text = body[3:].decode("utf-8", "replace")
            return IntegrityError(
                f"the source logged an incident (number {code}: {text})",
                where=where,
                risk="changes of the source are missing from its log",
                remedy=RESET,
            )
        case EventType.MARIADB_START_ENCRYPTION:
            return IntegrityError(
                "the log file is encrypted",
                where=where,
                risk="its events cannot be read",
                remedy="read it from the server, which decrypts it, not from the file",
            )
        case EventType.BEGIN_LOAD_QUERY | EventType.EXECUTE_LOAD_QUERY | EventType.APPEND_BLOCK:
            return IntegrityError(
                "the log holds LOAD DATA as a statement, not as rows",
                where=where,
                risk="rows it loaded are not in the log",
                remedy=f"SET GLOBAL binlog_format = 'ROW', reconnect the writers, and {RESET}",
            )
        case _:
            return UnknownEventError(
                f"an event of {type_name(kind)} is not understood",
                where=where,
                risk="it could carry changes, which would be lost",
                remedy=f"{SEE_LOG}, and report it with the server's version",
            )
