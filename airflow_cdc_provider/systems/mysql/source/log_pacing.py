"""Where a micro-batch ends: at the end of the server's log, or earlier at the end of a log file.

Both are boundaries between transactions, and both are known without looking into the log. A
micro-batch may therefore be large, and holds many sink transactions. Progress is the ledger's
alone: after a crash reading goes on from the last commit, in the middle of a micro-batch
if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RESET, PositionWentBackError
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    MySqlPosition,
)

"""Where the first event of any log file begins."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the server's log: its number and its size."""

    file_number: int
    bytes: int


def next_end(
    start: MySqlPosition,
    now: MySqlPosition,
    *,
    bound: MySqlPosition | None = None,
    files: Sequence[LogFile] = (),
    batch_bytes: int = 1 << 62,
) -> MySqlPosition:
    """Return the position at which the micro-batch from `start` ends, `start` if it is empty.

    `now` is the end of the server's log. `bound` ends a bounded run. With `files` the batch holds
    no more whole files than `batch_bytes` allow, and at least the rest of its first one.
    """
    end = _earlier(now, bound)
    if end.server_uuid != start.server_uuid or start.binlog is None or end.binlog is None:
        # another server, or a start known by GTIDs only: the log reader checks the lineage
        return start if bound is not None and _covers(start, bound) else end
    if now.binlog is not None and now.binlog < start.binlog:
        raise _went_back(start, now)
    if end.binlog <= start.binlog:
        return start
    cut = _file_cut(start.binlog, end.binlog, files, batch_bytes)
    return MySqlPosition(end.server_uuid, cut)


def bytes_between(
    start: BinlogPosition, end: BinlogPosition, files: Sequence[LogFile]
) -> int | None:
    """Return how many bytes of log are between two positions; None if some of it is not there.

    `files` are all of the server's, needed where the two are in different ones.
    """
    if start.file_number == end.file_number:
        return end.offset - start.offset if start.offset <= end.offset else None
    sizes = {file.file_number: file.bytes for file in files}
    if start.file_number not in sizes or end < start:
        return None
    whole = sum(sizes[n] for n in sizes if start.file_number <= n < end.file_number)
    return whole - start.offset + end.offset


def _earlier(now: MySqlPosition, bound: MySqlPosition | None) -> MySqlPosition:
    """Return the earlier of the bound and the log's end.

    The end if the bound is not in this log.
    """
    if bound is None or bound.server_uuid != now.server_uuid or bound.binlog is None:
        return now
    return bound if now.binlog is None or bound.binlog < now.binlog else now


def _covers(start: MySqlPosition, bound: MySqlPosition) -> bool:
    """Tell whether the GTIDs of a start contain all of the bound's."""
    if start.gtids is not None and bound.gtids is not None:
        return start.covers(bound)
    return False


def _file_cut(
    start: BinlogPosition, end: BinlogPosition, files: Sequence[LogFile], batch_bytes: int
) -> BinlogPosition:
    """Return the end of a micro-batch: `end`, or the start of a file that `batch_bytes` allow."""
    taken = 0
    for file in sorted(files, key=lambda file: file.file_number):
        if file.file_number < start.file_number:
            continue
        if file.file_number >= end.file_number:
            break
        if taken and taken + file.bytes > batch_bytes:
            return BinlogPosition(file.file_number, FIRST_EVENT, end.base)
        taken += file.bytes
        if taken > batch_bytes:
            return BinlogPosition(_next_file(files, file, end), FIRST_EVENT, end.base)
    return end


def _next_file(files: Sequence[LogFile], file: LogFile, end: BinlogPosition) -> int:
    """Return the number of the log file after `file`, or of the end's file."""
    later = (other.file_number for other in files if other.file_number > file.file_number)
    return min(later, default=end.file_number)


def _went_back(start: MySqlPosition, now: MySqlPosition) -> PositionWentBackError:
    """Return the error for a log that ends before the stream's position."""
    return PositionWentBackError(
        f"the end of the source's log is {now.binlog}, before {start.binlog}, where the stream is",
        where=f"log of {now.server_uuid}",
        risk="changes made since the log was reset are unknown",
        remedy=f"if the log was reset on purpose, {RESET}",
    )
