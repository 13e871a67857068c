"""Preflight of a sink whose own log is read: is it written whole, and may the account read it.

What is asked of a source's log is asked of this one. The findings have codes of their own, because
what is to be mended is at the other server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level, sorted_findings
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.log_settings import (
    version_findings,
    written_log_findings,
)
from airflow_cdc_provider.systems.mysql.preflight.looks import grant_everywhere
from airflow_cdc_provider.systems.mysql.preflight.reader_ids import ReaderIds, reader_id_findings
from airflow_cdc_provider.systems.mysql.preflight.rights import TO_READ_THE_LOG
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.privileges import read_grants

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


class OwnLogCode(FindingCode):
    """The codes of preflight findings about a sink's own log."""

    NONE = (
        "own_log.none",
        "block",
        "the sink writes no log, or its locks do not order it (Aurora, Galera)",
    )
    VERSION = ("own_log.version", "block", "older than MySQL 8.0 or MariaDB 10.5")
    SETTING = (
        "own_log.setting",
        "info, warn, block",
        "a setting of the sink's log; blocks where changes, or parts of them, are not in it",
    )
    REPLICA = (
        "own_log.replica",
        "warn, block",
        "the sink is a replica; blocks where its log lacks what it replicates, or its order",
    )
    RIGHTS = (
        "own_log.rights",
        "block",
        "`REPLICATION SLAVE` or `REPLICATION CLIENT` (MariaDB: `BINLOG MONITOR`) is missing",
    )
    READER_ID = (
        "own_log.reader_id",
        "block, warn",
        "an id of the readers is the sink's own, or another reader's",
    )
    NUMBERS = (
        "own_log.numbers",
        "warn",
        "the nodes of a topology may give out the same AUTO_INCREMENT numbers",
    )
    JSON = (
        "own_log.json",
        "warn",
        "JSON at one node is text at the other, where the documents come back as MySQL prints them",
    )
    REPLICATED = (
        "own_log.replicated",
        "block, warn",
        "the sink replicates natively from the other node; warns if filtered, stopped or not sure",
    )
    UNSEEN = ("own_log.unseen", "info, warn, block", "something could not be looked at")


_GROUPS: dict[FindingCode, OwnLogCode] = {
    Code.SOURCE_VERSION: OwnLogCode.VERSION,
    Code.SOURCE_UNSEEN: OwnLogCode.UNSEEN,
    Code.SOURCE_REPLICATION_CLIENT: OwnLogCode.RIGHTS,
    Code.SOURCE_SERVER_ID: OwnLogCode.READER_ID,
    Code.SOURCE_SERVER_ID_UNSET: OwnLogCode.READER_ID,
    Code.SOURCE_SERVER_ID_TAKEN: OwnLogCode.READER_ID,
    Code.SOURCE_LOG_REPLICA_UPDATES: OwnLogCode.REPLICA,
    Code.SOURCE_REPLICA_PRESERVE_COMMIT_ORDER: OwnLogCode.REPLICA,
    Code.SOURCE_REPLICATION_FILTERS: OwnLogCode.REPLICA,
    Code.SOURCE_REPLICATION_DELAY: OwnLogCode.REPLICA,
    Code.SOURCE_REPLICATION_STOPPED: OwnLogCode.REPLICA,
    Code.SOURCE_REPLICATION_LAG: OwnLogCode.REPLICA,
}
"""All others are settings."""


def own_log_findings(sink: Endpoint, ids: range, *, is_new: bool) -> tuple[Finding, ...]:
    """Return the findings about the log of a sink that is read by readers with these server ids."""
    readers = ReaderIds(
        ids,
        is_new=is_new,
        if_the_servers="give the server another server_id",
        if_taken="end that reader, or give it other ids: those of this pipeline follow from its "
        "name and the sink's address",
    )
    with closing(connect(sink, purpose="preflight", role=Role.SINK)) as connection:
        capabilities = read_capabilities(connection, role=Role.SINK)
        found = [
            *version_findings(capabilities, str(sink)),
            *_log(connection, capabilities, str(sink)),
            *reader_id_findings(connection, capabilities, str(sink), readers),
        ]
    return sorted_findings(map(_of_own_log, found))


def _log(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield the findings about the log, what it holds and who may read it."""
    if not capabilities.watermark_modes:
        fix = "log_bin = ON and a server_id in the server's option file, then restart it"
        yield Finding(
            OwnLogCode.NONE,
            Level.BLOCK,
            subject,
            "locks do not order the log" if capabilities.has_log else "log_bin = OFF",
            "a server that writes a log, and is neither Aurora nor of a Galera cluster",
            "what others write at the sink would not be seen, and could be overwritten",
            "use an ordinary server" if capabilities.has_log else fix,
        )
    if not capabilities.has_log:
        return
    yield from written_log_findings(connection, capabilities, subject)
    grants = read_grants(connection, role=Role.SINK)
    if not grants.holds(TO_READ_THE_LOG):
        yield Finding(
            OwnLogCode.RIGHTS,
            Level.BLOCK,
            subject,
            f"the account {grants.account} lacks {TO_READ_THE_LOG}",
            TO_READ_THE_LOG,
            "the sink's own log cannot be read",
            grant_everywhere(TO_READ_THE_LOG, grants.account),
        )


def _of_own_log(finding: Finding) -> Finding:
    """Return a finding about a source's log as one about the sink's own."""
    code = finding.code
    if not isinstance(code, OwnLogCode):
        code = _GROUPS.get(code, OwnLogCode.SETTING)
        finding = replace(finding, why=finding.why.replace("the sink", "who reads it"))
    texts = {
        name: getattr(finding, name).replace("the source", "the sink")
        for name in ("observed", "why", "fix")
    }
    return replace(finding, code=code, **texts)
