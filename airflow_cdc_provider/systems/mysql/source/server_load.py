"""How busy a source is, and how far a replica is behind.

`Threads_running` counts the pipeline's own readers as well, which would close a throttle on itself.
So the threads are taken off that run under the session's own account, whose sessions every account
may list: no more of them than the pipeline has connections, so that the work of others under the
same account counts as soon as it is more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import ReplicationStoppedError, RetryableError
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import query, query_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_AT_REST = frozenset({"Sleep", "Daemon"})
_BEHIND = ("Seconds_Behind_Source", "Seconds_Behind_Master")
_RUNNING = (
    ("Replica_IO_Running", "Slave_IO_Running"),
    ("Replica_SQL_Running", "Slave_SQL_Running"),
)


class MySqlLoadLook:
    """Tells how many threads of others run at a server, over one connection."""

    def __init__(self, connection: ServerConnection, most_own: int) -> None:
        self._connection = connection
        self._most_own = most_own

    def threads_running(self) -> int:
        """Return the running threads of the server, without those of the pipeline's account."""
        rows = query(self._connection, "SHOW GLOBAL STATUS LIKE 'Threads_running'")
        if not rows:
            raise RetryableError(
                "the server does not tell Threads_running",
                where=f"{self._connection.host}:{self._connection.port}",
                risk="none: the throttle hands out nothing meanwhile",
                remedy="leave max_threads_running and critical_threads_running out",
            )
        running = int(rows[0][1])
        user = str(query(self._connection, "SELECT USER()")[0][0]).rpartition("@")[0]
        sessions = query_named(self._connection, "SHOW PROCESSLIST")
        own = sum(each["User"] == user and each["Command"] not in _AT_REST for each in sessions)
        others: int = running - min(own, self._most_own)
        return max(0, others)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class MySqlLagLook:
    """Tells how far a replica is behind, over one connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._statement = ""

    def lag_s(self) -> float:
        """Return the seconds that the replica is behind the last of the servers it follows."""
        if not self._statement:
            self._statement = read_capabilities(self._connection).replica_status_statement
        rows = query_named(self._connection, self._statement)
        if not rows:
            raise self._stopped("it follows no server")
        return max(self._behind_s(row) for row in rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _behind_s(self, row: Mapping[str, Any]) -> float:
        """Return the seconds that one row of the replica's status tells."""
        behind = _first(row, _BEHIND)
        if behind is not None:
            return float(behind)
        parts = zip(("IO", "SQL"), _RUNNING, strict=True)
        off = [f"its {part} thread does not run" for part, names in parts if _is_off(row, names)]
        raise self._stopped(" and ".join(off) or "it does not tell how far it is behind")

    def _stopped(self, what: str) -> ReplicationStoppedError:
        """Return the error for a replica whose lag is not known."""
        return ReplicationStoppedError(
            f"it does not replicate: {what}",
            where=f"{self._connection.host}:{self._connection.port}",
            risk="none: the throttle hands out nothing meanwhile",
            remedy="start its replication, or take it out of snapshot.throttle.replicas",
        )


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of these columns that the row has."""
    return next((row[name] for name in names if name in row), None)


def _is_off(row: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Tell whether a thread of the replica does not run."""
    return str(_first(row, names)).upper() != "YES"
