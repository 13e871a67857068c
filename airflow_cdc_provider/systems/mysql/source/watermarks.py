"""Low and high watermarks: places in the log around the read of a split (law 1).

L must be a lower bound of what the read sees, H an upper bound, and no single value of a server
serves both. A transaction commits in this order: its bytes are in the log file and the log's end
moves; the log is synced, and semi-synchronous replicas are waited for; the row becomes visible;
`gtid_executed` grows. So the log's end runs ahead of what a reader sees, by as long as a slow disk
or a missing replica takes, and `gtid_executed` never does. Hence

- H is always the log's end, asked for after the last row was read;
- L depends on the server: one class for each `WatermarkMode`.

`gtid_executed` is a lower bound in the order of the log only as long as the server commits in that
order, so a server with `binlog_order_commits` off is refused here too, and not only by preflight.

**Prepared XA transactions** are in the log, and executed by GTID, before anyone sees their rows.
That is no harm: whoever reads their commit later has their rows from the log before. But the
commit itself may lie before a place and still not be visible. `gtid_executed` does not contain it
then; all other places may. So without GTIDs none may be prepared around L, and `SnapshotWatermarks`
says how MariaDB is asked.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.core.errors import (
    RESET,
    AccessDeniedError,
    IntegrityError,
    SourceIdentityError,
    StillPreparedError,
    UnsupportedServerError,
)
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, WatermarkMode
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from airflow_cdc_provider.systems.mysql.source.prepared_transactions import prepared_transactions

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_XA_WAIT_S = 10.0
_XA_POLL_S = 0.2
_XA_SHORT_POLL_S = 0.005


class Watermarks(Protocol):
    """Takes L and H of splits in one session: `low`, the read, `high`, `release`, in this order."""

    mode: WatermarkMode
    settled: BinlogPosition | None
    """Where the log ended when L was taken, if L lies well before it.

    A definition logged before this place was complete when the rows were read: it holds its table
    against readers until it is, and began when no transaction on the table was open.
    """

    def low(self) -> MySqlPosition:
        """Take L; the session's next statement sees at least everything up to it."""

    def high(self, low: MySqlPosition) -> MySqlPosition:
        """Take H after the last row was read: an upper bound of what the read saw.

        Where L and H are one place, nothing is to be replayed.
        """

    def release(self) -> None:
        """Give up the read view."""


def watermarks_of(connection: ServerConnection, capabilities: Capabilities) -> Watermarks:
    """Return the best way to take watermarks that server and account offer; refuse if none."""
    for mode in capabilities.watermark_modes:
        match mode:
            case WatermarkMode.GTID_EXECUTED:
                return GtidWatermarks(connection, capabilities)
            case WatermarkMode.CONSISTENT_SNAPSHOT:
                return SnapshotWatermarks(connection, capabilities)
            case WatermarkMode.LOG_STATUS:
                if may_read_log_status(connection):
                    return LogStatusWatermarks(connection, capabilities)
            case WatermarkMode.LOG_FILE_START:
                return FileStartWatermarks(connection, capabilities)
    raise UnsupportedServerError(
        f"{capabilities.version_text} offers no way to a safe low watermark",
        _where(connection),
        "rows could be lost without a sign",
        "copy from a MySQL server, or from MariaDB 10.5 or later, with its binary log on",
    )


class _SessionWatermarks:
    """Watermarks on MySQL, where each read is one statement in autocommit mode."""

    mode: WatermarkMode
    settled: BinlogPosition | None = None

    def __init__(self, connection: ServerConnection, capabilities: Capabilities) -> None:
        self._connection = connection
        self._capabilities = capabilities

    def high(self, low: MySqlPosition) -> MySqlPosition:
        """Take H: the end of the log, on the server that L was taken from."""
        end = log_end(self._connection, self._capabilities)
        uuid = query(self._connection, "SELECT @@global.server_uuid")[0][0]
        _check_uuid(self._connection, self._capabilities, str(uuid))
        _check_order(self._connection, low, end)
        return MySqlPosition(self._capabilities.server_uuid, end)

    def release(self) -> None:
        """Do nothing: the read view ended with its statement."""

    def _executed(self) -> str:
        """Check the session, and return the server's executed GTIDs.

        It must be a session of the same server, and its next statement must get a read view of
        its own (law 2).
        """
        # An open transaction would keep its old read view; there is none unless someone else
        # shares the session through a proxy.
        query(self._connection, "COMMIT")
        uuid, autocommit, ordered, executed, named = query(
            self._connection,
            "SELECT @@global.server_uuid, @@session.autocommit, @@global.binlog_order_commits, "
            "@@global.gtid_executed, @@global.gtid_mode",
        )[0]
        _check_uuid(self._connection, self._capabilities, str(uuid))
        if not int(autocommit):
            raise IntegrityError(
                "the session that reads rows is not in autocommit mode",
                _where(self._connection),
                "an old read view could stand behind a new watermark",
                "leave init_connect and proxies from changing the session",
            )
        if not int(ordered):
            raise UnsupportedServerError(
                "the server commits in another order than it logs",
                _where(self._connection),
                "a change could be skipped while an earlier one of the same row is applied",
                "SET GLOBAL binlog_order_commits = ON",
            )
        if self.mode is WatermarkMode.GTID_EXECUTED and str(named).upper() != "ON":
            raise UnsupportedServerError(
                f"gtid_mode was ON when reading began and is {named} now",
                _where(self._connection),
                "transactions without a GTID could be passed over",
                "SET GLOBAL gtid_mode back to ON, step by step, and run again",
            )
        return str(executed)


