"""Preflight of what only sizes, or both servers together, tell.

How long a snapshot takes and how much room it needs is estimated from the engine's own sizes of
the tables, which can be wrong by half: so these findings warn, and say what they assume. What a
server does not let us see (MySQL shows no free disk space) is not guessed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.preflight.at_sink import Sink
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import ForeignKey, foreign_keys
from airflow_cdc_provider.systems.mysql.preflight.log_settings import set_statement
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Doubt,
    Look,
    NothingFound,
    QueryDenied,
    Seen,
    grant_everywhere,
    look,
    unseen,
)
from airflow_cdc_provider.systems.mysql.preflight.rights import TO_ADD_FOREIGN_KEYS
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import table_facts
from airflow_cdc_provider.systems.mysql.server.connection import Role, query
from airflow_cdc_provider.systems.mysql.server.privileges import account_name, read_grants

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_CLOCK_S = 5.0
_BYTES_A_SECOND = 10_000_000
"""What a slow pair of servers copies; twice as long is asked for all the same."""
_ROOM = 1.5
"""Indexes, pages half full while they are built, and the sink's own log."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Clock:
    """A server's clock as it was read, with the time of the reading."""

    server_s: Decimal
    read_at_s: float
    """Of this process's monotonic clock, half-way between question and answer."""
    unsure_s: float
    """The answer may be early or late by this much."""

    def ahead_of(self, other: Clock) -> float:
        """Return how many seconds this clock is ahead of another; 0 within the uncertainty."""
        ahead = float(self.server_s - other.server_s) - (self.read_at_s - other.read_at_s)
        surely = max(0.0, abs(ahead) - self.unsure_s - other.unsure_s)
        return surely if ahead > 0 else -surely


def read_clock(connection: ServerConnection, *, role: Role = Role.SOURCE) -> Clock:
    """Query a server's clock."""
    asked = time.monotonic()
    now = query(connection, "SELECT UNIX_TIMESTAMP(NOW(6))", role=role)[0][0]
    answered = time.monotonic()
    return Clock(Decimal(now), (asked + answered) / 2, (answered - asked) / 2)


def clock_findings(sink: Sink, clock: Clock, source_clock: Clock) -> Iterator[Finding]:
    """Yield a finding if the clocks of source and sink differ by too much."""
    ahead = clock.ahead_of(source_clock)
    if abs(ahead) > _CLOCK_S:
        yield Finding(
            Code.SINK_CLOCK,
            Level.WARN,
            sink.subject,
            f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the source's",
            f"clocks that differ by less than {_CLOCK_S:g} s",
            "lag is the sink's time less the source's, so it is shown wrong by as much; no row is "
            "at risk, positions are never told by time",
            "synchronise both machines' clocks (NTP)",
        )


def copied_bytes(connection: ServerConnection, plans: Sequence[TablePlan]) -> int:
    """Return the engine's estimate of how many bytes the tables' rows have."""
    facts = table_facts(connection, [plan.schema.table for plan in plans])
    return sum(fact.estimated_bytes for fact in facts.values())


def retention_findings(capabilities: Capabilities, subject: str, size: int) -> Iterator[Finding]:
    """Yield findings if the log may be purged before a snapshot of `size` bytes is handed off."""
    kept_s = capabilities.retention_s
    snapshot_s = size / _BYTES_A_SECOND
    if 0 < kept_s < 2 * snapshot_s:
        yield Finding(
            Code.SOURCE_RETENTION_ESTIMATE,
            Level.WARN,
            subject,
            f"the log is kept for {kept_s / 3600:.1f} hours, and a snapshot of about "
            f"{size / _GB:.0f} GB takes {snapshot_s / 3600:.1f} hours at "
            f"{_BYTES_A_SECOND // 1_000_000} MB/s",
            f"{2 * snapshot_s / 3600:.1f} hours",
            "the stream starts where the snapshot began: log that is purged before it is applied "
            "cannot be made up for, and the tables have to be read again",
            set_statement(
                capabilities, "binlog_expire_logs_seconds", str(3600 * int(snapshot_s / 1800 + 1))
            ),
        )
    name, limit = capabilities.log_size_limit
    if limit:
        yield Finding(
            Code.SOURCE_LOG_SIZE_LIMIT,
            Level.WARN,
            subject,
            f"the log is purged as soon as it takes {limit / _GB:.1f} GB, whatever its age",
            "a log that is purged by age alone",
            "a burst of writes may purge what was not yet applied; the tables would have to be "
            "read again",
            set_statement(capabilities, name, "0"),
        )


