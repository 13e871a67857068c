"""XA transactions that were prepared before the log is read from have their rows all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.errors import PreparedTransactionError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition, own, own_point
from tests.servers.given import SqlServer
from tests.servers.prepared import finish_prepared
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.read_logs import position_of, reading, rows_of

T, OTHER = TableId("d", "t"), TableId("d", "other")


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """A server of the module's own: its log is purged, and what is prepared hinders others."""
    kind: type[ThrowawayServer] = request.param
    with kind() as started:
        started.execute("CREATE DATABASE d")
        yield started


@pytest.fixture
def table(server: SqlServer) -> Iterator[TableId]:
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(500))")
    server.execute("CREATE TABLE d.other LIKE d.t")
    yield T
    for row in server.execute("XA RECOVER"):
        finish_prepared(server, "ROLLBACK", f"'{row[3]}'")
    server.execute("DROP TABLE d.t, d.other")


def prepare(server: SqlServer, name: str, *statements: str) -> None:
    with closing(server.connect("d")) as session, session.cursor() as cursor:
        cursor.execute(f"XA START '{name}'")
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(f"XA END '{name}'")
        cursor.execute(f"XA PREPARE '{name}'")


@pytest.fixture
def finish(server: SqlServer) -> Callable[[str, str], None]:
    """Commit or roll back in another session, once the one that prepared is gone for good."""

    def end(verb: str, name: str) -> None:
        finish_prepared(server, verb, f"'{name}'")

    return end


def purge_to(server: SqlServer, file: str) -> None:
    deadline = time.monotonic() + 20
    while server.execute("SHOW BINARY LOGS")[0][0] != file:
        # MariaDB keeps a file while a dump that has ended by now is not yet noticed to have
        assert time.monotonic() < deadline, "the log is still there"
        server.execute(f"PURGE BINARY LOGS TO '{file}'")
        time.sleep(0.1)


def changes(
    server: SqlServer, start: MySqlPosition, *tables: TableId, end: MySqlPosition | None = None
) -> tuple[list[ChangeBatch], MySqlPosition]:
    until = (end or position_of(server)).binlog
    with reading(server, start, *(tables or (T,))) as reader:
        batches = list(reader.read_to(until))
        return batches, reader.position


