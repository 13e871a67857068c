"""What two-way sync rests on: a commit is in the log before its row locks go.

A session that has waited for a row's lock, or for the gap of an absent key, asks for the log's end:
whatever the lock showed it is before that end. Were it not so, a change of the other node could be
overwritten unseen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pymysql
import pytest

from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.counters import (
    Change,
    come_or_go,
    counting,
    increment,
    make_counters,
    truth_of,
)
from tests.systems.mysql.log_and_locks import Guard, Locked, guard_of, lock_many, require_in_log
from tests.systems.mysql.read_logs import position_of

Options = dict[str, str | int | None]
Hold = Callable[[SqlServer], None]

MYSQL = [
    pytest.param(MySqlServer, {}, id="mysql"),
    pytest.param(MySqlServer, {"sync_binlog": 1}, id="mysql synced"),
    pytest.param(
        MySqlServer,
        {"sync_binlog": 1, "binlog_group_commit_sync_delay": 2000},
        id="mysql grouped",
    ),
    pytest.param(MySqlServer, {"binlog_order_commits": "OFF"}, id="mysql unordered"),
    pytest.param(
        MySqlServer,
        {
            "sync_binlog": 1,
            "binlog_order_commits": "OFF",
            "binlog_group_commit_sync_delay": 2000,
        },
        id="mysql unordered and grouped",
    ),
    pytest.param(
        MySqlServer, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}, id="mysql no gtids"
    ),
]
MARIADB = [
    pytest.param(MariaDbServer, {}, id="mariadb"),
    pytest.param(
        MariaDbServer,
        {"sync_binlog": 1, "innodb_flush_log_at_trx_commit": 1},
        id="mariadb synced",
    ),
    pytest.param(
        MariaDbServer,
        {"binlog_commit_wait_count": 4, "binlog_commit_wait_usec": 2000},
        id="mariadb grouped",
    ),
    pytest.param(MariaDbServer, {"innodb_snapshot_isolation": "ON"}, id="mariadb isolated"),
]
BUSY_S = 30.0
LOCK_WAIT_TIMEOUT = 1205


def lock_while_writing(
    kind: type[ThrowawayServer],
    options: Options,
    *,
    change: Change,
    seed: int,
    distributed: bool = False,
) -> tuple[list[Locked], list[Locked]]:
    """Lock counters while eight writers change them; the log must have had what was seen.

    Returns all that was seen, and what of it came while the lock was waited for.
    """
    print(f"seed {seed}")
    with kind(options) as server:
        server.execute("CREATE DATABASE d")
        table = make_counters(server, "d")
        start = position_of(server)
        if change is come_or_go:
            server.execute("DELETE FROM d.counter")
        with (
            counting(
                server, table, writers=8, seed=seed, distributed=distributed, change=change
            ) as committed,
            guard_of(server, table) as guard,
        ):
            deadline = time.monotonic() + BUSY_S
            while committed() < 8 and time.monotonic() < deadline:
                committed.turn()
                time.sleep(0.01)
            locked = lock_many(guard, seed=seed, before_each=committed.turn)
        end = position_of(server).binlog
        assert end is not None
        truth = truth_of(server, table, start, end, server_id=7107)
    return locked, require_in_log(locked, truth)


@pytest.mark.parametrize(("kind", "options"), MYSQL + MARIADB)
@pytest.mark.sample(4)
def test_the_log_has_a_commit_before_another_session_has_the_lock_of_its_row(
    kind: type[ThrowawayServer], options: Options
) -> None:
    _, waited = lock_while_writing(kind, options, change=increment, seed=20264)
    assert waited, "no counter was changed while its lock was waited for"


@pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def test_the_log_has_a_commit_of_xa_before_another_session_has_the_lock_of_its_row(
    kind: type[ThrowawayServer],
) -> None:
    _, waited = lock_while_writing(kind, {}, change=increment, seed=20265, distributed=True)
    assert waited, "no counter was changed while its lock was waited for"


@pytest.mark.parametrize(("kind", "options"), MYSQL + MARIADB)
@pytest.mark.sample(4)
def test_the_log_has_a_delete_before_another_session_has_the_gap_of_its_key(
    kind: type[ThrowawayServer], options: Options
) -> None:
    locked, waited = lock_while_writing(kind, options, change=come_or_go, seed=20266)
    assert {each.value is None for each in waited} == {True, False}
    assert sum(each.value is None for each in locked) > 10


# --- a commit that is held between the log and its locks ------------------------------------------


def delay_commits(server: SqlServer) -> None:
    server.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")


def wait_for_a_replica_of_mysql(server: SqlServer) -> None:
    server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    server.execute("SET GLOBAL rpl_semi_sync_source_timeout = 1500")
    server.execute("SET GLOBAL rpl_semi_sync_source_enabled = ON")


def wait_for_a_replica_of_mariadb(server: SqlServer) -> None:
    server.execute("SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
    server.execute("SET GLOBAL rpl_semi_sync_master_timeout = 1500")
    server.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")


def is_locked(server: SqlServer, key: int) -> bool:
    """Tell whether another session holds the lock of a counter."""
    try:
        server.execute(f"SELECT n FROM d.counter WHERE id = {key} FOR UPDATE NOWAIT")
    except pymysql.err.OperationalError:
        return True
    return False


def lock_behind(guard: Guard, server: SqlServer, sql: str, key: int) -> tuple[Locked, bool]:
    """Lock a key whose change is being committed; tell whether the lock outlived its logging."""
    before = guard.now()
    writer = threading.Thread(target=server.execute, args=(sql,))
    writer.start()
    try:
        deadline = time.monotonic() + BUSY_S
        while guard.now() == before:
            assert time.monotonic() < deadline, "the commit is not in the log"
            time.sleep(0.001)
        held = is_locked(server, key)
        return guard.lock(key), held
    finally:
        writer.join(BUSY_S)


@pytest.mark.parametrize(
    ("kind", "options", "hold"),
    [
        pytest.param(MySqlServer, {"sync_binlog": 1}, delay_commits, id="mysql delayed"),
        pytest.param(
            MySqlServer,
            {"sync_binlog": 1, "binlog_order_commits": "OFF"},
            delay_commits,
            id="mysql delayed unordered",
        ),
        pytest.param(MySqlServer, {}, wait_for_a_replica_of_mysql, id="mysql semi-synchronous"),
        pytest.param(
            MariaDbServer, {}, wait_for_a_replica_of_mariadb, id="mariadb semi-synchronous"
        ),
    ],
)
@pytest.mark.parametrize(
    ("sql", "key", "value"),
    [
        ("UPDATE d.counter SET n = 7 WHERE id = 5", 5, 7),
        ("INSERT INTO d.counter VALUES (500, 7)", 500, 7),
        ("DELETE FROM d.counter WHERE id = 5", 5, None),
    ],
    ids=["update", "insert", "delete"],
)
@pytest.mark.sample(4)
def test_a_commit_that_is_held_keeps_its_locks_after_it_is_in_the_log(
    kind: type[ThrowawayServer],
    options: Options,
    hold: Hold,
    sql: str,
    key: int,
    value: int | None,
) -> None:
    with kind(options) as server:
        server.execute("CREATE DATABASE d")
        table = make_counters(server, "d")
        start = position_of(server)
        hold(server)
        with guard_of(server, TableId("d", "counter")) as guard:
            locked, held = lock_behind(guard, server, sql, key)
        end = position_of(server).binlog
        assert end is not None
        truth = truth_of(server, table, start, end, server_id=7108)
    assert held, "the lock had gone when the commit was in the log"
    assert locked.value == value
    require_in_log([locked], truth)


@pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def test_an_absent_key_locked_under_repeatable_read_cannot_come_before_the_lock_goes(
    kind: type[ThrowawayServer],
) -> None:
    """READ COMMITTED, as other writers have it, locks no gap: there the key comes."""
    with kind() as server:
        server.execute("CREATE DATABASE d")
        make_counters(server, "d")
        assert not inserts_beside_lock(server, 500, "REPEATABLE READ")
        assert not inserts_beside_lock(server, -1, "REPEATABLE READ")
        assert inserts_beside_lock(server, 500, "READ COMMITTED")
        server.execute("DELETE FROM d.counter")
        assert not inserts_beside_lock(server, 5, "REPEATABLE READ")


def inserts_beside_lock(server: SqlServer, key: int, isolation: str) -> bool:
    """Tell whether an absent key can be inserted while another session has looked for it."""
    with closing(server.connect()) as one, closing(server.connect()) as other:
        with one.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT n FROM d.counter WHERE id = {key} FOR UPDATE")
            assert cursor.fetchone() is None
        with other.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            try:
                cursor.execute(f"INSERT INTO d.counter VALUES ({key}, 1)")
            except pymysql.err.OperationalError as error:
                if error.args[0] != LOCK_WAIT_TIMEOUT:
                    raise
                return False
            return True


def test_the_log_is_read_to_an_end_that_is_ahead_of_what_the_server_sends_yet() -> None:
    """A guard that has the end reads up to there, though commits before it are still synced."""
    with MySqlServer({"sync_binlog": 1}) as server:
        server.execute("CREATE DATABASE d")
        table = make_counters(server, "d")
        start = position_of(server)
        delay_commits(server)
        server.execute("UPDATE d.counter SET n = 1 WHERE id = 1")
        writer = threading.Thread(
            target=server.execute, args=("UPDATE d.counter SET n = 2 WHERE id = 2",)
        )
        with guard_of(server, table) as guard:
            before = guard.now()
            writer.start()
            while (end := guard.now()) == before:
                time.sleep(0.001)
            truth = truth_of(server, table, start, end, server_id=7109)
            writer.join(BUSY_S)
    assert (truth.at(1, end), truth.at(2, end)) == (1, 2)
