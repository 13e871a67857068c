"""Preflight of the server ids of a log's readers: a server keeps one reader for each id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.log_settings import set_statement
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Doubt,
    NothingFound,
    QueryDenied,
    Seen,
    grant_everywhere,
    look,
    unseen,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.connection import query_named
from airflow_cdc_provider.systems.mysql.server.privileges import account_name

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


@dataclass(frozen=True, slots=True)
class ReaderIds:
    """The server ids of a pipeline's readers at one server, and what to do where they clash."""

    ids: range
    is_new: bool
    """No reader that the server has now can be the pipeline's own."""
    if_the_servers: str = "choose another range in source.server_id"
    if_taken: str = (
        "leave source.server_id out, for ids of the pipeline's own, or choose another range"
    )


def reader_id_findings(
    connection: ServerConnection, capabilities: Capabilities, subject: str, readers: ReaderIds
) -> Iterator[Finding]:
    """Yield findings if server ids of the readers are the server's own, or already in use."""
    if capabilities.server_id in readers.ids:
        yield Finding(
            Code.SOURCE_SERVER_ID,
            Level.BLOCK,
            subject,
            f"the source itself has server_id {capabilities.server_id}",
            "a range without it",
            "a server sends no log to a reader with its own id",
            readers.if_the_servers,
        )
    if capabilities.has_log and capabilities.server_id == 0:
        yield Finding(
            Code.SOURCE_SERVER_ID_UNSET,
            Level.BLOCK,
            subject,
            "server_id = 0",
            "an id of its own",
            "such a server refuses every reader of its log",
            set_statement(capabilities, "server_id", "1"),
        )
    match look(lambda: query_named(connection, capabilities.replicas_statement)):
        case Seen(found):
            yield from _taken(found, subject, readers)
        case QueryDenied() as denied:
            privilege = (
                "REPLICATION MASTER ADMIN" if capabilities.is_mariadb else "REPLICATION SLAVE"
            )
            yield unseen(
                Code.SOURCE_UNSEEN,
                Level.INFO,
                subject,
                denied,
                Doubt(
                    what="which ids other readers of the log have",
                    why="no row is at risk: two readers with one id throw each other out, and each "
                    "says so; give this pipeline a range that nobody else uses",
                    grant=grant_everywhere(privilege, account_name(connection)),
                ),
            )
        case NothingFound():
            pass


def _taken(
    found: Sequence[Mapping[str, Any]], subject: str, readers: ReaderIds
) -> Iterator[Finding]:
    """Yield a finding if connected readers have server ids of the pipeline's range."""
    taken = {
        int(row["Server_Id" if "Server_Id" in row else "Server_id"]): str(row.get("Host") or "")
        for row in found
    }
    clashing = [
        f"{number} ({taken[number]})" if taken[number] else str(number)
        for number in sorted(taken)
        if number in readers.ids
    ]
    if clashing:
        own = "" if readers.is_new else "; if this is the pipeline's own stream, all is well"
        yield Finding(
            Code.SOURCE_SERVER_ID_TAKEN,
            Level.BLOCK if readers.is_new else Level.WARN,
            subject,
            f"readers with the ids {', '.join(clashing)} are connected now",
            "ids that no other reader of this server has",
            f"two readers with one id throw each other out{own}",
            readers.if_taken,
        )
