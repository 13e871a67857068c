"""Where a reader of the log may start, checked against the server that answers (law 10).

A position was taken on one server at one time. When a reader connects, another server may stand
behind the same name, its log may be purged, or it may have been reset and be filled anew under
the same file names. So, before each dump:

- the server's history must contain ours: what we have read, and what the sink holds beyond that
  (see `gtid_history`);
- the same server: start by file and offset. The file must still be listed and be long enough;
- another server: start by GTIDs. Without them a position means nothing there, and is refused;
- what was purged must be contained in what we have; if not, the error names the gap exactly;
- nothing without a GTID may lie where a start by GTIDs passes over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from airflow_cdc_provider.core.errors import (
    ACCEPT_PURGED,
    RESET,
    LogPurgedError,
    SourceIdentityError,
)
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    Gtids,
    Imprint,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.gtid_history import (
    COMMIT_WAIT_S,
    beyond_the_end,
    check_history,
)
from airflow_cdc_provider.systems.mysql.source.log_files import LogFiles
from airflow_cdc_provider.systems.mysql.source.unnamed_transactions import require_named

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

LARGEST_OFFSET = 0xFFFFFFFF
"""A dump by file takes an offset of 32 bits."""


@dataclass(frozen=True, slots=True)
class LogStart:
    """The checked start of a dump: by file and offset, or else by GTIDs."""

    position: MySqlPosition
    """What we have; the first event handed out is the one after."""
    by_file: bool
    dump_from: BinlogPosition | None = None
    """Where the dump begins: before the position, if what stands there is to be known again."""
    expected: Imprint | None = None
    """What has to be found between `dump_from` and the position."""
    log_end: BinlogPosition | None = None


def check_start(
    connection: ServerConnection,
    capabilities: Capabilities,
    wanted: MySqlPosition,
    *,
    held: Sequence[AppliedThrough] = (),
    commit_wait_s: float = COMMIT_WAIT_S,
) -> LogStart:
    """Check that the server can serve the log from `wanted` on; return how a dump starts.

    What keeps it from that is raised. `held` is what the sink has from beyond `wanted`.
    """
    check_history(connection, capabilities, wanted, held, commit_wait_s=commit_wait_s)
    place = wanted.binlog
    if place is not None and wanted.server_uuid == capabilities.server_uuid:
        files = _files(connection, capabilities, place)
        purged = files.lacks(place)
        if not purged and isinstance(wanted.gtids, MariaDbGtidPosition):
            _check_place(connection, place, wanted.gtids)
        if not purged and place.offset <= LARGEST_OFFSET:
            return _by_file(wanted, place, files)
        if wanted.gtids is None:
            _refuse_file(capabilities, place, purged)
    if isinstance(wanted.gtids, GtidSet):
        _check_purged(connection, wanted.gtids)
        require_named(connection, wanted.gtids)
    return LogStart(MySqlPosition(capabilities.server_uuid, None, wanted.gtids), by_file=False)


def _by_file(wanted: MySqlPosition, place: BinlogPosition, files: LogFiles) -> LogStart:
    """Return a start by file, at the position or at its imprint if that file is there."""
    imprint = wanted.imprint
    if imprint is None or files.lacks(imprint.end):
        return LogStart(wanted, by_file=True, dump_from=place, log_end=files.end)
    begin = imprint.end.at(imprint.start) if imprint.digest else imprint.end
    return LogStart(wanted, by_file=True, dump_from=begin, expected=imprint, log_end=files.end)


def _files(
    connection: ServerConnection, capabilities: Capabilities, place: BinlogPosition
) -> LogFiles:
    """Query the server's log files; refuse a position beyond the end of the log."""
    files = LogFiles.ask(connection, capabilities)
    if files.ends_before(place):
        raise beyond_the_end(_where(connection), place, files)
    return files


def purged_unread(connection: ServerConnection, ours: Gtids) -> str | None:
    """Return the purged transactions that we have not read, as text; None if there are none."""
    if isinstance(ours, GtidSet):
        gone = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_purged")[0][0]))
        return str(gone.subtract(ours)) or None
    oldest = query(connection, "SHOW BINARY LOGS")[0][0]
    told = query(connection, f"SELECT BINLOG_GTID_POS('{oldest}', {FIRST_EVENT})")[0][0]
    gaps = []
    for gtid in MariaDbGtidPosition.parse(str(told or "")):
        known = ours.last.get(gtid.domain)
        first = 1 if known is None else known.sequence + 1
        if first <= gtid.sequence:
            gaps.append(f"of domain {gtid.domain} the numbers {first} to {gtid.sequence}")
    return "; ".join(gaps) or None


def purged(missing: str) -> str:
    """Return an error text that names purged transactions which were not read."""
    return f"the server has purged transactions we have not read: {missing}"


def _check_purged(connection: ServerConnection, ours: GtidSet) -> None:
    """Refuse the server if it has purged transactions that we have not read."""
    missing = purged_unread(connection, ours)
    if missing is not None:
        raise LogPurgedError(
            purged(missing), _where(connection), "their changes are lost to us", ACCEPT_PURGED
        )


def _check_place(
    connection: ServerConnection, place: BinlogPosition, ours: MariaDbGtidPosition
) -> None:
    """Refuse a MariaDB server whose log, up to a position, does not hold our GTIDs.

    A log that was reset begins anew under the same file names, with numbers from 1.
    """
    told = query(connection, f"SELECT BINLOG_GTID_POS('{place.file}', {place.offset})")[0][0]
    found = MariaDbGtidPosition.parse(str(told or ""))
    if not found.covers(ours):
        raise SourceIdentityError(
            f"the log has {told or 'nothing'} up to {place}, where we have {ours}",
            _where(connection),
            "the log was reset and filled anew; what came in between is not known",
            RESET,
        )


def _refuse_file(capabilities: Capabilities, wanted: BinlogPosition, purged: bool) -> NoReturn:  # noqa: FBT001
    """Raise the error for a file and offset that were purged, or are too far for a dump by file."""
    if purged:
        raise LogPurgedError(
            f"the server has purged {wanted.file}; we stopped at {wanted}",
            capabilities.server_uuid,
            f"the changes from {wanted} to the oldest file are lost to us",
            ACCEPT_PURGED,
        )
    raise SourceIdentityError(
        f"{wanted} lies beyond the 4 GiB that a start by file can name, and there are no GTIDs",
        capabilities.server_uuid,
        "another place of the file would be read",
        f"switch GTIDs on, and {RESET}",
    )


def _where(connection: ServerConnection) -> str:
    """Return the server's host and port."""
    return f"{connection.host}:{connection.port}"
