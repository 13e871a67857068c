"""A read view of one table at exactly one place of the log, for a table whose rows have no key.

What was committed around a read cannot be replayed onto rows that nothing tells apart: a change may
be among them already, and would be done twice. So there must be none. L is taken, a transaction
gets its read view, H is taken, and the log of (L, H] is looked at: if it changed nothing of the
table, the view is the table at H, and all of it is read. Otherwise another view is tried. From L to
H takes some milliseconds, so a table that is written to a hundred times a second has a quiet moment
soon. No lock is taken.

On MariaDB a snapshot's transaction knows its place, and the first view is the right one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.systems.mysql.server.capabilities import WatermarkMode
from airflow_cdc_provider.systems.mysql.server.connection import query

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cdc_provider.core.table_schema import TableSchema
    from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection
    from airflow_cdc_provider.systems.mysql.source.log_tail import LogTail
    from airflow_cdc_provider.systems.mysql.source.watermarks import Watermarks

_QUIET_WAIT_S = 30.0


def open_quiet_view(
    connection: ServerConnection,
    watermarks: Watermarks,
    tail: LogTail,
    schema: TableSchema,
    checked_low: Callable[[MySqlPosition], MySqlPosition],
) -> tuple[MySqlPosition, MySqlPosition]:
    """Open a transaction whose read view has the table as it is at H; return L and H.

    `checked_low` refuses an L that went back. A `RetryableError` if the table is written to at
    every moment of half a minute.
    """
    deadline, tries = time.monotonic() + _QUIET_WAIT_S, 0
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    while True:
        tries += 1
        low = watermarks.low()
        if watermarks.mode is not WatermarkMode.CONSISTENT_SNAPSHOT:  # there it has begun
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        high = watermarks.high(low)
        if _is_quiet(tail, schema, checked_low(low), high):
            return low, high
        query(connection, "COMMIT")
        if time.monotonic() >= deadline:
            raise _never_quiet(connection, watermarks.mode, schema, tries)


def _is_quiet(tail: LogTail, schema: TableSchema, low: MySqlPosition, high: MySqlPosition) -> bool:
    """Tell whether the log of (L, H] changes nothing of a table."""
    if high == low or high.binlog is None:
        return high == low
    tail.forget(low)
    found = list(tail.changes(schema.table, low, high.binlog))
    return all(
        isinstance(each, Statement) and not each.effect.changes(schema, ignore_case=True)
        for each in found
    )


def _never_quiet(
    connection: ServerConnection, mode: WatermarkMode, schema: TableSchema, tries: int
) -> RetryableError:
    """Return the error for a table that is written to at every moment."""
    remedy = "it is tried again; give the table a key, or begin when less is written to it"
    if mode is WatermarkMode.LOG_FILE_START:
        remedy = (
            "GRANT BACKUP_ADMIN ON *.* to the account, or switch GTIDs on: without either the only "
            "safe place is the start of the current log file, which may hold changes of the table"
        )
    return RetryableError(
        f"{schema.table} has no key, and the log changes it between the low and the high "
        f"watermark of each of {tries} reads",
        f"{connection.host}:{connection.port}",
        "none: nothing was read; a change could be lost or doubled",
        remedy,
    )
