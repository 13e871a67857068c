"""Where in a server's log a stream starts that no snapshot comes before.

Every start comes to a place by file and offset and, where the server names transactions, the names
of all that lies before it: so the stream may go on from there at another server. Only the heads of
the log's events are looked at. A place is searched for within one file, which the files' own
beginnings find: their GTIDs, or the time when they were begun.

A log has an order. So a GTID set must be the log's first transactions, and a set that leaves one
out and has a later one is refused: skipping the later one while the earlier one is applied would
bring back an older row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, assert_never

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.stream_starts import Beginning, StartKind, StreamStart
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import GtidProgress
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    Gtids,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.source.gtid_history import known_to_mariadb
from airflow_cdc_provider.systems.mysql.source.log_files import LogFiles
from airflow_cdc_provider.systems.mysql.source.log_window import dumped
from airflow_cdc_provider.systems.mysql.source.stop_places import Heads, heads_of, marks_of

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

Parsed = TypeVar("Parsed")

_SECOND_US = 1_000_000
_EVENT_TYPE_AT = 4
_TYPE, _INFO = 2, 5  # columns of SHOW BINLOG EVENTS
_GTID_TEXTS = {
    True: "a position as in SELECT @@gtid_binlog_pos",
    False: "a set as in SELECT @@global.gtid_executed",
}


def start_place(endpoint: Endpoint, start: StreamStart) -> Beginning:
    """Return where a stream starts; `RefusedError` says why the log has no such place.

    The tables' definitions must have been read before.
    """
    with closing(connect(endpoint, purpose="start of the stream")) as connection:
        log = _Log(endpoint, connection, start)
        known = MySqlPosition(log.uuid, log.end, log.gtids_now)
        return Beginning(str(start), _place(log, start), known)


def _place(log: _Log, start: StreamStart) -> MySqlPosition:
    """Return the place of a start of any kind."""
    match start.kind:
        case StartKind.EARLIEST:
            return log.position(log.oldest)
        case StartKind.LATEST:
            return log.position(log.end)
        case StartKind.POSITION:
            return _at_place(log)
        case StartKind.GTID:
            return _behind_gtids(log)
        case StartKind.TIMESTAMP:
            return _at_time(log)
        case StartKind.AFTER_SNAPSHOT:
            raise ValueError("a snapshot says where the stream behind it starts")
        case _:
            assert_never(start.kind)


class _Log:
    """One server's log as it is now: its files, its end, and what is before each place."""

    def __init__(
        self, endpoint: Endpoint, connection: ServerConnection, start: StreamStart
    ) -> None:
        self.start = start
        self.capabilities: Capabilities = read_capabilities(connection)
        self.uuid = self.capabilities.server_uuid
        self._endpoint = endpoint
        self._connection = connection
        # before the end is asked for: what has been committed by then is before that
        self.now_us = int(query(connection, "SELECT UNIX_TIMESTAMP(NOW(6)) * 1000000")[0][0])
        self._executed = self._executed_now()
        files = LogFiles.ask(connection, self.capabilities)
        self.end = files.end
        numbers = sorted({*files.bytes, files.end.file_number})
        self._begins = [BinlogPosition(each, FIRST_EVENT, files.end.base) for each in numbers]
        self.files = files

    @property
    def oldest(self) -> BinlogPosition:
        """Return the beginning of the oldest file that is kept."""
        return self._begins[0]

    @property
    def gtids_now(self) -> Gtids | None:
        """Return the GTIDs up to the log's end; None of a server that has no GTIDs."""
        return self._gtids_at(self.end) if self.capabilities.is_mariadb else self._executed

    def heads_from(self, begin: BinlogPosition) -> Iterator[Heads]:
        """Yield the transactions and boundaries of the log from a file's beginning to its end."""
        return heads_of(self._endpoint, MySqlPosition(self.uuid, begin), self.end)

    def last_file(self, is_before: Callable[[BinlogPosition], bool]) -> BinlogPosition | None:
        """Return the beginning of the last file that is before what is sought, None if none is.

        `is_before` is true of the first files and false of the others.
        """
        count = bisect_left(self._begins, 1, key=lambda begin: int(not is_before(begin)))
        return self._begins[count - 1] if count else None

    def position(self, place: BinlogPosition) -> MySqlPosition:
        """Return the position of a boundary, with the GTIDs of all that lies before it."""
        if self.capabilities.is_mariadb:
            return MySqlPosition(self.uuid, place, self._gtids_at(place))
        if not self.capabilities.has_gtids:
            return MySqlPosition(self.uuid, place)
        has = GtidProgress(self.gtids_before(place.at(FIRST_EVENT)))
        for heads in self.heads_from(place.at(FIRST_EVENT)):
            if heads.file.file_number != place.file_number:
                break
            count = int(np.searchsorted(heads.begins, place.offset))
            has.add(heads.gtids, count)
            if count < len(heads.begins):
                break
        return MySqlPosition(self.uuid, place, has.current())

    def gtids_before(self, begin: BinlogPosition) -> Gtids:
        """Return the GTIDs of all that was logged before a file was begun."""
        if self.capabilities.is_mariadb:
            return self._gtids_at(begin)
        events = query(self._connection, f"SHOW BINLOG EVENTS IN '{begin.file}' LIMIT 3")
        listed = next((str(row[_INFO]) for row in events if row[_TYPE] == "Previous_gtids"), "")
        # those were purged, or came with a backup: they are before the oldest file
        return GtidSet.parse(listed).union(self.purged)

    @property
    def purged(self) -> GtidSet:
        """Return the GTIDs of MySQL that are in no file of the log."""
        return GtidSet.parse(str(query(self._connection, "SELECT @@global.gtid_purged")[0][0]))

    def lacks(self, wanted: Gtids) -> str:
        """Return the transactions of a set that the server does not have, as text."""
        if isinstance(wanted, MariaDbGtidPosition):
            known = known_to_mariadb(self._connection)
            unknown = (g for g in wanted if known.get((g.domain, g.server), 0) < g.sequence)
            return ",".join(map(str, unknown))
        return str(wanted.subtract(self._executed or GtidSet()))

    def begun_us(self, begin: BinlogPosition) -> int:
        """Return the end of the second in which a file was begun, in microseconds."""
        chunks = dumped(self._endpoint, MySqlPosition(self.uuid, begin), lambda: False)
        return next(found for found in map(_begun_us, chunks) if found)

    def refused(self, what: str, fix: str) -> RefusedError:
        """Return the error for a start that this log does not have."""
        return RefusedError(
            what, where=f"stream.start: {self.start}", risk=NOTHING_STARTED, remedy=fix
        )

    def parsed(self, parse: Callable[[str], Parsed], wanted: str) -> Parsed:
        """Parse the value of the start; a `RefusedError` says how it is written."""
        try:
            return parse(self.start.value)
        except ValueError as error:
            kind = self.start.kind.value
            what = f"{self.start.value!r} is no {kind} of this source: {error}"
            raise self.refused(what, f"write {wanted}") from None

    def _executed_now(self) -> GtidSet | None:
        """Return MySQL's executed GTIDs; None of a server that has no such set."""
        if self.capabilities.is_mariadb or not self.capabilities.has_gtids:
            return None
        return GtidSet.parse(str(query(self._connection, "SELECT @@global.gtid_executed")[0][0]))

    def _gtids_at(self, place: BinlogPosition) -> MariaDbGtidPosition:
        """Return MariaDB's GTIDs up to a boundary."""
        sql = f"SELECT BINLOG_GTID_POS('{place.file}', {place.offset})"
        return MariaDbGtidPosition.parse(str(query(self._connection, sql)[0][0] or ""))


