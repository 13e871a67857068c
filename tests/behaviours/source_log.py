"""The log of a source that is made up: places in it are offsets."""

from __future__ import annotations

from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(offset: int) -> MySqlPosition:
    """A place in the source's log."""
    return MySqlPosition(SERVER, BinlogPosition(1, offset))


def point(start: int, end: int) -> MySqlPoint:
    """A transaction or a statement from one place to another."""
    return MySqlPoint(SERVER, None, BinlogPosition(1, start), BinlogPosition(1, end), 7)
