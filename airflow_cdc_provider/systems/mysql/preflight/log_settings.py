"""Preflight of a source server: is its log complete, decodable, kept long enough and readable.

The settings are data: name, accepted values, level, reason and fix. What depends on more than one
setting is a function of its own; what is to be said of a source that is a replica, and of its
open transactions, are modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from airflow_cdc_provider.systems.mysql.preflight.open_transactions import open_transactions
from airflow_cdc_provider.systems.mysql.preflight.replica import replica_findings
from airflow_cdc_provider.systems.mysql.preflight.rights import to_see_the_logs_end
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, WatermarkMode
from airflow_cdc_provider.systems.mysql.server.connection import query_named
from airflow_cdc_provider.systems.mysql.server.privileges import account_name
from airflow_cdc_provider.systems.mysql.source.watermarks import may_read_log_status

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_OLDEST_MYSQL = (8, 0, 0)
_OLDEST_MARIADB = (10, 5, 0)
_SHORT_RETENTION_S = 3 * 86400


@dataclass(frozen=True, slots=True)
class _Setting:
    """One server variable, its accepted values, and why they are needed."""

    name: str
    accepted: tuple[str, ...]
    level: Level
    why: str


_SETTINGS = (
    _Setting(
        "binlog_format",
        ("ROW",),
        Level.BLOCK,
        "changes logged as statements have no rows to copy; sessions that are already open keep "
        "the old format, so let clients reconnect",
    ),
    _Setting(
        "binlog_row_image",
        ("FULL",),
        Level.BLOCK,
        "a partial image does not tell the columns that did not change from those set to NULL",
    ),
    _Setting(
        "binlog_row_metadata",
        ("FULL",),
        Level.BLOCK,
        "without it the log has no column names, signedness or charsets, and after an ALTER TABLE "
        "old events would be read with the new columns; it holds for events written from now on",
    ),
    _Setting(
        "binlog_row_value_options",
        ("",),
        Level.INFO,
        "PARTIAL_JSON logs parts of documents; the reader puts them together with the rows before "
        "the change, which costs it CPU",
    ),
    _Setting(
        "binlog_order_commits",
        ("ON", "1"),
        Level.BLOCK,
        "rows become visible in another order than the log's, and gtid_executed gets gaps: a low "
        "watermark would not bound what a read sees",
    ),
    _Setting(
        "sync_binlog",
        ("1",),
        Level.WARN,
        "after a crash of the machine the source may lack transactions the sink already has",
    ),
)


def log_findings(
    connection: ServerConnection,
    capabilities: Capabilities,
    subject: str,
    *,
    is_snapshot_done: bool = False,
) -> Iterator[Finding]:
    """Yield the findings about the source server and its log."""
    yield from _server(capabilities, subject)
    yield from name_findings(capabilities, subject)
    yield _watermark(connection, capabilities, subject)
    if not capabilities.has_log:
        return
    yield from written_log_findings(connection, capabilities, subject)
    # without GTIDs, a split waits for what is prepared; the stream never does
    are_awaited = not (capabilities.has_gtids or is_snapshot_done)
    yield from open_transactions(connection, capabilities, subject, are_awaited=are_awaited)


def written_log_findings(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield the findings about what a server's log holds, how long, and who may see its end."""
    for setting in _SETTINGS:
        value = capabilities.settings.get(setting.name)
        if value is not None and value.upper() not in setting.accepted:
            yield _wrong_setting(setting, value, capabilities, subject)
    yield from _gtids(capabilities, subject)
    yield from _compression(capabilities, subject)
    yield from _retention(capabilities, subject)
    yield from _log_filters(connection, capabilities, subject)
    yield from replica_findings(connection, capabilities, subject)


