"""Preflight of a source server: is its log complete, decodable, kept long enough and readable.

The settings are data: name, accepted values, level, reason and fix. What depends on more than one
setting is a function of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import AccessDeniedError, IntegrityError
from airflow_cdc_provider.mysql.capabilities import Capabilities, WatermarkMode
from airflow_cdc_provider.mysql.connection import query, query_named
from airflow_cdc_provider.mysql.findings import Finding, Level
from airflow_cdc_provider.mysql.prepared_transactions import prepared_transactions

if TYPE_CHECKING:
    from airflow_cdc_provider.mysql.connection import ServerConnection

_OLDEST_MYSQL = (8, 0, 0)
_OLDEST_MARIADB = (10, 5, 0)
_SHORT_RETENTION_S = 3 * 86400
_LONG_TRANSACTION_S = 600
_FAR_BEHIND_S = 60
_SHOWN_XA = 3


@dataclass(frozen=True, slots=True)
class _Setting:
    """One variable and what it has to be; a server that lacks it is not asked."""

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
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield what is to be said about the server and its log."""
    yield from _server(capabilities, subject)
    yield _watermark(capabilities, subject)
    if not capabilities.has_log:
        return
    for setting in _SETTINGS:
        value = capabilities.settings.get(setting.name)
        if value is not None and value.upper() not in setting.accepted:
            yield _wrong_setting(setting, value, capabilities, subject)
    yield from _gtids(capabilities, subject)
    yield from _compression(capabilities, subject)
    yield from _retention(capabilities, subject)
    yield from _log_filters(connection, capabilities, subject)
    yield from _as_replica(connection, capabilities, subject)
    yield from _prepared(connection, capabilities, subject)
    yield from _long_transactions(connection, subject)


def set_statement(capabilities: Capabilities, name: str, value: str) -> str:
    """Return the statement that sets a variable, and keeps it where the family can."""
    text = value if value.isdigit() else f"'{value}'"
    if capabilities.is_mariadb:
        return f"SET GLOBAL {name} = {text}; -- and {name} = {value} in the server's option file"
    return f"SET PERSIST {name} = {text};"


def _wrong_setting(
    setting: _Setting, value: str, capabilities: Capabilities, subject: str
) -> Finding:
    wanted = setting.accepted[0]
    return Finding(
        f"source.{setting.name}",
        setting.level,
        subject,
        f"{setting.name} = {value or '(empty)'}",
        f"{setting.name} = {wanted or '(empty)'}",
        setting.why,
        set_statement(capabilities, setting.name, wanted),
    )


