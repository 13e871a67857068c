"""Transactions that a new source has and we lack, before some that we have.

A dump by GTIDs sends what our set lacks, in the log's order, and leaves out the rest. Where a
server takes over, something may stand in its log that was written there and nowhere else, before
it came to transactions that were read of its predecessor. The dump would bring it after them: a
row of both would keep the older state, or lose the newer one. Replay is right only from the first
transaction that is not contained on, every one (law 3), and the sink is beyond that.

So before another server is read than the one before, its log is read from the first file that
holds a transaction we lack, up to the last one that we have. What stands there and touches
captured tables is refused by name. After an ordinary failover there is nothing to find: all that
is new stands behind all that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.core.errors import RESTART, SourceIdentityError, SourceUnreachableError
from airflow_cdc_provider.core.gtid import Gtid, GtidSet
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import AnyGtid, BinlogPosition, LogPosition
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader, Frames
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import read_gtids
from airflow_cdc_provider.systems.mysql.binlog.events.statements import (
    LoggedStatement,
    Meaning,
    judged,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import read_table_id
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.log_transport import NO_SERVER_ID, LogTransport

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_WAIT_S = 1.0
_OPENS = (EventType.GTID, EventType.GTID_TAGGED)
_LOOKED_AT = (*_OPENS, EventType.TABLE_MAP, EventType.QUERY)
_TOUCHING = frozenset({Meaning.BARRIER, Meaning.XA_COMMIT})


def require_order(
    endpoint: Endpoint,
    connection: ServerConnection,
    now: str,
    ours: Iterable[LogPosition],
    captured: Collection[TableId],
) -> None:
    """Require that what the MySQL server `now` did to captured tables comes behind what we have.

    What was read of one server is judged together: it is a prefix of that server's log.
    """
    names = {str(table).casefold() for table in captured}
    for gtids in _by_server(ours, now).values():
        errant = _errant(endpoint, connection, now, _Search(gtids, names))
        if errant:
            raise SourceIdentityError(
                f"server {now} has transactions that we do not have, and they stand in its log "
                f"before others that we have: {errant}",
                f"{connection.host}:{connection.port}",
                "they changed copied tables on it alone, before it took over. Applied now, they "
                "would undo or lose later changes of the same rows",
                f"{RESTART}, from this server; or connect to the former one",
            )


@dataclass(slots=True)
class _Lacking:
    """A transaction that we lack."""

    gtid: AnyGtid | None
    touches: bool = False
    """It may have changed a captured table."""


@dataclass(slots=True)
class _Search:
    """What is looked for in the log, and what was found so far."""

    ours: GtidSet
    names: Collection[str]
    """Captured tables, in folded case."""
    found: list[_Lacking] = field(default_factory=list)
    """Those with one of ours behind them."""
    waiting: list[_Lacking] = field(default_factory=list)
    open: _Lacking | None = None
    seen: int = 0
    """How many of ours were seen."""

    def take(self, frames: Frames) -> None:
        """Look at some events in log order."""
        for place in np.flatnonzero(np.isin(frames.types, _LOOKED_AT)).tolist():
            if frames.types[place] in _OPENS:
                self._begin(read_gtids(frames, np.array([place])).gtid(0))
            elif self.open is not None and not self.open.touches:
                self.open.touches = self._touches(frames, place)

    def _begin(self, gtid: AnyGtid | None) -> None:
        if isinstance(gtid, Gtid) and gtid in self.ours:
            self.seen += 1
            self.open = None
            self.found += self.waiting
            self.waiting.clear()
            return
        self.open = _Lacking(gtid)
        self.waiting.append(self.open)

    def _touches(self, frames: Frames, place: int) -> bool:
        if frames.types[place] == EventType.TABLE_MAP:
            return self._is_captured(read_table_id(frames.body(place)))
        readings = LoggedStatement.readings(frames.body(place))
        return judged(readings, self._is_captured, _any_database)[1] in _TOUCHING

    def _is_captured(self, table: TableId) -> bool:
        return str(table).casefold() in self.names


_any_database: Callable[[str], bool] = bool


def _errant(
    endpoint: Endpoint, connection: ServerConnection, server_uuid: str, search: _Search
) -> GtidSet:
    """Return what we lack of captured tables before one of ours in the server's log."""
    executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
    if search.ours.covers(executed):
        return GtidSet()
    file, before = _first_file_beyond(connection, search.ours)
    wanted = len(executed.intersection(search.ours).subtract(before))
    if wanted:
        start = LogPosition(server_uuid, BinlogPosition.of(file, 4))
        for frames in _log_from(endpoint, start):
            search.take(frames)
            if search.seen >= wanted:
                break
    touching = (each.gtid for each in search.found if each.touches)
    return reduce(GtidSet.add, (g for g in touching if isinstance(g, Gtid)), GtidSet())


def _by_server(ours: Iterable[LogPosition], now: str) -> Mapping[str, GtidSet]:
    """Join the sets that were read of each server but the one that answers."""
    sets: dict[str, list[GtidSet]] = {}
    for position in ours:
        if isinstance(position.gtids, GtidSet) and position.server_uuid != now:
            sets.setdefault(position.server_uuid, []).append(position.gtids)
    return {server: reduce(GtidSet.union, each) for server, each in sets.items()}


def _first_file_beyond(connection: ServerConnection, ours: GtidSet) -> tuple[str, GtidSet]:
    """Return the last file with nothing before it that we lack, and what is before it."""
    files = [str(row[0]) for row in query(connection, "SHOW BINARY LOGS")]
    first, before = files[0], _previous(connection, files[0])
    for file in files[1:]:
        previous = _previous(connection, file)
        if not ours.covers(previous):
            break
        first, before = file, previous
    return first, before


def _previous(connection: ServerConnection, file: str) -> GtidSet:
    """Return the transactions before a file of the log, which are named at its beginning."""
    rows = query(connection, f"SHOW BINLOG EVENTS IN '{file}' LIMIT 2")
    named = [str(row[5]) for row in rows if row[2] == "Previous_gtids"]
    return GtidSet.parse(named[0] if named else "")


def _log_from(endpoint: Endpoint, start: LogPosition) -> Iterator[Frames]:
    """Yield the events of a log up to where it ends now."""
    frames = FrameReader()
    with closing(LogTransport(endpoint, server_id=NO_SERVER_ID, start=start)) as transport:
        while not transport.has_ended:
            try:
                chunk = transport.receive(_WAIT_S)
            except SourceUnreachableError:
                if not transport.has_ended:
                    raise
            else:
                yield from frames.read(chunk) if chunk is not None else ()
