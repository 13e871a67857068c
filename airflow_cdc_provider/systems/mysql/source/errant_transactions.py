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

A position of MariaDB names the last transaction of each domain. What another server wrote before
it in the same domain is never sent, and nothing tells that it is there. What is sent late are
domains that the position does not know: these are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.core.errors import SourceIdentityError, SourceUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader, Frames
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import read_gtids
from airflow_cdc_provider.systems.mysql.binlog.events.statements import (
    LoggedStatement,
    Meaning,
    judged,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import read_table_id
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    Gtid,
    GtidSet,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import (
    AnyGtid,
    BinlogPosition,
    Gtids,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.log_transport import NO_SERVER_ID, LogTransport

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_WAIT_S = 1.0
_OPENS = (EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
_LOOKED_AT = (*_OPENS, EventType.TABLE_MAP, EventType.QUERY)
_TOUCHING = frozenset({Meaning.BARRIER, Meaning.UNLOGGED, Meaning.XA_COMMIT})


def require_no_errant(
    endpoint: Endpoint,
    connection: ServerConnection,
    now: str,
    ours: Iterable[MySqlPosition],
    captured: Collection[TableId],
) -> None:
    """Refuse server `now` if transactions that we lack precede ones that we have in its log.

    What was read of one server is judged together: it is a prefix of that server's log.
    """
    names = {str(table).casefold() for table in captured}
    for gtids in _by_server(ours, now).values():
        search = _Search(gtids, names)
        _look(endpoint, connection, now, search)
        if search.errant:
            raise SourceIdentityError(
                f"server {now} has transactions that we do not have, and they stand in its log "
                f"before others that we have: {search.errant}",
                f"{connection.host}:{connection.port}",
                "they changed copied tables on it alone, before it took over. Applied now, they "
                "would undo or lose later changes of the same rows",
                "connect to the former server; or `accept` this one's history with --source, and "
                "all tables are read again while they flow; or `reset`",
            )


@dataclass(slots=True)
class _ErrantTransaction:
    """A transaction of the server's log that our position lacks."""

    gtid: AnyGtid | None
    touches: bool = False
    """It may have changed a captured table."""


@dataclass(slots=True)
class _Search:
    """The search for errant transactions: our GTIDs, and those that the log has and we lack."""

    ours: Gtids
    names: Collection[str]
    """Captured tables, in folded case."""
    found: list[_ErrantTransaction] = field(default_factory=list)
    """Those with one of ours behind them."""
    waiting: list[_ErrantTransaction] = field(default_factory=list)
    open: _ErrantTransaction | None = None
    still: int = 0
    """How many of ours are to come: of MariaDB's, the last of each domain."""

    @property
    def errant(self) -> str:
        """Return the GTIDs of the errant transactions found that may touch captured tables."""
        touching = [each.gtid for each in self.found if each.touches]
        names = [gtid for gtid in touching if isinstance(gtid, Gtid)]
        if names:
            return str(reduce(GtidSet.add, names, GtidSet()))
        return ",".join(map(str, touching))

    def take(self, frames: Frames) -> None:
        """Search some log events, in log order, for transactions that we lack."""
        opens = np.flatnonzero(np.isin(frames.types, _OPENS))
        names = read_gtids(frames, opens) if len(opens) else None
        number = {int(place): i for i, place in enumerate(opens)}
        for place in np.flatnonzero(np.isin(frames.types, _LOOKED_AT)).tolist():
            if names is not None and place in number:
                self._begin(names.gtid(number[place]))
            elif self.open is not None and not self.open.touches:
                self.open.touches = self._touches(frames, place)

    def _begin(self, gtid: AnyGtid | None) -> None:
        """Begin a transaction; one that we lack waits until one of ours follows it in the log."""
        if self._is_ours(gtid):
            self.still -= isinstance(self.ours, GtidSet) or gtid in self.ours.last.values()
            self.open = None
            self.found += self.waiting
            self.waiting.clear()
            return
        self.open = _ErrantTransaction(gtid)
        self.waiting.append(self.open)

    def _is_ours(self, gtid: AnyGtid | None) -> bool:
        """Tell whether our GTIDs contain a transaction."""
        if isinstance(gtid, Gtid) and isinstance(self.ours, GtidSet):
            return gtid in self.ours
        if isinstance(gtid, MariaDbGtid) and isinstance(self.ours, MariaDbGtidPosition):
            known = self.ours.last.get(gtid.domain)
            return known is not None and gtid.sequence <= known.sequence
        return False

    def _touches(self, frames: Frames, place: int) -> bool:
        """Tell whether an event, a table map or a statement, may change a captured table."""
        if frames.types[place] == EventType.TABLE_MAP:
            return self._is_captured(read_table_id(frames.body(place)))
        readings = LoggedStatement.readings(frames.body(place))
        return judged(readings, self._is_captured, _any_database)[1] in _TOUCHING

    def _is_captured(self, table: TableId) -> bool:
        """Tell whether a table is captured, whatever the case of its name."""
        return str(table).casefold() in self.names


_any_database: Callable[[str], bool] = bool


def _look(
    endpoint: Endpoint, connection: ServerConnection, server_uuid: str, search: _Search
) -> None:
    """Search the server's log for errant transactions, up to the last transaction of ours."""
    if isinstance(search.ours, GtidSet):
        file, search.still = _first_by_sets(connection, search.ours)
    else:
        file, search.still = _first_by_domains(connection, search.ours)
    if search.still <= 0:
        return
    start = MySqlPosition(server_uuid, BinlogPosition.of(file, 4))
    for frames in _log_from(endpoint, start):
        search.take(frames)
        if search.still <= 0:
            return


def _by_server(ours: Iterable[MySqlPosition], now: str) -> Mapping[str, Gtids]:
    """Return, for each server read before this one, the GTIDs of all that was read there."""
    joined: dict[str, Gtids] = {}
    for position in ours:
        if position.gtids is None or position.server_uuid == now:
            continue
        known = joined.get(position.server_uuid, position.gtids)
        if isinstance(known, GtidSet) and isinstance(position.gtids, GtidSet):
            known = known.union(position.gtids)
        elif isinstance(known, MariaDbGtidPosition) and isinstance(
            position.gtids, MariaDbGtidPosition
        ):
            later = (g for g in position.gtids if g not in known)
            known = reduce(MariaDbGtidPosition.add, later, known)
        joined[position.server_uuid] = known
    return joined


def _first_by_sets(connection: ServerConnection, ours: GtidSet) -> tuple[str, int]:
    """Return the log file to search from, and how many of our transactions come then.

    The last file with nothing before it that we lack; no file where the server has no such thing.
    """
    executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
    if ours.covers(executed):
        return "", 0
    before = GtidSet()
    first = ""
    for file in _files(connection):
        previous = GtidSet.parse(_named_first(connection, file, "Previous_gtids"))
        if first and not ours.covers(previous):
            break
        first, before = file, previous
    return first, len(executed.intersection(ours).subtract(before))


def _first_by_domains(connection: ServerConnection, ours: MariaDbGtidPosition) -> tuple[str, int]:
    """Return the log file to search from, and how many of our domains' last GTIDs come then.

    The last file with no unknown domain before it; no file where the server has no such domain.
    """
    state = _listed(str(query(connection, "SELECT @@global.gtid_binlog_state")[0][0]))
    if all(gtid.domain in ours.last for gtid in state):
        return "", 0
    before: list[MariaDbGtid] = []
    first = ""
    for file in _files(connection):
        listed = _listed(_named_first(connection, file, "Gtid_list").strip("[]"))
        if first and any(gtid.domain not in ours.last for gtid in listed):
            break
        first, before = file, listed
    passed = {(gtid.domain, gtid.server): gtid.sequence for gtid in before}
    return first, sum(passed.get((g.domain, g.server), 0) < g.sequence for g in ours)


def _listed(text: str) -> list[MariaDbGtid]:
    """Parse a list of MariaDB GTIDs."""
    return [MariaDbGtid.parse(part) for part in text.split(",") if part.strip()]


def _files(connection: ServerConnection) -> list[str]:
    """Return the names of the server's log files, oldest first."""
    return [str(row[0]) for row in query(connection, "SHOW BINARY LOGS")]


def _named_first(connection: ServerConnection, file: str, kind: str) -> str:
    """Return the GTIDs that a log file lists at its beginning, by an event of that kind."""
    rows = query(connection, f"SHOW BINLOG EVENTS IN '{file}' LIMIT 3")
    return next((str(row[5]) for row in rows if row[2] == kind), "")


def _log_from(endpoint: Endpoint, start: MySqlPosition) -> Iterator[Frames]:
    """Yield the events of the server's log from a position to the present end."""
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
