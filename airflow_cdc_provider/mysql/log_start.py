"""Where a reader of the log may start, checked against the server that answers (law 10).

A position was taken on one server at one time. When a reader connects, another server may stand
behind the same name, its log may be purged, or it may have been reset and be filled anew under
the same file names. So, before each dump:

- the same server: start by file and offset. The file must still be listed and be long enough,
  and every transaction we have must be among those the server has executed;
- another server: its history must contain ours by GTID; start by the set. Without GTIDs a
  position means nothing there, and is refused;
- what was purged must be contained in what we have; if not, the error names the gap exactly.

A reader may be ahead of `gtid_executed` for the time of a group commit, because the dump sends
transactions before they are visible. Transactions that seem to be missing are asked for again
for some seconds before that is believed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from airflow_cdc_provider.core.errors import BinlogPurgedError, SourceIdentityError
from airflow_cdc_provider.core.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.core.positions import BinlogPosition, LogPosition
from airflow_cdc_provider.mysql.connection import query

if TYPE_CHECKING:
    from airflow_cdc_provider.mysql.capabilities import Capabilities
    from airflow_cdc_provider.mysql.connection import ServerConnection

LARGEST_OFFSET = 0xFFFFFFFF
"""A dump by file takes an offset of 32 bits."""
_COMMIT_WAIT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LogStart:
    """A start that the server can serve: by file and offset, or else by GTIDs."""

    position: LogPosition
    """What we have; the first event sent is the one after."""
    by_file: bool


def check_start(
    connection: ServerConnection,
    capabilities: Capabilities,
    wanted: LogPosition,
    *,
    commit_wait_s: float = _COMMIT_WAIT_S,
) -> LogStart:
    """Tell how this server can go on from `wanted`, or raise what stands against it."""
    same = wanted.server_uuid == capabilities.server_uuid
    if isinstance(wanted.gtids, GtidSet) and not capabilities.is_mariadb:
        _check_lineage(connection, capabilities, wanted.gtids, commit_wait_s)
    if same and wanted.binlog is not None:
        purged = _missing_file(connection, capabilities, wanted.binlog)
        if not purged and isinstance(wanted.gtids, MariaDbGtidPosition):
            _check_place(connection, wanted.binlog, wanted.gtids)
        if not purged and wanted.binlog.offset <= LARGEST_OFFSET:
            return LogStart(wanted, by_file=True)
        if wanted.gtids is None:
            _refuse_file(capabilities, wanted.binlog, purged)
    if wanted.gtids is None:
        raise SourceIdentityError(
            f"server {capabilities.server_uuid} answers, the position is of {wanted.server_uuid} "
            "and has no GTIDs",
            _where(connection),
            "a file and offset mean something else on another server",
            "connect to the former server, or take a new snapshot",
        )
    if isinstance(wanted.gtids, GtidSet) is capabilities.is_mariadb:
        raise SourceIdentityError(
            f"the position {wanted} is of another family of servers",
            _where(connection),
            "the logs have nothing in common",
            "take a new snapshot",
        )
    if isinstance(wanted.gtids, GtidSet):
        _check_purged(connection, wanted.gtids)
    elif isinstance(wanted.gtids, MariaDbGtidPosition):
        _check_domains(connection, wanted.gtids)
    return LogStart(LogPosition(capabilities.server_uuid, None, wanted.gtids), by_file=False)


def log_end(connection: ServerConnection, capabilities: Capabilities) -> BinlogPosition:
    """Ask for the end of the log: an upper bound of what any earlier read has seen."""
    rows = query(connection, capabilities.status_statement)
    if not rows:
        raise SourceIdentityError(
            "the server writes no binary log",
            _where(connection),
            "changes cannot be followed",
            "switch log_bin on and take a new snapshot",
        )
    return BinlogPosition.of(str(rows[0][0]), int(rows[0][1]))


def _check_lineage(
    connection: ServerConnection, capabilities: Capabilities, ours: GtidSet, commit_wait_s: float
) -> None:
    """Require that the server has executed every transaction we have."""
    deadline = time.monotonic() + commit_wait_s
    while True:
        executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
        unknown = ours.subtract(executed)
        if not unknown:
            return
        if time.monotonic() >= deadline:
            raise SourceIdentityError(
                f"server {capabilities.server_uuid} does not have transactions that we have: "
                f"{unknown}",
                _where(connection),
                "its history and ours have parted: it was reset, restored, or lost commits in a "
                "crash or failover",
                "connect to a server that has them, or take a new snapshot",
            )
        time.sleep(_POLL_S)


def _check_purged(connection: ServerConnection, ours: GtidSet) -> None:
    purged = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_purged")[0][0]))
    missing = purged.subtract(ours)
    if missing:
        raise BinlogPurgedError(
            f"the server has purged transactions we have not read: {missing}",
            _where(connection),
            "their changes are lost to us",
            "take a new snapshot; keep logs longer than the longest pause",
        )


def _check_domains(connection: ServerConnection, ours: MariaDbGtidPosition) -> None:
    """Require that MariaDB's log reaches at least as far as ours in each domain."""
    text = str(query(connection, "SELECT @@global.gtid_current_pos")[0][0])
    unknown = [str(gtid) for gtid in ours if gtid not in MariaDbGtidPosition.parse(text)]
    if unknown:
        raise SourceIdentityError(
            f"the server does not have transactions that we have: {', '.join(unknown)}",
            _where(connection),
            "its history and ours have parted",
            "connect to a server that has them, or take a new snapshot",
        )


