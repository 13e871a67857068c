"""A second server that follows the first, of either family."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, Options, ThrowawayServer

PATIENCE_S = 30.0


def server_of(family: str, options: Options | None = None) -> ThrowawayServer:
    """Make a server of a family, which writes what it replicates to a log of its own."""
    if family == "mysql":
        return MySqlServer(options)
    return MariaDbServer({"log-slave-updates": "ON", **(options or {})})


@contextmanager
def pair_of(family: str) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
    """Start a server and a replica that follows it."""
    with server_of(family) as primary, server_of(family) as replica:
        follow(replica, primary)
        yield primary, replica


def follow(replica: SqlServer, primary: SqlServer) -> None:
    """Have one server follow the other by GTIDs."""
    if is_mariadb(replica):
        replica.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, "
            f"MASTER_USER = '{primary.user}', MASTER_PASSWORD = '{primary.password}', "
            "MASTER_USE_GTID = slave_pos"
        )
        replica.execute("START SLAVE")
        return
    replica.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {primary.port}, "
        f"SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}', "
        "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
    )
    replica.execute("START REPLICA")


def part(replica: SqlServer, primary: SqlServer) -> None:
    """Wait until the replica has all that the primary has; then it follows no more."""
    catch_up(replica, primary)
    if is_mariadb(replica):
        replica.execute("STOP SLAVE")
        replica.execute("RESET SLAVE ALL")
        return
    replica.execute("STOP REPLICA")
    replica.execute("RESET REPLICA ALL")


def catch_up(replica: SqlServer, primary: SqlServer) -> None:
    """Wait until the replica has all that the primary has."""
    if is_mariadb(replica):
        wanted = primary.execute("SELECT @@global.gtid_binlog_pos")[0][0]
        _wait(replica, f"SELECT MASTER_GTID_WAIT('{wanted}', 1)")
        return
    wanted = primary.execute("SELECT @@global.gtid_executed")[0][0]
    _wait(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 1)")


def is_mariadb(server: SqlServer) -> bool:
    """Tell a server's family."""
    return "MariaDB" in server.version


def _wait(replica: SqlServer, question: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while replica.execute(question)[0][0] != 0:
        if time.monotonic() >= deadline:
            raise AssertionError(f"the replica did not come up to: {question}")
