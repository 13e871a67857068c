"""A reader that hangs does not hold up the one that takes its place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.source.log_transport import LogTransport
from tests.servers.accounts import Account, least_privileged, source_account
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import position_of

if TYPE_CHECKING:
    import pytest

SERVER_ID = 63_301
MORE_THAN_SOCKETS_HOLD = 24  # MB


def states(server: SqlServer, account: Account) -> list[str]:
    """Give what the account's sessions are doing."""
    sql = f"SELECT state FROM information_schema.processlist WHERE user = '{account.user}'"
    return [row[0] for row in server.execute(sql)]


@contextmanager
def hanging(server: SqlServer, account: Account, start: MySqlPosition) -> Iterator[None]:
    """Have a reader that reads nothing, until its server cannot write to it any more."""
    endpoint = Endpoint.parse(account.dsn)
    with closing(LogTransport(endpoint, server_id=SERVER_ID, start=start)):
        deadline = time.monotonic() + 60
        while states(server, account) != ["Writing to net"]:
            assert time.monotonic() < deadline, "the server could write it all"
            time.sleep(0.05)
        yield


def test_a_dump_whose_reader_hangs_is_ended_for_the_next_with_its_server_id(
    mariadb_server: SqlServer, mariadb_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = position_of(mariadb_server)
    account = source_account(mariadb_server, mariadb_database)
    mariadb_server.execute("CREATE TABLE wide (v LONGTEXT)", database=mariadb_database)
    for _ in range(MORE_THAN_SOCKETS_HOLD):
        sql = "INSERT INTO wide VALUES (REPEAT('x', 1000000))"
        mariadb_server.execute(sql, database=mariadb_database)
    with least_privileged(account), hanging(mariadb_server, account, start):
        endpoint = Endpoint.parse(account.dsn)
        with closing(LogTransport(endpoint, server_id=SERVER_ID, start=start)) as successor:
            assert successor.receive(10.0) is not None
    assert "ending a dump whose reader hangs" in caplog.text
