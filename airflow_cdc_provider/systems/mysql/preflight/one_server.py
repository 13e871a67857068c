"""Preflight of one server alone, as the test of a connection asks for it: no tables are known yet.

What a pipeline would be told of its source or sink is told here, as far as it does not depend on
tables. A database that the connection names stands for those that will be copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace

from airflow_cdc_provider.columns.source_port import PreflightQuestion
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, Level, sorted_findings
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier
from airflow_cdc_provider.core.server_look import Part, ServerLook
from airflow_cdc_provider.systems.mysql.preflight.at_sink import Sink, server_findings
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.preflight import sink_privileges, source_look
from airflow_cdc_provider.systems.mysql.preflight.rights import (
    SINK_PRIVILEGES,
    TO_ADD_FOREIGN_KEYS,
    TO_LOOK_AT_LOG_STATUS,
    TO_READ_ROWS,
    TO_READ_THE_LOG,
    TO_SEE_TRIGGERS,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.privileges import Grants, read_grants

# by the names under which grants of both families are read
_TO_READ = (
    TO_READ_THE_LOG,
    "REPLICATION CLIENT",
    "SLAVE MONITOR",
    TO_READ_ROWS,
    TO_LOOK_AT_LOG_STATUS,
)
_TO_WRITE = (*SINK_PRIVILEGES, TO_SEE_TRIGGERS, TO_ADD_FOREIGN_KEYS)
_ANY_TABLE = "*"
_PURPOSE = "the test of the connection"


def look_at_server(endpoint: Endpoint, part: Part) -> ServerLook:
    """Return facts and findings of a server as a source or sink, without tables."""
    return _source(endpoint) if part is Part.SOURCE else _sink(endpoint)


def _source(endpoint: Endpoint) -> ServerLook:
    """Return facts and findings of a server as a source."""
    found = list(source_look(endpoint, PreflightQuestion(()), purpose=_PURPOSE).findings)
    with closing(connect(endpoint, purpose=_PURPOSE)) as connection:
        capabilities, grants = read_capabilities(connection), read_grants(connection)
    found += _unreadable(grants, endpoint)
    facts = (
        _server(capabilities, endpoint),
        _gtids(capabilities),
        _log(capabilities),
        _may(grants, _TO_READ),
    )
    return ServerLook(facts, sorted_findings(found))


def _sink(endpoint: Endpoint) -> ServerLook:
    """Return facts and findings of a server as a sink."""
    server = replace(endpoint, database="")  # which is made on first use
    with closing(connect(server, purpose=_PURPOSE, role=Role.SINK)) as connection:
        capabilities = read_capabilities(connection, role=Role.SINK)
        there = Sink(connection, capabilities, str(endpoint))
        targets = [TableId(endpoint.database, _ANY_TABLE)] if endpoint.database else []
        found = [*server_findings(there, capabilities), *sink_privileges(there, targets)]
        grants = read_grants(connection, role=Role.SINK)
    return ServerLook(
        (_server(capabilities, endpoint), _may(grants, _TO_WRITE)), sorted_findings(found)
    )


def _unreadable(grants: Grants, endpoint: Endpoint) -> Iterator[Finding]:
    """Yield a finding if the account may read no table."""
    reads = any({"SELECT", "ALL PRIVILEGES"} & grant.privileges for grant in grants.grants)
    if grants.holds("SELECT", endpoint.database) if endpoint.database else reads:
        return
    of = quote_identifier(endpoint.database or "database")
    yield Finding(
        Code.SOURCE_SELECT,
        Level.BLOCK,
        str(endpoint),
        f"the account {grants.account} may read no table" + (f" of {of}" if reads else ""),
        "SELECT",
        "no table can be copied",
        f"GRANT SELECT ON {of}.* TO {grants.account};",
    )


def _server(capabilities: Capabilities, endpoint: Endpoint) -> str:
    """Return the server's family, version and address as text."""
    name = "MariaDB" if capabilities.is_mariadb else "MySQL"
    return f"{name} {capabilities.version_text} at {endpoint.host}:{endpoint.port}"


def _gtids(capabilities: Capabilities) -> str:
    """Return the server's GTID mode as text."""
    if capabilities.is_mariadb:
        return "GTIDs: MariaDB's own"
    return f"GTIDs: gtid_mode = {capabilities.setting('gtid_mode')}"


def _log(capabilities: Capabilities) -> str:
    """Return the log's settings as text."""
    if not capabilities.has_log:
        return "log: none"
    names = ("binlog_format", "binlog_row_image", "binlog_row_metadata")
    said = [f"{name} = {capabilities.setting(name) or 'not there'}" for name in names]
    kept = capabilities.retention_s
    return f"log: {', '.join(said)}, kept for {f'{kept / 3600:.0f} hours' if kept else 'ever'}"


def _may(grants: Grants, wanted: Collection[str]) -> str:
    """Return the privileges that matter, and where the account has them, as text."""
    held = []
    for grant in grants.grants:
        names = [name for name in ("ALL PRIVILEGES", *wanted) if name in grant.privileges]
        if names:
            held.append(f"{', '.join(names)} on {grant.database}.{grant.table}")
    return f"privileges of {grants.account}: {'; '.join(held) or 'none that matter here'}"
