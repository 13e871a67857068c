"""Single events given to mysql-replication's classes, without its stream and its connection."""

from __future__ import annotations

from typing import Any

from pymysql.protocol import MysqlPacket
from pymysqlreplication.packet import BinLogPacketWrapper

_HEADER, _SIZE_AT, _CHECKSUM = 19, 9, 4
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


class Dialect:
    """What the library asks of a control connection."""

    charset = "utf8mb4"

    def __init__(self, flavour: str) -> None:
        self._flavour = flavour

    def _get_dbms(self) -> str:
        return self._flavour


def library_event(
    kind: type[Any], event: bytes, tables: dict[int, Any], dialect: Dialect
) -> tuple[Any, int]:
    """Read an event without checksum; return it, and where its `read_bytes` stops at the end.

    The library wants the bytes of a checksum behind an event, whatever they are.
    """
    length = (len(event) + _CHECKSUM).to_bytes(4, "little")
    padded = event[:_SIZE_AT] + length + event[_SIZE_AT + 4 :] + bytes(_CHECKSUM)
    packet = MysqlPacket(b"\0" + padded, "utf8")
    wrapper = BinLogPacketWrapper(
        packet, tables, dialect, use_checksum=True, allowed_events=(), **_OPTIONS
    )
    size = len(event) - _HEADER
    return kind(wrapper, size, tables, dialect, **_OPTIONS), size
