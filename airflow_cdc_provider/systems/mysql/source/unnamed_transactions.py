"""Transactions without a GTID, where a dump by GTIDs would not come past them.

Such a dump begins in the last file whose `Previous_gtids` our set contains. The server refuses to
send a transaction without a GTID, but it does not look into the files before. If `gtid_mode` was
switched off and on again, those may hold one that came after our set was taken, for each switch
begins a new file. Between the file in which our set became complete and the one where the dump
begins, nothing has a GTID: there `Previous_gtids` is our set in every file. Whatever stands in one
of those files is not known to us, and no set of GTIDs tells.

If our set is not what the dump's first file begins with, that file was begun before our set was
taken, and all that came later is sent or refused by the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import RESET, IntegrityError, SnapshotRequiredError
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.server.connection import query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_BEGINNING = ("Format_desc", "Previous_gtids")
_END = frozenset({"Rotate", "Stop"})
_TYPE, _INFO = 2, 5  # columns of SHOW BINLOG EVENTS


def require_named(connection: ServerConnection, ours: GtidSet) -> None:
    """Refuse a start by GTIDs if transactions without a GTID may be in files before the dump."""
    files = [str(row[0]) for row in query(connection, "SHOW BINARY LOGS")]
    is_before_dump = False
    for file in reversed(files):
        events = query(connection, f"SHOW BINLOG EVENTS IN '{file}' LIMIT 3")
        previous = _previous(connection, file, events)
        if is_before_dump:
            if previous != ours:
                return
            _require_empty(connection, file, events)
        elif ours.covers(previous):
            if previous != ours:
                return
            is_before_dump = True


def _previous(connection: ServerConnection, file: str, events: list[tuple[Any, ...]]) -> GtidSet:
    """Return the GTID set at the beginning of a log file."""
    if tuple(event[_TYPE] for event in events[:2]) != _BEGINNING:
        raise IntegrityError(
            f"{file} does not begin as a log file does: it has {[e[_TYPE] for e in events]}",
            _where(connection),
            "transactions without a GTID could be passed over",
            RESET,
        )
    return GtidSet.parse(str(events[1][_INFO]))


def _require_empty(connection: ServerConnection, file: str, events: list[tuple[Any, ...]]) -> None:
    """Refuse a log file that holds any event of a transaction."""
    for event in events[2:]:
        if event[_TYPE] not in _END:
            raise SnapshotRequiredError(
                f"{file} holds something without a GTID ({event[_TYPE]}), and the log is to be "
                "read from a set of GTIDs on",
                _where(connection),
                "a change could be lost: whether it came before the set was taken cannot be told",
                f"leave gtid_mode ON, commit a transaction at the source, then {RESET}",
            )


def _where(connection: ServerConnection) -> str:
    """Return the server's host and port."""
    return f"{connection.host}:{connection.port}"