def _begun_us(chunk: EventChunk) -> int:
    """Return the end of the second in which a file was begun, by its first event; 0 without it."""
    data = ByteViews(chunk.buffer)
    types = data.u8[chunk.starts + _EVENT_TYPE_AT]
    found = chunk.starts[types == EventType.FORMAT_DESCRIPTION]
    return (int(data.little(found[:1], 4)[0]) + 1) * _SECOND_US if len(found) else 0


# --- a position -------------------------------------------------------------------------------


def _at_place(log: _Log) -> MySqlPosition:
    """Return the start at a file and offset, which must be a boundary between transactions."""
    place = log.parsed(BinlogPosition.parse, "FILE:OFFSET, such as binlog.000012:4711")
    if place.base != log.end.base:
        raise log.refused(
            f"the log's files are named {log.end.base}, not {place.base}", "write FILE:OFFSET"
        )
    if place < log.oldest:
        raise log.refused(
            f"the log does not have {place.file} any more: it begins with {log.oldest.file}",
            "write a later place, earliest, or after_snapshot, which reads all rows",
        )
    if log.files.ends_before(place):
        raise log.refused(
            f"the log does not have {place}: {log.files.end_near(place)}",
            "write a place that it has, or latest",
        )
    before = begin = place.at(FIRST_EVENT)
    if place in (begin, log.end):
        return log.position(place)
    for heads in log.heads_from(begin):
        if heads.file.file_number != place.file_number:
            break
        number = int(np.searchsorted(heads.boundaries, place.offset))
        if number < len(heads.boundaries):
            found = heads.file.at(int(heads.boundaries[number]))
            if found == place:
                return log.position(place)
            before = heads.file.at(int(heads.boundaries[number - 1])) if number else before
            raise _no_boundary(log, place, before, found)
        if number:
            before = heads.file.at(int(heads.boundaries[-1]))
    raise _no_boundary(log, place, before, log.end)


