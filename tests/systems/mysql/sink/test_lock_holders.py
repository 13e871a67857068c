"""Whose lock a write waits for is said wherever the server lists its locks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql
import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.sink.lock_holders import WaitingSession, lock_holders
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.servers.accounts import least_privileged, sink_account
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.throwaway import MariaDbServer

LISTS_LOCKS = {
    "performance-schema": "ON",
    "performance-schema-instrument": "wait/lock/metadata/sql/mdl=ON",
}


@dataclass
class Locked:
    """A table that others lock while one of our sessions writes."""

    server: SqlServer
    database: str
    stack: ExitStack = field(default_factory=ExitStack)

    def session(self) -> Any:
        return self.stack.enter_context(closing(self.server.connect(self.database)))

    def holds(self, *statements: str) -> int:
        """Run statements in a session of their own, which stays open; returns its number."""
        held = self.session()
        for statement in statements:
            held.cursor().execute(statement)
        return int(held.thread_id())

    def waits(self, statement: str, state: str = "") -> WaitingSession:
        """Run a statement that has to wait, and return its session once it does."""
        connection = self.session()
        number = int(connection.thread_id())
        run = threading.Thread(target=self._end, args=(connection, statement))
        run.start()
        self.stack.callback(run.join)
        self.stack.callback(self.kill, number)
        wait_until(lambda: self.state(number).startswith(f"Waiting for {state}"))
        return WaitingSession(number, self.state(number), self.database, "orders")

    def state(self, number: int) -> str:
        sql = f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}"
        found = self.server.execute(sql)
        return str(found[0][0] or "") if found else ""

    def kill(self, number: int) -> None:
        try:
            self.server.execute(f"KILL {number}")
        except pymysql.err.OperationalError:  # it is gone
            return

    @staticmethod
    def _end(connection: Any, statement: str) -> None:
        try:
            connection.cursor().execute(statement)
        except (pymysql.err.Error, ValueError):  # it was killed
            return

    def holders(self, waiting: WaitingSession, dsn: str = "") -> tuple[str, ...]:
        endpoint = Endpoint.parse(dsn or self.server.dsn())
        with closing(SinkSession.open(endpoint, purpose="test")) as session:
            return lock_holders(session, waiting, [waiting.number])


@contextmanager
def locked(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> Iterator[Locked]:
    made = Locked(server, fresh_database(server))
    server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database=made.database)
    with made.stack:
        yield made


WRITE = "INSERT INTO orders VALUES (1)"


class Holders:
    """What is so wherever a server lists its locks."""

    @pytest.mark.parametrize("how", ["READ", "WRITE"])
    def test_who_locks_the_table_is_named_with_the_account(self, it: Locked, how: str) -> None:
        number = it.holds(f"LOCK TABLES orders {how}")
        (named,) = it.holders(it.waits(WRITE))
        assert named.startswith(f"session {number} of {it.server.user}@")

    def test_who_locks_the_server_is_named_and_not_those_who_wait_as_well(self, it: Locked) -> None:
        number = it.holds("FLUSH TABLES WITH READ LOCK")
        it.waits("INSERT INTO orders VALUES (2)")
        (named,) = it.holders(it.waits(WRITE))
        assert named.startswith(f"session {number} of ")

    def test_an_alter_that_waits_for_a_reader_is_named(self, it: Locked) -> None:
        it.holds("BEGIN", "SELECT * FROM orders")
        alter = it.waits("ALTER TABLE orders ADD x INT")
        (named,) = it.holders(it.waits(WRITE))
        assert named.startswith(f"session {alter.number} of ")


class TestAtMySql(Holders):
    @pytest.fixture
    def it(
        self, mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str]
    ) -> Iterator[Locked]:
        with locked(mysql_sink, fresh_database) as made:
            yield made


@pytest.fixture(scope="module")
def listing_mariadb() -> Iterator[SqlServer]:
    with MariaDbServer(LISTS_LOCKS) as server:
        yield server


@pytest.mark.mariadb
class TestAtMariaDbWithItsPerformanceSchema(Holders):
    @pytest.fixture
    def it(
        self, listing_mariadb: SqlServer, fresh_database: Callable[[SqlServer], str]
    ) -> Iterator[Locked]:
        with locked(listing_mariadb, fresh_database) as made:
            yield made

    def test_of_two_that_may_have_locked_the_table_for_reading_none_is_accused(
        self, it: Locked
    ) -> None:
        it.holds("LOCK TABLES orders READ")
        it.holds("BEGIN", "SELECT * FROM orders")
        assert it.holders(it.waits(WRITE)) == ()


class TestAtMariaDbWithThePluginOfItsLocks(Holders):
    @pytest.fixture
    def server(self, mariadb_server: SqlServer) -> Iterator[SqlServer]:
        try:
            mariadb_server.execute("INSTALL SONAME 'metadata_lock_info'")
        except pymysql.err.Error as error:
            pytest.skip(f"this MariaDB has not the plugin METADATA_LOCK_INFO: {error}")
        yield mariadb_server
        mariadb_server.execute("UNINSTALL SONAME 'metadata_lock_info'")

    @pytest.fixture
    def it(self, server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> Iterator[Locked]:
        with locked(server, fresh_database) as made:
            yield made

    def test_an_account_without_any_other_grant_is_told_the_sessions_number(
        self, it: Locked
    ) -> None:
        number = it.holds("LOCK TABLES orders WRITE")
        waiting = it.waits(WRITE)
        account = sink_account(it.server, it.database)
        with least_privileged(account):
            assert it.holders(waiting, account.dsn) == (f"session {number}",)


def test_a_mariadb_that_lists_no_locks_names_nobody(
    mariadb_server: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> None:
    with locked(mariadb_server, fresh_database) as it:
        it.holds("LOCK TABLES orders WRITE")
        assert it.holders(it.waits(WRITE)) == ()
