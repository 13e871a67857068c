"""Law 1: L is a lower bound of what the read sees; H is an upper bound.

The race is made certain: a commit is held between the moment when its bytes are in the log and the
moment when its row is visible, and a split is read in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SplitReport
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, own
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.counters import COUNTERS, counting, make_counters, truth_of
from tests.systems.mysql.read_logs import position_of
from tests.systems.mysql.splits import Hooks, numbered, reader_of, schema_of, split_of, tuples

TABLE = TableId("d", "t")
LATE = (5, "late")
_ATTEMPTS = 3
_RACE_S = 120.0


def log_end_of(server: SqlServer) -> BinlogPosition:
    row = server.execute("SHOW BINARY LOG STATUS")[0]
    return BinlogPosition.of(row[0], row[1])


def prepared(server: SqlServer) -> None:
    server.execute("CREATE DATABASE IF NOT EXISTS d")
    server.execute("CREATE TABLE IF NOT EXISTS d.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.execute("DELETE FROM d.t")
    server.execute(f"INSERT INTO d.t VALUES {numbered([1, 2, 8, 9])}")


@contextmanager
def commit_under_way(server: SqlServer, sql: str) -> Iterator[BinlogPosition]:
    """Give the log's end when a commit's bytes are in it and its row is not yet visible."""
    before = log_end_of(server)
    writer = threading.Thread(target=server.execute, args=(sql,))
    writer.start()
    try:
        while (end := log_end_of(server)) == before:
            time.sleep(0.001)
        yield end
    finally:
        writer.join(30)


def is_hidden(server: SqlServer) -> bool:
    return not server.execute("SELECT id FROM d.t WHERE id = 5")


def notes(server: SqlServer, seen: list[bool]) -> Callable[[], None]:
    """Return an action that notes whether the late row is hidden."""

    def note() -> None:
        seen.append(is_hidden(server))

    return note


def read_while_hidden(server: SqlServer, hold: Callable[[], None]) -> None:
    """Read the whole table while the late row's commit is held; the split must have the row."""
    for _ in range(_ATTEMPTS):
        prepared(server)
        schema = schema_of(server, TABLE)
        hold()
        hidden: list[bool] = []
        hooks = Hooks(before_high=notes(server, hidden))
        with (
            reader_of(server, schema, listener=hooks) as reader,
            commit_under_way(server, f"INSERT INTO d.t VALUES {LATE}") as logged,
        ):
            rows, report = reader.read(split_of(schema))
        if hidden != [True]:
            continue  # the machine was too slow: the commit was over before the rows were read
        high = own(report.high).binlog
        assert high is not None
        assert high >= logged
        assert LATE in tuples(rows)
        return
    pytest.fail("the commit was never held long enough for the race to be there")


def test_law_1_a_commit_held_in_the_sync_delay_is_in_the_split_that_covers_it() -> None:
    with MySqlServer({"sync_binlog": 1}) as server:

        def hold() -> None:
            server.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")

        read_while_hidden(server, hold)
        server.execute("SET GLOBAL binlog_group_commit_sync_delay = 0")


def test_law_1_a_commit_that_waits_for_a_semi_synchronous_replica_is_in_the_split() -> None:
    with MySqlServer() as server:
        server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        server.execute("SET GLOBAL rpl_semi_sync_source_timeout = 1500")

        def hold() -> None:  # after a time-out the server goes on without waiting: arm it anew
            server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
            server.execute("SET GLOBAL rpl_semi_sync_source_enabled = ON")

        read_while_hidden(server, hold)


def test_law_1_a_commit_read_by_the_split_before_it_was_visible_is_in_the_next_split() -> None:
    """The dump is ahead of the second L: what it has already given must not be lost."""
    with MySqlServer({"sync_binlog": 0}) as server:
        for _ in range(_ATTEMPTS):
            prepared(server)
            schema = schema_of(server, TABLE)
            server.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")
            hidden: list[bool] = []
            hooks = Hooks(before_high=notes(server, hidden))
            with (
                reader_of(server, schema, listener=hooks) as reader,
                commit_under_way(server, f"INSERT INTO d.t VALUES {LATE}") as logged,
            ):
                reader.read(split_of(schema, None, (3,)))
                passed = reader.tail.position
                rows, _ = reader.read(split_of(schema, (3,), None, number=1))
                dumps = reader.tail.dumps
            server.execute("SET GLOBAL binlog_group_commit_sync_delay = 0")
            if hidden != [True, True]:
                continue
            assert passed is not None
            assert passed.binlog is not None
            assert passed.binlog >= logged
            assert LATE in tuples(rows)
            assert dumps == 1
            return
        pytest.fail("the commit was never held long enough for the race to be there")


