"""Whether a server's history contains ours.

Ours is what we have read, and all that is in the sink by splits whose H is still to pass. Both
families name transactions, and each has its own way to tell whether it knows one:

- MySQL: `gtid_executed` is the exact set.
- MariaDB: a position names the last transaction of a domain only, and a server that lost some
  gives their numbers to others. So number and domain say nothing without the server that wrote
  it: 0-1-100 is not 0-2-100. `gtid_binlog_state` has the last number by domain *and* server, and
  `gtid_slave_pos` what was replicated or restored from elsewhere.

Without GTIDs there is only the place, and only on the same server: the log must reach it.

A reader may be ahead of `gtid_executed` for the time of a group commit, because the dump sends
transactions before they are visible. Transactions that seem to be missing are asked for again
for some seconds before that is believed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.history import AppliedThrough, names_of
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    GtidSet,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition, own
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.log_files import LogFiles

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

COMMIT_WAIT_S = 10.0
"""How long a transaction may seem to be missing."""
_POLL_S = 0.1
_RISK = "rows that they changed may be in the sink, and this server's log does not change them back"
_REMEDY = (
    "connect to a server whose history has these transactions. If the history of this server is to "
    "count from now on, `accept` it with --source: the tables that they may have changed are read "
    "again; or `reset`, and the next run reads all tables again"
)


@dataclass(frozen=True, slots=True)
class _Server:
    """A connected source server and its capabilities."""

    connection: ServerConnection
    capabilities: Capabilities

    @property
    def where(self) -> str:
        """Return the server's host and port, for an error message."""
        return f"{self.connection.host}:{self.connection.port}"


def check_history(
    connection: ServerConnection,
    capabilities: Capabilities,
    read: MySqlPosition,
    held: Sequence[AppliedThrough] = (),
    *,
    commit_wait_s: float = COMMIT_WAIT_S,
) -> None:
    """Refuse the server if it lacks transactions that were `read` or are `held` in the sink."""
    server = _Server(connection, capabilities)
    needed = (AppliedThrough("what was read", read), *held)
    for each in needed:
        _check_kind(server, own(each.position))
    if capabilities.is_mariadb:
        _check_domains(server, needed)
    else:
        _check_sets(server, needed, commit_wait_s)
    _check_places(server, held)


def unseen_transactions(connection: ServerConnection, ours: Iterable[MySqlPosition]) -> str:
    """Return the executed GTIDs of servers that none of our positions knows, as text.

    What it wrote since it became the primary is among it, and what was written on it before, beside
    its replication. A position of MariaDB does not remember servers, so nothing is named there.
    """
    sets = [position.gtids for position in ours if isinstance(position.gtids, GtidSet)]
    if not sets:
        return ""
    known = {source.uuid for each in sets for source in each.intervals}
    executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
    unseen = {s: spans for s, spans in executed.intervals.items() if s.uuid not in known}
    return str(GtidSet(unseen))


def taken_over(
    connection: ServerConnection, capabilities: Capabilities, ours: Sequence[MySqlPosition]
) -> str:
    """Return a remark on a server that took over from the one that was read, or ""."""
    now = capabilities.server_uuid
    if all(position.server_uuid in {"", now} for position in ours):
        return ""
    text = f"the source is the server {now} now, its history contains ours"
    if capabilities.is_mariadb:
        return (
            f"{text}. Positions of MariaDB do not tell whether changes were made on it alone, in a "
            "domain that was read, before it took over; such changes never come here: compare "
            "with `verify`"
        )
    unseen = unseen_transactions(connection, ours)
    if not unseen:
        return text
    return (
        f"{text}. It has transactions of servers that nothing here came from: {unseen}. They are "
        "applied as its log has them; those that changed copied tables there before transactions "
        "that were read are refused"
    )


def _check_kind(server: _Server, position: MySqlPosition) -> None:
    """Refuse a position without GTIDs of another server, or with GTIDs of another family."""
    capabilities = server.capabilities
    if position.gtids is None:
        if position.server_uuid != capabilities.server_uuid:
            raise SourceIdentityError(
                f"server {capabilities.server_uuid} answers, the position is of "
                f"{position.server_uuid} and has no GTIDs",
                server.where,
                "a file and offset mean something else on another server",
                "connect to the former server, or `reset`: all tables are read again",
            )
    elif isinstance(position.gtids, GtidSet) is capabilities.is_mariadb:
        raise SourceIdentityError(
            f"the position {position} is of another family of servers",
            server.where,
            "the logs have nothing in common",
            "connect to the former server, or `reset`: all tables are read again",
        )