class GtidWatermarks(_SessionWatermarks):
    """Watermarks on MySQL with GTIDs: L is the executed set, without a place in a log file."""

    mode = WatermarkMode.GTID_EXECUTED

    def low(self) -> MySqlPosition:
        """Take L: the server's executed GTIDs."""
        executed = GtidSet.parse(self._executed())
        return MySqlPosition(self._capabilities.server_uuid, None, executed)


class LogStatusWatermarks(_SessionWatermarks):
    """Watermarks on MySQL without GTIDs: L is the place in `performance_schema.log_status`."""

    mode = WatermarkMode.LOG_STATUS

    def low(self) -> MySqlPosition:
        """Take L: the place in `performance_schema.log_status`; no XA transaction is prepared."""
        self._executed()
        _wait_for_no_prepared(self._connection)
        uuid, local = query(
            self._connection, "SELECT SERVER_UUID, LOCAL FROM performance_schema.log_status"
        )[0]
        _require_no_prepared(self._connection)
        _check_uuid(self._connection, self._capabilities, str(uuid))
        told = json.loads(local)
        place = BinlogPosition.of(told["binary_log_file"], int(told["binary_log_position"]))
        return MySqlPosition(str(uuid), place)


class FileStartWatermarks(_SessionWatermarks):
    """Watermarks on MySQL without GTIDs and privileges: L is the start of the current log file.

    The server changes files only when no commit is under way, so all earlier files are visible.
    """

    mode = WatermarkMode.LOG_FILE_START

    def low(self) -> MySqlPosition:
        """Take L: the start of the current log file; no XA transaction is prepared."""
        self._executed()
        _wait_for_no_prepared(self._connection)
        end = log_end(self._connection, self._capabilities)
        _require_no_prepared(self._connection)
        self.settled = end
        return MySqlPosition(self._capabilities.server_uuid, end.at(FIRST_EVENT))


