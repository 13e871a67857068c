"""Preflight of a source that is itself a replica: does its log have all that it replicates.

The server tells it in one row for each source of its own; the names of columns differ by version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Doubt,
    NothingFound,
    QueryDenied,
    Seen,
    grant_everywhere,
    look,
    unseen,
)
from airflow_cdc_provider.systems.mysql.preflight.rights import to_see_a_replica
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.connection import query_named
from airflow_cdc_provider.systems.mysql.server.privileges import account_name

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_FAR_BEHIND_S = 60


def replica_findings(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield findings about a source that is itself a replica."""
    match look(lambda: query_named(connection, capabilities.replica_status_statement)):
        case Seen(rows):
            yield from _silent(capabilities, subject)
            yield from _out_of_order(capabilities, subject)
            for row in rows:
                yield from _replication(row, subject)
        case QueryDenied() as denied:
            yield _cannot_tell(connection, capabilities, subject, denied)
        case NothingFound():
            pass


def _cannot_tell(
    connection: ServerConnection, capabilities: Capabilities, subject: str, denied: QueryDenied
) -> Finding:
    """Return the finding that the account cannot see whether the source is a replica."""
    at_risk = [*_silent(capabilities, subject), *_out_of_order(capabilities, subject)]
    return unseen(
        Code.SOURCE_UNSEEN,
        Level.BLOCK if at_risk else Level.WARN,
        subject,
        denied,
        Doubt(
            what="whether this server is a replica",
            why="; ".join(f"if it is, {each.observed}, and {each.why}" for each in at_risk)
            or "its delay and its filters, if it has any, hold for the sink as well",
            grant=grant_everywhere(to_see_a_replica(capabilities), account_name(connection)),
        ),
    )


def _silent(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if a replica does not log what it replicates."""
    name = "log_slave_updates" if capabilities.is_mariadb else "log_replica_updates"
    if not capabilities.is_on("log_replica_updates", "log_slave_updates"):
        yield Finding(
            Code.SOURCE_LOG_REPLICA_UPDATES,
            Level.BLOCK,
            subject,
            "this server is a replica that does not log what it replicates",
            f"{name} = ON",
            "its log looks healthy and stays empty",
            f"{name} = ON in the option file, then restart; or read from its source",
        )


def _out_of_order(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if a replica's workers commit in any order."""
    order = ("replica_preserve_commit_order", "slave_preserve_commit_order")
    workers = capabilities.setting("replica_parallel_workers", "slave_parallel_workers") or "0"
    if capabilities.setting(*order) and not capabilities.is_on(*order) and int(workers) > 1:
        yield Finding(
            Code.SOURCE_REPLICA_PRESERVE_COMMIT_ORDER,
            Level.BLOCK,
            subject,
            f"{workers} workers commit in any order",
            "replica_preserve_commit_order = ON",
            "the executed GTIDs get gaps, and a low watermark would not bound what a read sees",
            "STOP REPLICA SQL_THREAD; SET PERSIST replica_preserve_commit_order = ON; "
            "START REPLICA SQL_THREAD;",
        )


def filters_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the filters of databases and tables in a row of a replica's status, by name."""
    return {
        name: value
        for name, value in row.items()
        if ("_Do_" in name or "_Ignore_" in name or "_Wild_" in name) and value
        if name.startswith("Replicate")
        if name != "Replicate_Ignore_Server_Ids"
    }


def _replication(row: dict[str, Any], subject: str) -> Iterator[Finding]:
    """Yield findings about a replica's filters, its state and its delay."""
    filters = filters_of(row)
    if filters:
        yield Finding(
            Code.SOURCE_REPLICATION_FILTERS,
            Level.WARN,
            subject,
            ", ".join(f"{name} = {value}" for name, value in filters.items()),
            "no filters",
            "what a filter leaves out is missing here and at the sink",
            "read from a replica without filters",
        )
    yield from _replication_at_rest(row, subject)
    delay = row.get("SQL_Delay")
    if delay not in (None, 0):
        yield Finding(
            Code.SOURCE_REPLICATION_DELAY,
            Level.WARN,
            subject,
            f"applied {delay} s late on purpose",
            "no delay",
            "the sink is at least as late",
            "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0;",
        )


def _replication_at_rest(row: dict[str, Any], subject: str) -> Iterator[Finding]:
    """Yield findings if a replica's own replication is stopped or far behind."""

    def told(*names: str) -> Any:
        return next((row[name] for name in names if name in row), None)

    receiver = told("Replica_IO_Running", "Slave_IO_Running")
    applier = told("Replica_SQL_Running", "Slave_SQL_Running")
    if receiver != "Yes" or applier != "Yes":
        yield Finding(
            Code.SOURCE_REPLICATION_STOPPED,
            Level.WARN,
            subject,
            f"its own replication does not run (receiver: {receiver}, applier: {applier})",
            "a replica that follows its source",
            "the sink would be in step with a server that stands still",
            "look at Last_Error in the replica's status, mend it, then START REPLICA;",
        )
    behind = told("Seconds_Behind_Source", "Seconds_Behind_Master")
    if behind is not None and int(behind) > _FAR_BEHIND_S:
        yield Finding(
            Code.SOURCE_REPLICATION_LAG,
            Level.WARN,
            subject,
            f"this replica is {behind} s behind its source",
            f"less than {_FAR_BEHIND_S} s",
            "the sink is at least as late",
            "read from another replica, or let this one catch up first",
        )