def _no_boundary(
    log: _Log, place: BinlogPosition, before: BinlogPosition, behind: BinlogPosition
) -> RefusedError:
    """Return the error for a position within a transaction."""
    return log.refused(
        f"{place} is within a transaction, or within an event, from {before} to {behind}",
        f"write {before} to have that transaction, or {behind} to leave it out",
    )


# --- a GTID set -------------------------------------------------------------------------------


def _behind_gtids(log: _Log) -> MySqlPosition:
    """Return the place behind the transactions of a GTID set, which must be the log's first."""
    if not log.capabilities.has_gtids:
        raise log.refused("the source logs without GTIDs", "write a position or a timestamp")
    parse: Callable[[str], Gtids] = GtidSet.parse
    if log.capabilities.is_mariadb:
        parse = MariaDbGtidPosition.parse
    wanted = log.parsed(parse, _GTID_TEXTS[log.capabilities.is_mariadb])
    if unknown := log.lacks(wanted):
        raise log.refused(
            f"the source does not have {unknown}",
            "write a set of this source; after a failover the set that the server has now",
        )
    begin = log.last_file(lambda file: covers(wanted, log.gtids_before(file)))
    if begin is None:
        gone = _without(log.gtids_before(log.oldest), wanted)
        raise log.refused(
            f"the log does not have transactions any more that the set leaves out: {gone}",
            "write a set that has them, earliest, or after_snapshot, which reads all rows",
        )
    has = GtidProgress(log.gtids_before(begin))
    place = log.end
    for heads in log.heads_from(begin):
        outside = np.flatnonzero(~marks_of(heads.gtids, wanted)[0])
        has.add(heads.gtids, int(outside[0]) if len(outside) else len(heads.gtids))
        if len(outside):
            place = heads.file.at(int(heads.begins[int(outside[0])]))
            break
    reached = has.current()
    if reached is None or not covers(reached, wanted):
        raise log.refused(
            f"at {place} the log has a transaction that the set leaves out, and later ones that it "
            f"has: {_without(wanted, reached)}",
            f"write {reached or place}: what the sink has of the later ones is then applied once "
            "more, which leaves the same rows; or a set without such a gap",
        )
    return MySqlPosition(log.uuid, place, wanted)


def covers(one: Gtids, other: Gtids) -> bool:
    """Tell whether a GTID set has all of another one of its family."""
    if isinstance(one, GtidSet) and isinstance(other, GtidSet):
        return one.covers(other)
    if isinstance(one, MariaDbGtidPosition) and isinstance(other, MariaDbGtidPosition):
        return one.covers(other)
    return False


def _without(one: Gtids, other: Gtids | None) -> str:
    """Return what one GTID set has and another one has not, as text."""
    if isinstance(one, GtidSet) and isinstance(other, GtidSet):
        return str(one.subtract(other))
    if isinstance(one, MariaDbGtidPosition) and isinstance(other, MariaDbGtidPosition):
        return ",".join(str(gtid) for gtid in one if gtid not in other)
    return str(one)


# --- a time -----------------------------------------------------------------------------------


def _at_time(log: _Log) -> MySqlPosition:
    """Return the place before the first transaction that was committed then or later."""
    wanted_us = log.start.time_us
    if log.capabilities.is_mariadb:
        wanted_us -= wanted_us % _SECOND_US  # its times are whole seconds
    begin = log.last_file(lambda file: log.begun_us(file) <= wanted_us)
    if begin is None:
        since = datetime.fromtimestamp(log.begun_us(log.oldest) / _SECOND_US, UTC).isoformat()
        raise log.refused(
            f"the log does not go back so far: its oldest file, {log.oldest.file}, was begun at "
            f"{since} or in the second before, and what was committed until then is unknown",
            "write a later time, earliest, or after_snapshot, which reads all rows",
        )
    for heads in log.heads_from(begin):
        later = np.flatnonzero(heads.gtids.committed_us >= wanted_us)
        if len(later):
            return log.position(heads.file.at(int(heads.begins[int(later[0])])))
    if wanted_us > log.now_us:
        raise log.refused(
            "the log has no transaction of that time or later, and the time is to come",
            "write latest, or begin when it has come",
        )
    return log.position(log.end)