def _check_sets(server: _Server, needed: Sequence[AppliedThrough], commit_wait_s: float) -> None:
    """Refuse the server if it lacks GTIDs that we have, after a wait for commits under way."""
    gtids = [own(each.position).gtids for each in needed]
    sets = [each for each in gtids if isinstance(each, GtidSet)]
    if not sets:
        return
    ours = reduce(GtidSet.union, sets)
    deadline = time.monotonic() + commit_wait_s
    while True:
        told = query(server.connection, "SELECT @@global.gtid_executed")[0][0]
        unknown = ours.subtract(GtidSet.parse(str(told)))
        if not unknown:
            return
        if time.monotonic() >= deadline:
            raise _lacks(server, str(unknown), (each for each in needed if _names(each, unknown)))
        time.sleep(_POLL_S)


def _names(held: AppliedThrough, gtids: GtidSet) -> bool:
    """Tell whether a position's GTID set contains any of these GTIDs."""
    ours = own(held.position).gtids
    return isinstance(ours, GtidSet) and bool(ours.intersection(gtids))


def _check_domains(server: _Server, needed: Sequence[AppliedThrough]) -> None:
    """Refuse a MariaDB server that lacks the last transaction of any domain of our positions."""
    held_by: dict[MariaDbGtid, list[AppliedThrough]] = {}
    for each in needed:
        gtids = own(each.position).gtids
        if isinstance(gtids, MariaDbGtidPosition):
            for gtid in gtids:
                held_by.setdefault(gtid, []).append(each)
    if not held_by:
        return
    known = known_to_mariadb(server.connection)
    unknown = sorted(
        (gtid for gtid in held_by if known.get((gtid.domain, gtid.server), 0) < gtid.sequence),
        key=lambda gtid: (gtid.domain, gtid.sequence, gtid.server),
    )
    if unknown:
        holders = (each for gtid in unknown for each in held_by[gtid])
        raise _lacks(server, ", ".join(map(str, unknown)), holders)


def known_to_mariadb(connection: ServerConnection) -> dict[tuple[int, int], int]:
    """Return the last sequence number that a MariaDB server knows, by domain and server."""
    row = query(
        connection,
        "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos, @@global.gtid_current_pos",
    )[0]
    known: dict[tuple[int, int], int] = {}
    for text in row:
        for part in filter(None, (part.strip() for part in str(text or "").split(","))):
            gtid = MariaDbGtid.parse(part)
            name = gtid.domain, gtid.server
            known[name] = max(known.get(name, 0), gtid.sequence)
    return known


def _lacks(server: _Server, unknown: str, holders: Iterable[AppliedThrough]) -> SourceIdentityError:
    """Return the error for transactions that we have and the server lacks."""
    return SourceIdentityError(
        f"server {server.capabilities.server_uuid} does not have transactions that we have: "
        f"{unknown} (in {names_of(holders)})",
        server.where,
        f"its history and ours have parted: it was reset, restored, or lost commits in a crash or "
        f"failover; {_RISK}",
        _REMEDY,
    )


def _check_places(server: _Server, held: Sequence[AppliedThrough]) -> None:
    """Refuse the server if its log ends before a binlog position that the sink's rows are from."""
    same = [each for each in held if each.position.server == server.capabilities.server_uuid]
    asked = [(own(each.position).binlog, each) for each in same]
    placed = [(place, each) for place, each in asked if place is not None]
    if not placed:
        return
    files = LogFiles.ask(server.connection, server.capabilities)
    beyond = [(place, each) for place, each in placed if files.ends_before(place)]
    if beyond:
        last = max(place for place, _ in beyond)
        holders = names_of(each for _, each in beyond)
        raise beyond_the_end(server.where, last, files, f"; it is in {holders}")


def beyond_the_end(
    where: str, wanted: BinlogPosition, files: LogFiles, who: str = ""
) -> SourceIdentityError:
    """Return the error for a position beyond the end of the server's log."""
    return SourceIdentityError(
        f"the log does not reach {wanted}: {files.end_near(wanted)}{who}",
        where,
        "the log was reset, or lost its end in a crash or restore; what we have is not in it",
        _REMEDY,
    )
