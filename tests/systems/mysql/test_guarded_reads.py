"""What a guarded transaction may read under REPEATABLE READ: locked rows are always the newest.

It locks and reads with the same statements. A plain SELECT before them would fix what later plain
ones see, and MariaDB with `innodb_snapshot_isolation` (its default from 11.6 on) refuses every lock
on a row that has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
import pytest

from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

CHANGED_SINCE = 1020
ISOLATED: dict[str, str | int | None] = {"innodb_snapshot_isolation": "ON"}
SERVERS = [
    pytest.param(MySqlServer, {}, id="mysql"),
    pytest.param(MariaDbServer, {"innodb_snapshot_isolation": "OFF"}, id="mariadb"),
    pytest.param(MariaDbServer, ISOLATED, id="mariadb isolated"),
]
LOCK = "SELECT n FROM d.t WHERE id = {key} FOR UPDATE"


@contextmanager
def guarded(server: SqlServer, first: str) -> Iterator[Any]:
    """Open a transaction, and change a row and insert another one after its first statement."""
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, n INT)")
    server.execute("INSERT INTO d.t VALUES (1, 1), (5, 1)")
    with closing(server.connect()) as session, session.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("BEGIN")
        cursor.execute(first)
        cursor.fetchall()
        server.execute("UPDATE d.t SET n = 2 WHERE id = 5")
        server.execute("INSERT INTO d.t VALUES (7, 7)")
        yield cursor


def locked(cursor: Any, key: int) -> list[tuple[Any, ...]]:
    cursor.execute(LOCK.format(key=key))
    return list(cursor.fetchall())


@pytest.mark.parametrize(("kind", "options"), SERVERS)
@pytest.mark.parametrize(
    "first",
    [LOCK.format(key=1), LOCK.format(key=3), "UPDATE d.t SET n = 3 WHERE id = 1"],
    ids=["a lock", "a gap", "a write"],
)
def test_a_transaction_that_has_only_locked_and_written_locks_the_newest_rows(
    kind: type[ThrowawayServer], options: dict[str, str | int | None], first: str
) -> None:
    with kind(options) as server, guarded(server, first) as cursor:
        assert locked(cursor, 5) == [(2,)]
        assert locked(cursor, 7) == [(7,)]


@pytest.mark.parametrize(("kind", "options"), SERVERS)
def test_after_a_plain_read_a_lock_shows_the_newest_row_or_is_refused_but_never_an_older_one(
    kind: type[ThrowawayServer], options: dict[str, str | int | None]
) -> None:
    with kind(options) as server, guarded(server, "SELECT * FROM d.t") as cursor:
        if options == ISOLATED:
            with pytest.raises(pymysql.err.OperationalError) as refused:
                locked(cursor, 5)
            assert refused.value.args[0] == CHANGED_SINCE
        else:
            assert locked(cursor, 5) == [(2,)]
            cursor.execute("SELECT n FROM d.t WHERE id = 5")
            assert list(cursor.fetchall()) == [(1,)], "a plain read shows the older row still"
