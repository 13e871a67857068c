"""What one server can do and how it is set up: a frozen value from one round trip.

Everything that differs between versions and families is answered here, so that no other module
compares versions. `SHOW GLOBAL VARIABLES` is asked rather than `@@name`, because it leaves out
variables a server does not have instead of failing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import UnsupportedServerError
from airflow_cdc_provider.systems.mysql.server.connection import Role, query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_NAMES = (
    "aurora_version",
    "binlog_annotate_row_events",
    "binlog_checksum",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_order_commits",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_rows_query_log_events",
    "binlog_space_limit",
    "binlog_transaction_compression",
    "enforce_gtid_consistency",
    "expire_logs_days",
    "gtid_mode",
    "hostname",
    "innodb_native_foreign_keys",
    "local_infile",
    "log_bin",
    "log_bin_compress",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_binlog_total_size",
    "max_connections",
    "port",
    "read_only",
    "replica_parallel_workers",
    "replica_preserve_commit_order",
    "server_id",
    "server_uuid",
    "slave_parallel_mode",
    "slave_parallel_workers",
    "slave_preserve_commit_order",
    "sql_generate_invisible_primary_key",
    "sql_require_primary_key",
    "super_read_only",
    "sync_binlog",
    "version",
    "version_comment",
    "wsrep_on",
)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_RENAMED_STATUS = (8, 2, 0)
_RENAMED_REPLICA = (8, 0, 22)
_LOG_STATUS = (8, 0, 11)
_CASCADES_LOGGED = (9, 6, 0)


class Flavour(StrEnum):
    """The family of a server: MySQL or MariaDB."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


class WatermarkMode(StrEnum):
    """How a low watermark is taken on a server (law 1)."""

    GTID_EXECUTED = "gtid_executed"
    """MySQL with GTIDs: `@@global.gtid_executed` just before a fresh read view."""
    LOG_STATUS = "log_status"
    """MySQL without GTIDs: `performance_schema.log_status`."""
    LOG_FILE_START = "log_file_start"
    """MySQL without GTIDs or the privilege: the start of the current log file."""
    CONSISTENT_SNAPSHOT = "consistent_snapshot"
    """MariaDB: `binlog_snapshot_*` of the transaction the chunk is read in."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One server's family, version, identity and settings."""

    flavour: Flavour
    version: tuple[int, int, int]
    version_text: str
    server_uuid: str
    """MySQL's own; on MariaDB, which has none, `server_id-<n>@<hostname>`."""
    server_id: int
    settings: Mapping[str, str]
    """Global variables as the server writes them, in lower-case names; absent if unknown there."""

    @property
    def is_mariadb(self) -> bool:
        return self.flavour is Flavour.MARIADB

    def setting(self, *names: str, default: str = "") -> str:
        """Return the value of the first of these variables that the server has."""
        return next((self.settings[name] for name in names if name in self.settings), default)

    def is_on(self, *names: str) -> bool:
        """Tell whether the first of these variables that the server has is on."""
        return self.setting(*names).upper() in {"ON", "1", "YES"}

    # --- identity and log ---------------------------------------------------------------------

    @property
    def has_log(self) -> bool:
        return self.is_on("log_bin")

    @property
    def has_gtids(self) -> bool:
        """Tell whether every transaction has a GTID; MariaDB's always have."""
        return self.is_mariadb or self.setting("gtid_mode").upper() == "ON"

    @property
    def retention_s(self) -> int:
        """Return how many seconds the log is kept; 0 if for ever."""
        if self.setting("binlog_expire_logs_auto_purge", default="ON").upper() == "OFF":
            return 0
        seconds = int(float(self.setting("binlog_expire_logs_seconds", default="0")))
        return seconds or int(float(self.setting("expire_logs_days", default="0")) * 86400)

    @property
    def log_size_limit(self) -> tuple[str, int]:
        """Return the variable that limits the log's size, and its bytes; 0 if there is no limit."""
        for name in ("max_binlog_total_size", "binlog_space_limit"):  # MariaDB's and Percona's
            if name in self.settings:
                return name, int(self.settings[name])
        return "", 0

    @property
    def logs_cascades(self) -> bool:
        """Tell whether rows changed by a foreign key's cascade are logged."""
        if self.is_mariadb or self.version < _CASCADES_LOGGED:
            return False
        return not self.is_on("innodb_native_foreign_keys")

    @property
    def watermark_modes(self) -> tuple[WatermarkMode, ...]:
        """Return the safe ways to take low watermarks, best first; empty if there is none."""
        if not self.has_log or self.is_on("wsrep_on") or self.setting("aurora_version"):
            return ()
        if self.is_mariadb:
            return (WatermarkMode.CONSISTENT_SNAPSHOT,)
        if self.has_gtids:
            return (WatermarkMode.GTID_EXECUTED,)
        if self.version >= _LOG_STATUS:
            return (WatermarkMode.LOG_STATUS, WatermarkMode.LOG_FILE_START)
        return (WatermarkMode.LOG_FILE_START,)

    # --- statements that were renamed ---------------------------------------------------------

    @property
    def status_statement(self) -> str:
        """Return the statement that shows the end of the log."""
        renamed = not self.is_mariadb and self.version >= _RENAMED_STATUS
        return "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS"

    @property
    def replicas_statement(self) -> str:
        """Return the statement that lists the readers of the log."""
        renamed = not self.is_mariadb and self.version >= _RENAMED_REPLICA
        return "SHOW REPLICAS" if renamed else "SHOW SLAVE HOSTS"

    @property
    def replica_status_statement(self) -> str:
        """Return the statement that shows what the server itself replicates."""
        if self.is_mariadb:
            return "SHOW ALL SLAVES STATUS"
        return "SHOW REPLICA STATUS" if self.version >= _RENAMED_REPLICA else "SHOW SLAVE STATUS"

    # --- as a sink ----------------------------------------------------------------------------

    @property
    def max_allowed_packet(self) -> int:
        """Return the bytes of the largest statement that the server takes."""
        return int(self.setting("max_allowed_packet", default="1048576"))

    @property
    def allows_local_infile(self) -> bool:
        return self.is_on("local_infile")

    @property
    def is_read_only(self) -> bool:
        return self.is_on("read_only") or self.is_on("super_read_only")

    # --- names --------------------------------------------------------------------------------

    @property
    def names_fold_case(self) -> bool:
        """Tell whether database and table names are compared without regard to case."""
        return self.setting("lower_case_table_names", default="0") != "0"


def read_capabilities(connection: ServerConnection, *, role: Role = Role.SOURCE) -> Capabilities:
    """Query a server's family, version, identity and settings."""
    names = ", ".join(f"'{name}'" for name in _NAMES)
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})", role=role)
    settings = {str(name).lower(): str(value) for name, value in rows}
    text = settings.get("version", "")
    match = _VERSION.search(text)
    if match is None:
        raise UnsupportedServerError(
            f"the server's version {text!r} is not understood",
            where=f"{connection.host}:{connection.port}",
            remedy="connect to a MySQL 8.0 or MariaDB 10.5 server or later, not through a proxy",
        )
    words = f"{text} {settings.get('version_comment', '')}".lower()
    flavour = Flavour.MARIADB if "mariadb" in words else Flavour.MYSQL
    server_id = int(settings.get("server_id", "0"))
    nameless = f"server_id-{server_id}@{settings.get('hostname', '')}"
    return Capabilities(
        flavour=flavour,
        version=(int(match[1]), int(match[2]), int(match[3])),
        version_text=text,
        server_uuid=settings.get("server_uuid", "") or nameless,
        server_id=server_id,
        settings=settings,
    )
