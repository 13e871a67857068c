"""The privileges that an account needs.

Preflight looks for these; `init` and the form of a new pipeline print them as statements. A test
compares the page `docs/rights.md` with them.
"""

from __future__ import annotations

from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities

TO_READ_THE_LOG = "REPLICATION SLAVE"
TO_READ_ROWS = "SELECT"
TO_SEE_PREPARED = "XA_RECOVER_ADMIN"
"""Of MySQL without GTIDs: XA transactions may be prepared over a watermark."""
TO_LOOK_AT_LOG_STATUS = "BACKUP_ADMIN"
"""Of MySQL without GTIDs, as the table below: low watermarks need less log replayed."""
LOG_STATUS = "performance_schema.log_status"

SINK_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX", "DROP")
"""On the tables rows go to, and on the ledger."""
TO_ADD_FOREIGN_KEYS = "REFERENCES"
TO_SEE_TRIGGERS = "TRIGGER"
"""MySQL hides a table's triggers from accounts without it, and they would fire unseen."""


def to_see_the_logs_end(capabilities: Capabilities) -> str:
    """Return the privilege that is needed to query the end of a server's log."""
    return "BINLOG MONITOR" if capabilities.is_mariadb else "REPLICATION CLIENT"


def to_see_a_replica(capabilities: Capabilities) -> str:
    """Return the privilege that is needed to see whether a server is a replica."""
    return "SLAVE MONITOR" if capabilities.is_mariadb else "REPLICATION CLIENT"


def source_privileges(capabilities: Capabilities) -> tuple[str, ...]:
    """Return the privileges that a source's account needs on the whole server."""
    wanted = (
        TO_READ_THE_LOG,
        to_see_the_logs_end(capabilities),
        to_see_a_replica(capabilities),
    )
    return tuple(dict.fromkeys(wanted))


def target_privileges(capabilities: Capabilities) -> tuple[str, ...]:
    """Return the privileges that a sink's account needs on the databases of its tables."""
    sees_triggers = () if capabilities.is_mariadb else (TO_SEE_TRIGGERS,)
    *others, drop = SINK_PRIVILEGES
    return (*others, TO_ADD_FOREIGN_KEYS, *sees_triggers, drop)
