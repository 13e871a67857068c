"""Looking at a source's log: which place is meant, and what stands around it.

A place is a file and offset, a GTID, or what a reader has: then it is where the reader would go
on. Nothing is changed, and nothing is kept.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import LogPurgedError, RefusedError
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    Gtids,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.source.log_events import described_events
from airflow_cdc_provider.systems.mysql.source.log_files import LogFiles
from airflow_cdc_provider.systems.mysql.source.log_start import check_start
from airflow_cdc_provider.systems.mysql.source.log_window import (
    events_around,
    logged_events,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_OPTION = "--at"
_NOTHING_DONE = "none: the log was only looked at"


def look_at_log(
    endpoint: Endpoint, at: str, position: MySqlPosition | None, *, count: int, values: bool
) -> LogView:
    """Return the events around `at`, else around a position, else before the log's end."""
    with closing(connect(endpoint, purpose="looking at the log")) as connection:
        capabilities = read_capabilities(connection)
        files = LogFiles.ask(connection, capabilities)
        if at:
            place = _place_of(endpoint, connection, capabilities, files, at)
        elif position is not None:
            place = _place_behind(endpoint, connection, capabilities, files, position)
        else:
            place = files.end
    found = events_around(endpoint, capabilities.server_uuid, place, files.end, count)
    flavour = capabilities.flavour.value
    events = [
        told for raw in found for told in described_events(raw, flavour, most=count, values=values)
    ]
    name = f"{endpoint} ({capabilities.server_uuid})"
    return LogView(name, place.file, place.offset, str(files.end), tuple(events))


def _place_of(
    endpoint: Endpoint,
    connection: ServerConnection,
    capabilities: Capabilities,
    files: LogFiles,
    at: str,
) -> BinlogPosition:
    """Return the binlog position that `at` names: a file and offset, or a GTID."""
    try:
        place = BinlogPosition.parse(at)
    except ValueError:
        gtids = _before(connection, capabilities, at)
        wanted = MySqlPosition(capabilities.server_uuid, None, gtids)
        return _place_behind(endpoint, connection, capabilities, files, wanted)
    _require_there(files, place)
    return place


def _before(connection: ServerConnection, capabilities: Capabilities, at: str) -> Gtids:
    """Return the GTIDs of a reader whose next transaction is `at`; a larger set is taken whole."""
    try:
        if capabilities.is_mariadb:
            return MariaDbGtidPosition.parse(at)
        named = GtidSet.parse(at)
    except ValueError:
        raise RefusedError(
            f"{at!r} is no place of this server's log",
            _OPTION,
            _NOTHING_DONE,
            "write FILE:OFFSET, such as binlog.000009:154, or a GTID",
        ) from None
    if len(named) != 1:
        return named
    executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
    if not executed.covers(named):
        raise RefusedError(
            f"the server does not have the transaction {named}",
            _OPTION,
            _NOTHING_DONE,
            "name a transaction of this server's history, or the server that has it",
        )
    return executed.subtract(named)


def _place_behind(
    endpoint: Endpoint,
    connection: ServerConnection,
    capabilities: Capabilities,
    files: LogFiles,
    position: MySqlPosition,
) -> BinlogPosition:
    """Return the binlog position from which a reader at this position would go on."""
    start = check_start(connection, capabilities, position)
    if start.by_file and position.binlog is not None:
        return position.binlog
    if _has_all(connection, position.gtids):
        return files.end
    for event in logged_events(endpoint, start.position, files.end):
        if event.gtid:
            return event.start
    return files.end


def _has_all(connection: ServerConnection, gtids: Gtids | None) -> bool:
    """Tell whether these GTIDs contain all that the server has logged."""
    if isinstance(gtids, GtidSet):
        return gtids.covers(GtidSet.parse(str(query(connection, "SELECT @@gtid_executed")[0][0])))
    logged = MariaDbGtidPosition.parse(str(query(connection, "SELECT @@gtid_binlog_pos")[0][0]))
    return gtids is not None and gtids.covers(logged)


def _require_there(files: LogFiles, place: BinlogPosition) -> None:
    """Refuse a binlog position that is not in the server's log."""
    if place.base != files.end.base:
        raise RefusedError(
            f"the server's log files are named {files.end.base}, not {place.base}",
            _OPTION,
            _NOTHING_DONE,
            "it may be a place of another server: name a pipeline file of that one",
        )
    if files.lacks(place):
        raise LogPurgedError(
            f"the server has purged {place.file}",
            f"the oldest file is number {min(files.bytes):06d}",
            _NOTHING_DONE,
            "look at a place that is still there; keep logs longer",
        )
    if files.ends_before(place) or place.offset < FIRST_EVENT:
        raise RefusedError(
            f"the log has no place {place}: {files.end_near(place)}",
            _OPTION,
            _NOTHING_DONE,
            f"look at a place from {FIRST_EVENT} up to the file's end",
        )