def test_law_1_whatever_was_committed_before_h_was_taken_is_contained_in_it(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = TableId(mysql_database, "t")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    schema = schema_of(mysql_server, table)
    places: list[BinlogPosition] = []

    def insert_late() -> None:
        mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES {LATE}")
        places.append(log_end_of(mysql_server))

    with reader_of(mysql_server, schema, listener=Hooks(before_high=insert_late)) as reader:
        rows, report = reader.read(split_of(schema))
    assert own(report.high).binlog == places[0]
    assert tuples(rows) == [LATE]


def count_and_read(
    server: SqlServer,
    database: str,
    seed: int,
    *,
    rounds: int = 16,
    endpoint: Endpoint | None = None,
    distributed: bool = False,
) -> None:
    """Read splits while counters run; each row must be what the log says it was at H.

    Sixteen splits may be read before the first writer has connected. So it is read on until changes
    were made meanwhile and some of them lay between an L and its H, which is what is to be tested.
    """
    print(f"seed {seed}")
    table = make_counters(server, database)
    schema = schema_of(server, table)
    start = position_of(server)
    reads: list[tuple[list[tuple[Any, ...]], SplitReport]] = []
    replayed = 0
    deadline = time.monotonic() + _RACE_S
    with (
        counting(server, table, writers=4, seed=seed, distributed=distributed) as committed,
        reader_of(server, schema, endpoint=endpoint) as reader,
    ):
        while len(reads) < rounds or committed() <= rounds or replayed == 0:
            assert time.monotonic() < deadline, "the race was never there"
            committed.turn()
            turn = len(reads)
            low = (turn % 4) * (COUNTERS // 4)
            split = split_of(schema, (low,), (low + COUNTERS // 4,), number=turn)
            rows, report = reader.read(split)
            reads.append((tuples(rows), report))
            replayed += report.changes
    end = position_of(server).binlog
    assert end is not None
    truth = truth_of(server, table, start, end, server_id=7105)
    assert truth.changes > rounds
    for read, report in reads:
        high = own(report.high).binlog
        assert high is not None
        expected = [(key, truth.at(key, high)) for key, _ in read]
        assert read == expected, report


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="synced by the system"),
        pytest.param({"sync_binlog": 1}, id="synced at each commit"),
        pytest.param({"sync_binlog": 1, "binlog_group_commit_sync_delay": 2000}, id="delayed"),
        pytest.param({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}, id="without GTIDs"),
    ],
)
def test_law_1_counters_read_while_they_run_are_what_the_log_says_at_h(
    options: dict[str, str | int | None],
) -> None:
    with MySqlServer(options) as server:
        server.execute("CREATE DATABASE d")
        count_and_read(server, "d", seed=20261)


def test_law_1_counters_read_by_an_account_that_knows_only_the_log_files_start() -> None:
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE USER plain IDENTIFIED BY 'plain_secret'")
        server.execute(
            "GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE, XA_RECOVER_ADMIN ON *.* TO plain"
        )
        plain = Endpoint.parse(server.dsn("plain", "plain_secret"))
        count_and_read(server, "d", seed=20262, endpoint=plain)


@pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def test_law_1_counters_changed_by_xa_transactions_are_what_the_log_says_at_h(
    kind: type[ThrowawayServer],
) -> None:
    """On MariaDB a commit of XA is in the log, before a snapshot's place, and not visible yet."""
    with kind({"sync_binlog": 1}) as server:
        server.execute("CREATE DATABASE d")
        count_and_read(server, "d", seed=20263, rounds=60, distributed=True)


def test_law_1_counters_on_mariadb_are_what_the_log_says_at_the_snapshots_place(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = make_counters(mariadb_server, mariadb_database)
    schema = schema_of(mariadb_server, table)
    start = position_of(mariadb_server)
    reads: list[tuple[list[tuple[Any, ...]], SplitReport]] = []
    deadline = time.monotonic() + _RACE_S
    with (
        counting(mariadb_server, table, writers=4, seed=7) as committed,
        reader_of(mariadb_server, schema) as reader,
    ):
        while len(reads) < 20 or committed() <= 20:
            assert time.monotonic() < deadline, "nothing was written meanwhile"
            rows, report = reader.read(split_of(schema, number=len(reads)))
            reads.append((tuples(rows), report))
    end = position_of(mariadb_server).binlog
    assert end is not None
    truth = truth_of(mariadb_server, table, start, end, server_id=7106)
    for read, report in reads:
        high = own(report.high).binlog
        assert high is not None
        assert read == [(key, truth.at(key, high)) for key, _ in read]