def test_a_transaction_prepared_before_the_start_comes_with_its_commit(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    server.execute(f"INSERT INTO {table} VALUES (1, 'before'), (2, 'before')")
    prepare(server, "a", "INSERT INTO t VALUES (5, 'xa')", "DELETE FROM t WHERE id = 1")
    start = position_of(server)
    server.execute(f"INSERT INTO {table} VALUES (3, 'between')")
    finish("COMMIT", "a")
    server.execute(f"INSERT INTO {table} VALUES (4, 'behind')")
    batches, _ = changes(server, start)
    assert rows_of(batches) == [("INSERT", 3), ("INSERT", 5), ("DELETE", 1), ("INSERT", 4)]
    points = [point for batch in batches for point in batch.transactions]
    assert len(points) == 3
    assert sorted(points, key=lambda point: own_point(point).end) == points


def test_a_restart_between_prepare_and_commit_loses_nothing(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    server.execute(f"INSERT INTO {table} VALUES (1, 'a')")
    prepare(server, "a", "INSERT INTO t VALUES (5, 'xa')")
    first, reached = changes(server, start)
    assert rows_of(first) == [("INSERT", 1)]
    finish("COMMIT", "a")
    again, _ = changes(server, reached)
    assert rows_of(again) == [("INSERT", 5)]


def test_the_last_of_one_name_is_found_however_many_files_before(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    prepare(server, "a", "INSERT INTO t VALUES (1, 'first')")
    finish("COMMIT", "a")
    prepare(server, "a", "INSERT INTO t VALUES (2, 'rolled back')")
    finish("ROLLBACK", "a")
    prepare(server, "a", "INSERT INTO t VALUES (3, 'last')")
    for _ in range(3):
        server.execute("FLUSH BINARY LOGS")
        server.execute(f"INSERT INTO {OTHER} VALUES (1, 'x')")
        server.execute(f"DELETE FROM {OTHER}")
    start = position_of(server)
    finish("COMMIT", "a")
    prepare(server, "a", "INSERT INTO t VALUES (4, 'later')")
    server.execute("FLUSH BINARY LOGS")
    finish("COMMIT", "a")
    batches, _ = changes(server, start)
    assert rows_of(batches) == [("INSERT", 3), ("INSERT", 4)]


def test_rows_of_tables_that_are_not_captured_do_not_come(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    prepare(server, "a", "INSERT INTO t VALUES (1, 'x')", "INSERT INTO other VALUES (2, 'x')")
    prepare(server, "b", "INSERT INTO other VALUES (3, 'x')")
    start = position_of(server)
    finish("COMMIT", "b")
    finish("COMMIT", "a")
    assert rows_of(changes(server, start, table)[0]) == [("INSERT", 1)]


def test_a_transaction_rolled_back_behind_the_start_has_no_rows(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    prepare(server, "a", "INSERT INTO t VALUES (1, 'x')")
    start = position_of(server)
    finish("ROLLBACK", "a")
    assert rows_of(changes(server, start)[0]) == []


def test_a_transaction_whose_rows_are_purged_is_refused_by_name(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    prepare(server, "a", "INSERT INTO t VALUES (1, 'x')")
    server.execute("FLUSH BINARY LOGS")
    start = position_of(server)
    assert start.binlog is not None
    purge_to(server, start.binlog.file)
    finish("COMMIT", "a")
    with pytest.raises(PreparedTransactionError, match=r"XA X'61'.*`reset`"):
        changes(server, start)


SMALL = BatchLimits(changes=400, bytes=30_000)
"""Of prepared transactions, four times as many bytes of rows are kept."""
WIDE = "'" + "w" * 400 + "'"


def many(first: int, count: int) -> list[str]:
    """Return statements that insert so many rows, a hundred each."""
    return [
        "INSERT INTO t VALUES " + ", ".join(f"({key}, {WIDE})" for key in range(at, at + 100))
        for at in range(first, first + count, 100)
    ]


def keys(batches: list[ChangeBatch]) -> list[object]:
    return [key for _, key in rows_of(batches)]


def read_small(server: SqlServer, start: MySqlPosition) -> list[ChangeBatch]:
    with reading(server, start, T, limits=SMALL) as reader:
        return list(reader.read_to(position_of(server).binlog))


def test_a_prepared_transaction_larger_than_what_is_kept_comes_whole_in_parts(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    server.execute(f"INSERT INTO {table} VALUES (-1, 'a')")
    prepare(server, "a", *many(0, 20_000), "UPDATE t SET v = 'changed' WHERE id = 7")
    server.execute(f"INSERT INTO {table} VALUES (-2, 'b')")
    finish("COMMIT", "a")
    server.execute(f"INSERT INTO {table} VALUES (-3, 'c')")
    batches = read_small(server, start)
    assert keys(batches) == [-1, -2, *range(20_000), (7, 7), -3]
    parts = [batch for batch in batches if batch.end is None]
    assert len(parts) >= 3
    assert max(batch.changes for batch in batches) < 10_000
    assert {own_point(point).gtid for part in parts for point in part.transactions} == {
        own_point(parts[0].transactions[0]).gtid
    }


def test_prepared_transactions_that_are_too_much_together_all_come(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    for number in range(12):
        prepare(server, f"n{number}", *many(number * 1000, 1000))
    for number in (*range(0, 12, 2), *range(1, 12, 2)):
        finish("COMMIT", f"n{number}")
    found = keys(read_small(server, start))
    order = [n * 1000 + key for n in (*range(0, 12, 2), *range(1, 12, 2)) for key in range(1000)]
    assert found == order


def test_a_large_transaction_that_is_rolled_back_or_in_one_phase_is_as_it_should(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    prepare(server, "a", *many(0, 5000))
    finish("ROLLBACK", "a")
    with closing(server.connect("d")) as session, session.cursor() as cursor:
        for sql in ("XA START 'o'", *many(0, 6000), "XA END 'o'", "XA COMMIT 'o' ONE PHASE"):
            cursor.execute(sql)
    server.execute(f"INSERT INTO {table} VALUES (-1, 'a')")
    assert keys(read_small(server, start)) == [*range(6000), -1]


def test_a_large_transaction_is_followed_over_its_savepoints(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    dropped = ("SAVEPOINT s", *many(8000, 100), "ROLLBACK TO SAVEPOINT s")
    prepare(server, "a", *many(0, 6000), *dropped, *many(6000, 300))
    finish("COMMIT", "a")
    assert keys(read_small(server, start)) == list(range(6300))


def test_a_large_transaction_prepared_before_the_start_comes_whole_in_parts(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    prepare(server, "a", *many(0, 20_000))
    server.execute("FLUSH BINARY LOGS")
    start = position_of(server)
    finish("COMMIT", "a")
    server.execute(f"INSERT INTO {table} VALUES (-3, 'c')")
    batches = read_small(server, start)
    assert keys(batches) == [*range(20_000), -3]
    assert max(batch.changes for batch in batches) < 10_000


def test_the_end_of_a_part_is_no_place_to_go_on_from_and_every_boundary_is(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    prepare(server, "a", *many(0, 3000))
    server.execute(f"INSERT INTO {table} VALUES (-2, 'b')")
    finish("COMMIT", "a")
    server.execute(f"INSERT INTO {table} VALUES (-3, 'c')")
    batches = read_small(server, start)
    whole = [-2, *range(3000), -3]
    assert keys(batches) == whole
    done = 0
    for batch in batches:
        done += batch.changes
        if batch.end is not None and own(batch.end).binlog is not None:
            assert keys(read_small(server, own(batch.end))) == whole[done:]


def test_a_large_transaction_whose_rows_are_purged_meanwhile_is_refused_by_name(
    server: SqlServer, table: TableId, finish: Callable[[str, str], None]
) -> None:
    start = position_of(server)
    prepare(server, "a", *many(0, 5000))
    with reading(server, start, T, limits=SMALL) as reader:
        assert keys(list(reader.read_to(position_of(server).binlog))) == []
        server.execute("FLUSH BINARY LOGS")
        finish("COMMIT", "a")
        purge_to(server, server.execute("SHOW BINARY LOGS")[-1][0])
        with pytest.raises(PreparedTransactionError, match="before the log that can be read"):
            list(reader.read_to(position_of(server).binlog))