def name_findings(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if the log may spell a table's name otherwise than the catalogue does."""
    kept = capabilities.setting("lower_case_table_names", default="0")
    if kept not in ("0", "1"):
        yield Finding(
            Code.SOURCE_LOWER_CASE_TABLE_NAMES,
            Level.BLOCK,
            subject,
            f"lower_case_table_names = {kept}",
            "lower_case_table_names = 0 or 1",
            "names are kept as they were written and compared without case: changes of a table "
            "that the log spells otherwise would be taken for another table's",
            "copy from a server that has 0 or 1; it is set once, when a server is initialized",
        )


def statement_findings(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if the server does not log the statements of row changes."""
    name = "binlog_rows_query_log_events"
    if capabilities.is_mariadb:
        name = "binlog_annotate_row_events"
    if not capabilities.has_log or capabilities.is_on(name):
        return
    yield Finding(
        Code.SOURCE_STATEMENTS,
        Level.WARN,
        subject,
        f"{name} = OFF",
        f"{name} = ON",
        "the log holds rows without their statements, so every `query` is null; it holds for "
        "sessions that begin from now on",
        set_statement(capabilities, name, "ON"),
    )


def set_statement(capabilities: Capabilities, name: str, value: str) -> str:
    """Return the statement that sets a variable, and persists it where the server can."""
    text = value if value.isdigit() else f"'{value}'"
    if capabilities.is_mariadb:
        return f"SET GLOBAL {name} = {text}; -- and {name} = {value} in the server's option file"
    return f"SET PERSIST {name} = {text};"


def _wrong_setting(
    setting: _Setting, value: str, capabilities: Capabilities, subject: str
) -> Finding:
    """Return the finding for a variable with a wrong value."""
    wanted = setting.accepted[0]
    return Finding(
        Code.of(f"source.{setting.name}"),
        setting.level,
        subject,
        f"{setting.name} = {value or '(empty)'}",
        f"{setting.name} = {wanted or '(empty)'}",
        setting.why,
        set_statement(capabilities, setting.name, wanted),
    )


def _server(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield the findings about the server's family, version and identity."""
    yield Finding(
        Code.SOURCE_SERVER,
        Level.INFO,
        subject,
        f"{capabilities.flavour} {capabilities.version_text}, identity {capabilities.server_uuid}",
    )
    yield from version_findings(capabilities, subject)


def version_findings(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if the server is too old for its log to be decoded."""
    oldest = _OLDEST_MARIADB if capabilities.is_mariadb else _OLDEST_MYSQL
    if capabilities.version < oldest:
        yield Finding(
            Code.SOURCE_VERSION,
            Level.BLOCK,
            subject,
            capabilities.version_text,
            ".".join(map(str, oldest)) + " or later",
            "older logs lack the metadata that a change is decoded with",
            "upgrade the server, or read from a newer replica of it",
        )


def _watermark(connection: ServerConnection, capabilities: Capabilities, subject: str) -> Finding:
    """Return the finding about how low watermarks are taken, or that they cannot be."""
    modes = capabilities.watermark_modes
    if WatermarkMode.LOG_STATUS in modes and not may_read_log_status(connection):
        modes = tuple(mode for mode in modes if mode is not WatermarkMode.LOG_STATUS)
    if modes:
        return Finding(
            Code.SOURCE_WATERMARK,
            Level.INFO,
            subject,
            f"low watermarks are taken by {modes[0]}",
            why="the way that is a lower bound of what a read sees on this server",
        )
    reason = "the server writes no log (log_bin = OFF)"
    fix = "log_bin = ON and a server_id in the server's option file, then restart it"
    if capabilities.has_log:
        reason = "Aurora and Galera offer no place in the log that bounds what a read sees"
        fix = "read from an ordinary replica of this server"
    return Finding(
        Code.SOURCE_WATERMARK,
        Level.BLOCK,
        subject,
        reason,
        ", ".join(WatermarkMode),
        "without a safe watermark changes around a read are lost",
        fix,
    )


def _gtids(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if a MySQL server has no GTIDs."""
    if capabilities.is_mariadb or capabilities.has_gtids:
        return
    yield Finding(
        Code.SOURCE_GTID_MODE,
        Level.WARN,
        subject,
        f"gtid_mode = {capabilities.setting('gtid_mode')}",
        "gtid_mode = ON",
        "without GTIDs a place in the log means nothing on another server: a failover of the "
        "source needs a new snapshot, and low watermarks lie further back",
        "SET PERSIST enforce_gtid_consistency = ON; then SET PERSIST gtid_mode = OFF_PERMISSIVE; "
        "SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON;",
    )


def _compression(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if the log is compressed."""
    for name in ("binlog_transaction_compression", "log_bin_compress"):
        if capabilities.is_on(name):
            yield Finding(
                Code.of(f"source.{name}"),
                Level.INFO,
                subject,
                f"{name} = ON",
                why="compressed transactions are decompressed by the reader, which costs it CPU",
            )


def _retention(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    """Yield a finding if the log is kept for too short a time."""
    seconds = capabilities.retention_s
    if 0 < seconds < _SHORT_RETENTION_S:
        yield Finding(
            Code.SOURCE_RETENTION,
            Level.WARN,
            subject,
            f"the log is kept for {seconds / 3600:.1f} hours",
            "twice the snapshot's duration plus the longest pause to be survived",
            "when log is purged that was not applied, the tables have to be read again",
            set_statement(capabilities, "binlog_expire_logs_seconds", "604800"),
        )


def _log_filters(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield findings about filters on the log, or that the account cannot see them."""
    privilege = to_see_the_logs_end(capabilities)
    match look(lambda: query_named(connection, capabilities.status_statement)):
        case Seen(rows):
            yield from _filters(rows[0], subject)
        case QueryDenied() as denied:
            yield unseen(
                Code.SOURCE_REPLICATION_CLIENT,
                Level.BLOCK,
                subject,
                denied,
                Doubt(
                    what="where the log ends and whether it is filtered",
                    why="what a filter leaves out never reaches the log, and without its end no "
                    "split can be read",
                    grant=grant_everywhere(privilege, account_name(connection)),
                ),
            )
        case NothingFound():
            pass  # it writes no log: source.watermark blocks


def _filters(row: dict[str, Any], subject: str) -> Iterator[Finding]:
    """Yield a finding for each filter on the log."""
    for name in ("Binlog_Do_DB", "Binlog_Ignore_DB"):
        value = row.get(name)
        if value:
            yield Finding(
                Code.of(f"source.{name.lower()}"),
                Level.BLOCK,
                subject,
                f"{name} = {value}",
                "no filter on the log",
                "changes that a filter leaves out never reach the log",
                f"remove {name.lower().replace('_', '-')} from the option file and restart",
            )
