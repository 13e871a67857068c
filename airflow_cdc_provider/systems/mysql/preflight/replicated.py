"""Preflight of an edge whose sink may itself replicate from the other node.

A replica of MySQL tells the UUID of the server that it follows. MariaDB has none, and neither has a
replica that was never connected. There the server's id and its address have to agree, and one of
them alone is no proof: ids are unique only among the servers of one replication, an address is as
one machine sees it, and MariaDB shows the former server's id until it has met the new one. Only the
source itself is looked for, not what may be between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.endpoint import LOOPBACK
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.systems.mysql.dialect.sql import text_literal
from airflow_cdc_provider.systems.mysql.preflight.looks import Seen, look
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from airflow_cdc_provider.systems.mysql.preflight.replica import filters_of
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, query_named

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.preflight.preflight import SourceFacts
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


class _Match(Enum):
    """Whether a replica follows a certain server."""

    YES = auto()
    UNSURE = auto()
    NO = auto()


def replicated_findings(
    connection: ServerConnection, sink: Endpoint, source: SourceFacts
) -> Iterator[Finding]:
    """Yield a finding for each channel by which the sink's server replicates from the source's."""
    capabilities = read_capabilities(connection, role=Role.SINK)
    statement = capabilities.replica_status_statement
    seen = look(lambda: query_named(connection, statement, role=Role.SINK))
    if not isinstance(seen, Seen):
        return  # a denied look is a finding about the sink's own log
    for row in seen.what:
        match = _match(row, sink, source)
        if match is not _Match.NO:
            yield _replicated(row, match, capabilities, str(sink))


def _match(row: dict[str, Any], sink: Endpoint, source: SourceFacts) -> _Match:
    """Tell whether a row of the sink's replica status is about the source."""
    settings = source.capabilities.settings
    uuid = _value(row, "UUID")
    if uuid:
        return _Match.YES if uuid == settings.get("server_uuid") else _Match.NO
    host, port = _address(row)
    known = {(source.host, source.port), (settings.get("hostname"), int(settings.get("port", 0)))}
    # a loopback address is one of the machine that uses it
    local = LOOPBACK if sink.host in LOOPBACK else {sink.host}
    hosts = local if host in LOOPBACK else {host}
    is_there = any((each, port) in known for each in hosts)
    number = int(_value(row, "Server_Id") or 0)
    is_numbered = number == source.capabilities.server_id != 0
    if is_there and is_numbered:
        return _Match.YES
    return _Match.UNSURE if is_there or is_numbered else _Match.NO


def _replicated(
    row: dict[str, Any], match: _Match, capabilities: Capabilities, subject: str
) -> Finding:
    """Return the finding that the sink's server replicates, or may, from the source's."""
    filters, is_stopped = filters_of(row), _is_stopped(row)
    is_sure = match is _Match.YES and not (filters or is_stopped)
    host, port = _address(row)
    does = "replicates" if match is _Match.YES else "may replicate"
    states = [
        f"from {host}:{port}, server id {_value(row, 'Server_Id') or 'not known'}",
        *(f"{name} = {value}" for name, value in filters.items()),
        *(["stopped for now"] if is_stopped else []),
    ]
    return Finding(
        OwnLogCode.REPLICATED,
        Level.BLOCK if is_sure else Level.WARN,
        subject,
        f"the server {does} natively from the other node ({'; '.join(states)})",
        "no native replication of these tables between the nodes of a topology",
        "what it replicates has no marker: it is taken for written here, goes back to where it "
        "came from, and overwrites what was written there since",
        f"{_end_of(row, capabilities)} or leave the tables out of that replication by its filters",
    )


def _end_of(row: dict[str, Any], capabilities: Capabilities) -> str:
    """Return the statements that end one channel for good."""
    if capabilities.is_mariadb:
        name = text_literal(str(row.get("Connection_name", "")))
        return f"STOP SLAVE {name}; RESET SLAVE {name} ALL;"
    channel = f"FOR CHANNEL {text_literal(str(row.get('Channel_Name', '')))}"
    word = "REPLICA" if "REPLICA" in capabilities.replica_status_statement else "SLAVE"
    return f"STOP {word} {channel}; RESET {word} ALL {channel};"


def _address(row: dict[str, Any]) -> tuple[str, int]:
    """Return the host and port that a replica connects to."""
    return str(_value(row, "Host") or ""), int(_value(row, "Port") or 0)


def _is_stopped(row: dict[str, Any]) -> bool:
    """Tell whether both threads of a channel are stopped; a restart of the server starts them."""
    return all(_value(row, f"{thread}_Running") == "No" for thread in ("IO", "SQL"))


def _value(row: dict[str, Any], name: str) -> Any:
    """Return a value of a replica's status, whose names differ by version."""
    words = ("Source_", "Master_", "Replica_", "Slave_")
    return next((row[word + name] for word in words if word + name in row), None)