def _server(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    yield Finding(
        "source.server",
        Level.INFO,
        subject,
        f"{capabilities.flavour} {capabilities.version_text}, identity {capabilities.server_uuid}",
    )
    oldest = _OLDEST_MARIADB if capabilities.is_mariadb else _OLDEST_MYSQL
    if capabilities.version < oldest:
        yield Finding(
            "source.version",
            Level.BLOCK,
            subject,
            capabilities.version_text,
            ".".join(map(str, oldest)) + " or later",
            "older logs lack the metadata that a change is decoded with",
            "upgrade the server, or read from a newer replica of it",
        )


def _watermark(capabilities: Capabilities, subject: str) -> Finding:
    modes = capabilities.watermark_modes
    if modes:
        return Finding(
            "source.watermark",
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
        "source.watermark",
        Level.BLOCK,
        subject,
        reason,
        ", ".join(WatermarkMode),
        "without a safe watermark changes around a read are lost",
        fix,
    )


def _gtids(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    if capabilities.is_mariadb or capabilities.has_gtids:
        return
    yield Finding(
        "source.gtid_mode",
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
    for name in ("binlog_transaction_compression", "log_bin_compress"):
        if capabilities.is_on(name):
            yield Finding(
                f"source.{name}",
                Level.INFO,
                subject,
                f"{name} = ON",
                why="compressed transactions are decompressed by the reader, which costs it CPU",
            )


def _retention(capabilities: Capabilities, subject: str) -> Iterator[Finding]:
    seconds = capabilities.retention_s
    if 0 < seconds < _SHORT_RETENTION_S:
        yield Finding(
            "source.retention",
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
    try:
        rows = query_named(connection, capabilities.status_statement)
    except AccessDeniedError:
        return  # the missing privilege is a finding of its own
    for name in ("Binlog_Do_DB", "Binlog_Ignore_DB"):
        value = rows[0].get(name) if rows else None
        if value:
            yield Finding(
                f"source.{name.lower()}",
                Level.BLOCK,
                subject,
                f"{name} = {value}",
                "no filter on the log",
                "changes that a filter leaves out never reach the log",
                f"remove {name.lower().replace('_', '-')} from the option file and restart",
            )


def _as_replica(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield what is wrong when the source is itself a replica of another server."""
    try:
        rows = query_named(connection, capabilities.replica_status_statement)
    except AccessDeniedError:
        return  # the missing privilege is a finding of its own
    if not rows:
        return
    if not capabilities.is_on("log_replica_updates", "log_slave_updates"):
        yield Finding(
            "source.log_replica_updates",
            Level.BLOCK,
            subject,
            "this server is a replica that does not log what it replicates",
            "log_replica_updates = ON",
            "its log looks healthy and stays empty",
            "log_replica_updates = ON in the option file, then restart; or read from its source",
        )
    order = ("replica_preserve_commit_order", "slave_preserve_commit_order")
    workers = capabilities.setting("replica_parallel_workers", "slave_parallel_workers") or "0"
    if capabilities.setting(*order) and not capabilities.is_on(*order) and int(workers) > 1:
        yield Finding(
            "source.replica_preserve_commit_order",
            Level.BLOCK,
            subject,
            f"{workers} workers commit in any order",
            "replica_preserve_commit_order = ON",
            "the executed GTIDs get gaps, and a low watermark would not bound what a read sees",
            "STOP REPLICA SQL_THREAD; SET PERSIST replica_preserve_commit_order = ON; "
            "START REPLICA SQL_THREAD;",
        )
    for row in rows:
        yield from _replication(row, subject)


def _replication(row: dict[str, Any], subject: str) -> Iterator[Finding]:
    filters = {
        name: value
        for name, value in row.items()
        if ("_Do_" in name or "_Ignore_" in name or "_Wild_" in name) and value
        if name.startswith("Replicate")
        if name != "Replicate_Ignore_Server_Ids"
    }
    if filters:
        yield Finding(
            "source.replication_filters",
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
            "source.replication_delay",
            Level.WARN,
            subject,
            f"applied {delay} s late on purpose",
            "no delay",
            "the sink is at least as late",
            "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0;",
        )


def _replication_at_rest(row: dict[str, Any], subject: str) -> Iterator[Finding]:
    """Yield what keeps a replica from following its own source; names differ by version."""

    def told(*names: str) -> Any:
        return next((row[name] for name in names if name in row), None)

    receiver = told("Replica_IO_Running", "Slave_IO_Running")
    applier = told("Replica_SQL_Running", "Slave_SQL_Running")
    if receiver != "Yes" or applier != "Yes":
        yield Finding(
            "source.replication_stopped",
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
            "source.replication_lag",
            Level.WARN,
            subject,
            f"this replica is {behind} s behind its source",
            f"less than {_FAR_BEHIND_S} s",
            "the sink is at least as late",
            "read from another replica, or let this one catch up first",
        )


def _prepared(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    try:
        prepared = prepared_transactions(connection, is_mariadb=capabilities.is_mariadb)
    except (AccessDeniedError, IntegrityError):
        # MySQL asks for XA_RECOVER_ADMIN, which nothing else here needs, and says 1401 without it
        return
    if prepared:
        yield Finding(
            "source.prepared_transactions",
            Level.WARN if capabilities.has_gtids else Level.BLOCK,
            subject,
            f"{len(prepared)} XA transactions are prepared and not committed: "
            + "; ".join([*prepared[:_SHOWN_XA], *(["..."] if prepared[_SHOWN_XA:] else [])]),
            "none while a snapshot is taken",
            "their rows are in the log before anyone can see them and are read back at their "
            "commit: the stream stops if that part of the log is purged by then; on MariaDB and "
            "without GTIDs the snapshot waits for them and then stops",
            "wait for them, or end each by its name before the snapshot starts: "
            f"XA COMMIT {prepared[0]}; or XA ROLLBACK {prepared[0]};",
        )


def _long_transactions(connection: ServerConnection, subject: str) -> Iterator[Finding]:
    try:
        found = query(
            connection,
            "SELECT COUNT(*), MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) "
            "FROM information_schema.INNODB_TRX "
            f"WHERE trx_started < NOW() - INTERVAL {_LONG_TRANSACTION_S} SECOND",
        )
    except AccessDeniedError:
        return  # PROCESS is needed, which nothing else here needs
    count, longest = found[0]
    if count:
        yield Finding(
            "source.long_transactions",
            Level.WARN,
            subject,
            f"{count} transactions are open, the longest for {longest} s",
            f"none older than {_LONG_TRANSACTION_S} s",
            "their changes reach the log as one piece when they commit, and old row versions "
            "slow every read",
            "SELECT * FROM information_schema.INNODB_TRX ORDER BY trx_started;",
        )