class SnapshotWatermarks:
    """Watermarks on MariaDB: the place of a transaction's own snapshot is L and, usually, H.

    It does not know of XA: a commit of XA is in the log, and before that place, for a moment before
    its rows are visible. Where that may be so, the place is a lower bound no more. A commit that is
    under way when a snapshot is taken began before. Either its transaction was still listed as
    prepared then, or it was counted as begun since. If neither is so, the snapshot is exact.
    Else its place is L only. Every commit logged before L is of a transaction that ended, or is
    still listed behind L; once all those have ended, another snapshot sees them: its place is H.
    """

    mode = WatermarkMode.CONSISTENT_SNAPSHOT
    settled: BinlogPosition | None = None

    def __init__(self, connection: ServerConnection, capabilities: Capabilities) -> None:
        self._connection = connection
        self._capabilities = capabilities
        self._high: MySqlPosition | None = None

    def low(self) -> MySqlPosition:
        """Take L: begin the snapshot's transaction, and return its position in the log."""
        connection = self._connection
        query(connection, "COMMIT")
        self._check_identity()
        begun = self._xa_commits()
        prepared = prepared_transactions(connection, is_mariadb=True)
        low = self._high = self._snapshot()
        if not prepared and self._xa_commits() == begun:
            return low
        self._wait_until_ended(prepared_transactions(connection, is_mariadb=True))
        query(connection, "COMMIT")
        self._high = self._snapshot()
        return low

    def _xa_commits(self) -> int:
        """Return how many XA COMMITs all sessions have begun."""
        return int(query(self._connection, "SHOW GLOBAL STATUS LIKE 'Com_xa_commit'")[0][1])

    def _wait_until_ended(self, prepared: list[str]) -> None:
        """Wait until each of these XA transactions has ended; too long is an error."""
        names = set(prepared)
        deadline = time.monotonic() + _XA_WAIT_S
        while names:
            names &= set(prepared_transactions(self._connection, is_mariadb=True))
            if names and time.monotonic() >= deadline:
                raise _prepared_too_long(self._connection, sorted(names))
            time.sleep(_XA_SHORT_POLL_S if names else 0)

    def _snapshot(self) -> MySqlPosition:
        """Begin a transaction with a read view; return its snapshot's position in the log."""
        connection = self._connection
        query(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
        told = {str(name).lower(): str(value) for name, value in status.items()}
        file, offset = told.get("binlog_snapshot_file", ""), told.get("binlog_snapshot_position", 0)
        if not file:
            raise UnsupportedServerError(
                "the server does not tell the place of a consistent snapshot",
                _where(connection),
                "rows could be lost without a sign",
                "switch the binary log on (log_bin)",
            )
        place = BinlogPosition.of(file, int(offset))
        gtids = query(connection, f"SELECT BINLOG_GTID_POS('{place.file}', {place.offset})")[0][0]
        return MySqlPosition(
            self._capabilities.server_uuid, place, MariaDbGtidPosition.parse(str(gtids or ""))
        )

    def high(self, low: MySqlPosition) -> MySqlPosition:
        """Take H: the snapshot's position, if its transaction is still open on the same server."""
        in_transaction = query(self._connection, "SELECT @@session.in_transaction")[0][0]
        if not int(in_transaction):
            raise IntegrityError(
                "the snapshot's transaction ended before its rows were read",
                _where(self._connection),
                "the rows may be of another moment than their place in the log",
                "read the split again",
            )
        self._check_identity()
        return self._high or low

    def release(self) -> None:
        """End the snapshot's transaction."""
        query(self._connection, "COMMIT")

    def _check_identity(self) -> None:
        """Refuse the session if another server answers than at first."""
        number, host = query(self._connection, "SELECT @@global.server_id, @@hostname")[0]
        _check_uuid(self._connection, self._capabilities, f"server_id-{number}@{host}")


def _check_uuid(connection: ServerConnection, capabilities: Capabilities, uuid: str) -> None:
    """Refuse a server uuid that is not the one of the watermarks' server."""
    if uuid != capabilities.server_uuid:
        raise SourceIdentityError(
            f"server {uuid} answers where {capabilities.server_uuid} did",
            _where(connection),
            "watermark and rows would be of different servers",
            "connect to one server, not to a proxy that chooses among several",
        )


def _check_order(connection: ServerConnection, low: MySqlPosition, end: BinlogPosition) -> None:
    """Refuse a log whose end is before L: it was reset."""
    if low.binlog is not None and end < low.binlog:
        raise SourceIdentityError(
            f"the log ended at {low.binlog} and now ends before it, at {end}",
            _where(connection),
            "the log was reset while the split was read",
            RESET,
        )


def _wait_for_no_prepared(connection: ServerConnection) -> None:
    """Wait for prepared XA transactions to end; too long is an error."""
    deadline = time.monotonic() + _XA_WAIT_S
    while prepared := _prepared(connection):
        if time.monotonic() >= deadline:
            raise _prepared_too_long(connection, prepared)
        time.sleep(_XA_POLL_S)


def _require_no_prepared(connection: ServerConnection) -> None:
    """Refuse to take L while XA transactions are prepared."""
    if prepared := _prepared(connection):
        raise _prepared_too_long(connection, prepared)


def _prepared(connection: ServerConnection) -> list[str]:
    """Return the names of a MySQL server's prepared XA transactions."""
    return prepared_transactions(connection, is_mariadb=False)


def _prepared_too_long(connection: ServerConnection, prepared: list[str]) -> StillPreparedError:
    """Return the error for XA transactions that stay prepared over the low watermark."""
    return StillPreparedError(
        f"{len(prepared)} XA transactions stay prepared over the low watermark, {prepared[0]} "
        f"among them; they were waited for {_XA_WAIT_S:g} s",
        _where(connection),
        "none: one of them may be committed in the log before it and not be visible yet, so the "
        "split is not read now",
        "the split is read when they have ended, which is tried for some minutes; commit or roll "
        "back what XA RECOVER lists; MySQL with GTIDs needs no such wait",
    )


def may_read_log_status(connection: ServerConnection) -> bool:
    """Tell whether the account may read `performance_schema.log_status`."""
    try:
        query(connection, "SELECT 1 FROM performance_schema.log_status")
    except AccessDeniedError:
        return False
    return True


def _where(connection: ServerConnection) -> str:
    """Return the server's host and port."""
    return f"{connection.host}:{connection.port}"