def _check_place(
    connection: ServerConnection, place: BinlogPosition, ours: MariaDbGtidPosition
) -> None:
    """Require that MariaDB's log holds our transactions before our place in it.

    A log that was reset begins anew under the same file names, with numbers from 1.
    """
    told = query(connection, f"SELECT BINLOG_GTID_POS('{place.file}', {place.offset})")[0][0]
    found = MariaDbGtidPosition.parse(str(told or ""))
    if not found.covers(ours):
        raise SourceIdentityError(
            f"the log has {told or 'nothing'} up to {place}, where we have {ours}",
            _where(connection),
            "the log was reset and filled anew; what came in between is not known",
            "take a new snapshot",
        )


def _missing_file(
    connection: ServerConnection, capabilities: Capabilities, wanted: BinlogPosition
) -> bool:
    """Tell whether the file was purged; a place the log never reached is another history."""
    files = {
        BinlogPosition.of(str(row[0]), 0).file_number: int(row[1])
        for row in query(connection, "SHOW BINARY LOGS")
    }
    if wanted.file_number in files:
        size = files[wanted.file_number]
        if wanted.offset <= size or log_end(connection, capabilities) >= wanted:
            return False
        _refuse_beyond(connection, wanted, f"{wanted.file} ends at {size}")
    if not files or wanted.file_number > max(files):
        _refuse_beyond(connection, wanted, f"the last file is number {max(files, default=0)}")
    return True


def _refuse_beyond(connection: ServerConnection, wanted: BinlogPosition, found: str) -> NoReturn:
    raise SourceIdentityError(
        f"the log does not reach {wanted}: {found}",
        _where(connection),
        "the log was reset, or lost its end in a crash; what we have is not in it",
        "take a new snapshot",
    )


def _refuse_file(capabilities: Capabilities, wanted: BinlogPosition, purged: bool) -> NoReturn:  # noqa: FBT001
    if purged:
        raise BinlogPurgedError(
            f"the server has purged {wanted.file}; we stopped at {wanted}",
            capabilities.server_uuid,
            f"the changes from {wanted} to the oldest file are lost to us",
            "take a new snapshot; keep logs longer than the longest pause",
        )
    raise SourceIdentityError(
        f"{wanted} lies beyond the 4 GiB that a start by file can name, and there are no GTIDs",
        capabilities.server_uuid,
        "another place of the file would be read",
        "switch GTIDs on, or start from an earlier position",
    )


def _where(connection: ServerConnection) -> str:
    return f"{connection.host}:{connection.port}"