def disk_findings(sink: Sink, size: int) -> Iterator[Finding]:
    """Yield a finding if the sink's disk lacks room for `size` bytes, where that can be seen.

    MariaDB shows it in a plugin of its own, to accounts with the privilege FILE.
    """
    match _disks(sink.connection):
        case Seen(disks):
            yield from _little_room(sink, disks, wanted=int(size * _ROOM))
        case QueryDenied() as denied:
            yield unseen(
                PipelineCode.SINK_UNSEEN,
                Level.INFO,
                sink.subject,
                denied,
                Doubt(
                    what="how much room the disk has",
                    why="a snapshot that finds no room stops; what was published stays",
                    grant=grant_everywhere("FILE", account_name(sink.connection, role=Role.SINK)),
                ),
            )
        case NothingFound():
            pass  # MySQL, or no such plugin


def _little_room(sink: Sink, disks: Sequence[tuple[str, int]], *, wanted: int) -> Iterator[Finding]:
    """Yield a finding if the mount of the sink's data has fewer bytes than wanted."""
    folder = str(query(sink.connection, "SELECT @@datadir", role=Role.SINK)[0][0])
    free = free_of(folder, disks)
    if free is not None and free < wanted:
        yield Finding(
            Code.SINK_DISK,
            Level.WARN,
            sink.subject,
            f"{free / _GB:.1f} GB are free where its tables lie",
            f"{wanted / _GB:.1f} GB, one and a half times what the source's tables take",
            "the snapshot may stop in the middle for lack of room; what was published stays, and "
            "tables that are there already need less",
            "make room, or give the sink a larger disk",
        )


def _disks(connection: ServerConnection) -> Look[list[tuple[str, int]]]:
    """Query each mount's free kilobytes, which only MariaDB's DISKS plugin shows."""
    plugin = query(
        connection,
        "SELECT 1 FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = 'information_schema' AND TABLE_NAME = 'DISKS'",
        role=Role.SINK,
    )
    if not plugin:
        return NothingFound()
    sql = "SELECT Path, Available FROM information_schema.DISKS"
    match look(lambda: query(connection, sql, role=Role.SINK)):
        case Seen(disks):
            return Seen([(str(path), int(kilobytes)) for path, kilobytes in disks])
        case NothingFound():
            return QueryDenied("the list of disks is empty, as it is without FILE")
        case denied:
            return denied


def free_of(folder: str, disks: Sequence[tuple[str, int]]) -> int | None:
    """Return the free bytes of a folder's innermost mount, or None.

    `disks`: paths and kilobytes.
    """
    inside = [
        (len(path.rstrip("/")), kilobytes)
        for path, kilobytes in disks
        if folder.startswith(path.rstrip("/") + "/")
    ]
    return max(inside)[1] * 1024 if inside else None


def reference_findings(
    sink: Sink, keys: Sequence[ForeignKey], plans: Sequence[TablePlan]
) -> Iterator[Finding]:
    """Yield findings if the source's foreign keys cannot be made at the sink for lack of rights.

    MySQL asks for REFERENCES on the table that is referred to; MariaDB asks for nothing.
    """
    if sink.capabilities.is_mariadb:
        return
    targets = {plan.schema.table: plan.sink_table for plan in plans}
    existing = table_facts(sink.connection, targets.values(), role=Role.SINK)
    there = {
        (key.table, key.name.lower())
        for key in foreign_keys(sink.connection, existing, role=Role.SINK)
    }
    parents = {
        targets[key.referenced]
        for key in keys
        if {key.table, key.referenced} <= targets.keys()
        if (targets[key.table], key.name.lower()) not in there
    }
    grants = read_grants(sink.connection, role=Role.SINK)
    for database in sorted(grants.missing_on((TO_ADD_FOREIGN_KEYS,), parents)):
        yield Finding(
            Code.SINK_REFERENCES,
            Level.BLOCK,
            sink.subject,
            f"the account {grants.account} lacks {TO_ADD_FOREIGN_KEYS} on {database}",
            f"{TO_ADD_FOREIGN_KEYS}, because foreign keys are copied",
            "they are added after the consistent point, which would fail then",
            f"GRANT {TO_ADD_FOREIGN_KEYS} ON {quote_identifier(database)}.* TO {grants.account};",
        )
