"""The log read from real servers: ends, gaps, rotations, starts, and what is refused."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    LogPurgedError,
    RetryableError,
    SourceIdentityError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from tests.servers.given import SqlServer
from tests.servers.proxy import CuttingProxy, Fault
from tests.servers.throwaway import MariaDbServer, MySqlServer
from tests.systems.mysql.read_logs import SERVER_ID, insert, position_of, reading, rows_of, through


@pytest.fixture
def table(mysql_server: SqlServer, mysql_database: str) -> TableId:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    return TableId(mysql_database, "t")


def test_changes_up_to_the_asked_place_are_read_and_none_beyond(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    insert(mysql_server, table, 1, 2)
    mysql_server.execute(f"UPDATE {table.database}.t SET id = 3 WHERE id = 1")
    until = position_of(mysql_server)
    insert(mysql_server, table, 4)
    with reading(mysql_server, start, table) as reader:
        batches = list(reader.read_to(until.binlog))
        assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2), ("UPDATE", (1, 3))]
        assert reader.position == until
        later = position_of(mysql_server)
        assert rows_of(list(reader.read_to(later.binlog))) == [("INSERT", 4)]
        assert reader.position == later


def test_reading_to_a_place_already_passed_waits_for_nothing(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    with reading(mysql_server, start, table) as reader:
        began = time.monotonic()
        assert list(reader.read_to(start.binlog)) == []
        assert time.monotonic() - began < 0.5


def test_a_start_by_gtids_reads_exactly_what_the_set_lacks(
    mysql_server: SqlServer, table: TableId
) -> None:
    insert(mysql_server, table, 1)
    start = position_of(mysql_server)
    insert(mysql_server, table, 2)
    end = position_of(mysql_server)
    by_set = MySqlPosition(start.server_uuid, None, start.gtids)
    with reading(mysql_server, by_set, table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 2)]
        assert reader.position == end


def test_a_start_by_gtids_with_nothing_left_ends_at_the_servers_end(
    mysql_server: SqlServer, table: TableId
) -> None:
    insert(mysql_server, table, 1)
    end = position_of(mysql_server)
    by_set = MySqlPosition(end.server_uuid, None, end.gtids)
    with reading(mysql_server, by_set, table) as reader:
        began = time.monotonic()
        assert rows_of(list(reader.read_to(end.binlog))) == []
        assert time.monotonic() - began < 2
        assert reader.position == end


def test_a_start_by_gtids_across_a_new_file_ends_at_the_servers_end(
    mysql_server: SqlServer, table: TableId
) -> None:
    insert(mysql_server, table, 1)
    mysql_server.execute("FLUSH BINARY LOGS")
    end = position_of(mysql_server)
    by_set = MySqlPosition(end.server_uuid, None, end.gtids)
    with reading(mysql_server, by_set, table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == []
        assert reader.position == end


def test_the_end_may_lie_in_a_new_file_without_any_transaction(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    insert(mysql_server, table, 1)
    mysql_server.execute("FLUSH BINARY LOGS")
    end = position_of(mysql_server)
    with reading(mysql_server, start, table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 1)]
        assert reader.position == end


def test_the_end_may_be_the_very_start_of_a_file(mysql_server: SqlServer, table: TableId) -> None:
    start = position_of(mysql_server)
    insert(mysql_server, table, 1)
    mysql_server.execute("FLUSH BINARY LOGS")
    end = position_of(mysql_server).binlog
    assert end is not None
    with reading(mysql_server, start, table) as reader:
        assert rows_of(list(reader.read_to(end.at(4)))) == [("INSERT", 1)]
        assert reader.position.binlog == end.at(4)


def test_without_an_end_an_idle_log_still_gives_a_batch_in_time(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    with reading(mysql_server, start, table) as reader:
        batches = reader.read_to(None, max_wait_s=0.2)
        began = time.monotonic()
        assert next(batches).changes == 0
        insert(mysql_server, table, 5)
        seen = [next(batches) for _ in range(3)]
        assert rows_of(seen) == [("INSERT", 5)]
        assert time.monotonic() - began < 3


def test_an_abandoned_iteration_loses_no_batch(mysql_server: SqlServer, table: TableId) -> None:
    start = position_of(mysql_server)
    for key in range(6):
        insert(mysql_server, table, key)
    end = position_of(mysql_server)
    limits = BatchLimits(changes=2)
    with reading(mysql_server, start, table, limits=limits) as reader:
        first = next(iter(reader.read_to(end.binlog)))
        rest = list(reader.read_to(end.binlog))
        assert rows_of([first, *rest]) == [("INSERT", key) for key in range(6)]


def test_a_batch_ends_after_its_seconds_of_reading_at_a_boundary(
    mysql_server: SqlServer, table: TableId
) -> None:
    """A log of several chunks, whose one long transaction is in none of the batches in part."""
    mysql_server.execute(f"CREATE TABLE {table.database}.w (id INT PRIMARY KEY, v VARBINARY(8000))")
    start = position_of(mysql_server)
    for key in range(3):
        rows = ", ".join(f"({key * 1000 + n}, REPEAT('x', 8000))" for n in range(200))
        mysql_server.execute(f"INSERT INTO {table.database}.w VALUES {rows}")
    rows = ", ".join(f"({3000 + n}, REPEAT('y', 8000))" for n in range(800))
    mysql_server.execute(f"INSERT INTO {table.database}.w VALUES {rows}")
    end = position_of(mysql_server)
    wide = TableId(table.database, "w")
    with reading(mysql_server, start, wide) as reader:
        whole = list(reader.read_to(end.binlog))
    with reading(mysql_server, start, wide) as reader:
        timed = list(reader.read_to(end.binlog, batch_s=1e-9))
        assert reader.position == end
    assert len(whole) == 1
    assert len(timed) >= 3
    assert [key for _, key in rows_of(timed)] == [key for _, key in rows_of(whole)]
    for before, after in itertools.pairwise(timed):
        assert before.end == after.start
    assert max(batch.changes for batch in timed) == 800


def test_changes_of_a_row_of_twenty_megabytes_are_read(
    mysql_server: SqlServer, table: TableId
) -> None:
    mysql_server.execute(f"CREATE TABLE {table.database}.big (id INT PRIMARY KEY, v LONGBLOB)")
    mysql_server.execute("SET GLOBAL max_allowed_packet = 67108864")
    start = position_of(mysql_server)
    mysql_server.execute(
        f"INSERT INTO {table.database}.big VALUES (1, REPEAT('x', 20000000)), (2, 'y')"
    )
    end = position_of(mysql_server)
    with reading(mysql_server, start, TableId(table.database, "big")) as reader:
        batches = list(reader.read_to(end.binlog))
    assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2)]
    (value, _) = batches[0].tables[0].after.column("v").to_pylist()
    assert value == b"x" * 20_000_000


def mariadb_position(server: SqlServer) -> MySqlPosition:
    """Ask a quiet MariaDB for its whole position."""
    place = position_of(server)
    gtids = MariaDbGtidPosition.parse(server.execute("SELECT @@global.gtid_binlog_pos")[0][0])
    return MySqlPosition(place.server_uuid, place.binlog, gtids)


@pytest.fixture
def mariadb_table(mariadb_server: SqlServer, mariadb_database: str) -> TableId:
    mariadb_server.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    return TableId(mariadb_database, "t")


def test_mariadb_is_read_by_file(mariadb_server: SqlServer, mariadb_table: TableId) -> None:
    start = mariadb_position(mariadb_server)
    insert(mariadb_server, mariadb_table, 1, 2)
    end = mariadb_position(mariadb_server)
    with reading(mariadb_server, start, mariadb_table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 1), ("INSERT", 2)]
        assert reader.position == end


def test_mariadb_is_read_by_gtids(mariadb_server: SqlServer, mariadb_table: TableId) -> None:
    insert(mariadb_server, mariadb_table, 1)
    start = mariadb_position(mariadb_server)
    insert(mariadb_server, mariadb_table, 2)
    mariadb_server.execute("FLUSH BINARY LOGS")
    insert(mariadb_server, mariadb_table, 3)
    end = mariadb_position(mariadb_server)
    by_set = MySqlPosition(start.server_uuid, None, start.gtids)
    with reading(mariadb_server, by_set, mariadb_table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 2), ("INSERT", 3)]
        assert reader.position == end


def test_mariadb_with_nothing_left_after_the_gtids_ends_at_its_end(
    mariadb_server: SqlServer, mariadb_table: TableId
) -> None:
    insert(mariadb_server, mariadb_table, 1)
    end = mariadb_position(mariadb_server)
    by_set = MySqlPosition(end.server_uuid, None, end.gtids)
    with reading(mariadb_server, by_set, mariadb_table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == []
        assert reader.position == end


def test_mariadbs_purged_log_is_named() -> None:
    with MariaDbServer() as server:
        server.execute("CREATE DATABASE d")
        start = mariadb_position(server)
        server.execute("CREATE DATABASE e")
        server.execute("FLUSH BINARY LOGS")
        server.execute("CREATE DATABASE f")
        server.execute("FLUSH BINARY LOGS")
        last = server.execute("SHOW BINARY LOGS")[-1][0]
        deadline = time.monotonic() + 10
        while len(server.execute("SHOW BINARY LOGS")) > 1 and time.monotonic() < deadline:
            server.execute(f"PURGE BINARY LOGS TO '{last}'")
            time.sleep(0.1)
        by_set = MySqlPosition(start.server_uuid, None, start.gtids)
        with pytest.raises(LogPurgedError), reading(server, by_set) as reader:
            list(reader.read_to(mariadb_position(server).binlog))
        by_file = MySqlPosition(start.server_uuid, start.binlog)
        with pytest.raises(LogPurgedError, match="purged"), reading(server, by_file):
            pass


def test_a_mariadb_that_lacks_our_transactions_is_refused(mariadb_server: SqlServer) -> None:
    ahead = MySqlPosition("server_id-9@elsewhere", None, MariaDbGtidPosition.parse("0-1-99999999"))
    with pytest.raises(SourceIdentityError, match="0-1-99999999"), reading(mariadb_server, ahead):
        pass


def test_a_new_reader_with_the_same_server_id_ends_the_older_one_by_name(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    with (
        reading(mysql_server, start, table) as older,
        reading(mysql_server, start, table) as newer,
    ):
        list(newer.read_to(start.binlog))
        with pytest.raises(RetryableError, match=r"server_id|same server"):
            for _ in older.read_to(None, max_wait_s=0.2):
                pass


def test_a_reader_is_listed_among_the_replicas(mysql_server: SqlServer, table: TableId) -> None:
    start = position_of(mysql_server)
    with reading(mysql_server, start, table) as reader:
        next(reader.read_to(None, max_wait_s=0.1))
        assert SERVER_ID in {row[0] for row in mysql_server.execute("SHOW REPLICAS")}


def test_a_cut_connection_is_an_error_and_never_the_end(
    mysql_server: SqlServer, table: TableId
) -> None:
    start = position_of(mysql_server)
    with (
        CuttingProxy(mysql_server.port) as proxy,
        reading(mysql_server, start, table, endpoint=through(proxy, mysql_server)) as reader,
    ):
        next(reader.read_to(None, max_wait_s=0.1))
        proxy.cut()
        insert(mysql_server, table, 1)
        with pytest.raises(SourceUnreachableError):
            list(reader.read_to(position_of(mysql_server).binlog))


def test_a_server_gone_silent_is_an_error(mysql_server: SqlServer, table: TableId) -> None:
    start = position_of(mysql_server)
    with (
        CuttingProxy(mysql_server.port) as proxy,
        reading(
            mysql_server,
            start,
            table,
            endpoint=through(proxy, mysql_server),
            heartbeat_s=0.2,
            silence_s=1.0,
        ) as reader,
    ):
        next(reader.read_to(None, max_wait_s=0.1))
        proxy.fault = Fault(hang=True)
        began = time.monotonic()
        with pytest.raises(SourceUnreachableError, match="silent"):
            for _ in reader.read_to(None, max_wait_s=0.1):
                pass
        assert time.monotonic() - began < 5


def test_a_purged_log_is_named_with_the_gap() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        start = position_of(server)
        server.execute("CREATE DATABASE e")
        missing = GtidSet.parse(server.execute("SELECT @@global.gtid_executed")[0][0])
        assert isinstance(start.gtids, GtidSet)
        lost = missing.subtract(start.gtids)
        server.execute("FLUSH BINARY LOGS")
        server.execute("FLUSH BINARY LOGS")
        last = server.execute("SHOW BINARY LOGS")[-1][0]
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        with pytest.raises(LogPurgedError, match=str(lost)), reading(server, start):
            pass
        by_file = MySqlPosition(start.server_uuid, start.binlog)
        with pytest.raises(LogPurgedError, match="purged"), reading(server, by_file):
            pass


def test_a_reset_log_is_another_history_even_under_the_same_file_name() -> None:
    with MySqlServer() as server:
        for name in "defgh":
            server.execute(f"CREATE DATABASE {name}")
        start = position_of(server)
        server.execute("RESET BINARY LOGS AND GTIDS")
        server.execute("CREATE DATABASE i")
        server.execute(f"CREATE TABLE i.t (id INT COMMENT '{'x' * 1000}')")
        with (
            pytest.raises(SourceIdentityError, match="does not have"),
            reading(server, start),
        ):
            pass


def test_a_position_without_gtids_of_another_server_is_refused(mysql_server: SqlServer) -> None:
    start = position_of(mysql_server)
    foreign = MySqlPosition("11111111-1111-1111-1111-111111111111", start.binlog)
    with pytest.raises(SourceIdentityError, match="another server"), reading(mysql_server, foreign):
        pass


def test_tagged_gtids_in_the_start_are_understood_by_the_server() -> None:
    with MySqlServer() as server:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET gtid_next = 'AUTOMATIC:orders'")
            cursor.execute("CREATE DATABASE d")
            cursor.execute("SET gtid_next = 'AUTOMATIC:a_long_tag_of_some_characters'")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        start = position_of(server)
        assert "orders" in str(start.gtids)
        server.execute("INSERT INTO d.t VALUES (7)")
        end = position_of(server)
        by_set = MySqlPosition(start.server_uuid, None, start.gtids)
        with reading(server, by_set, TableId("d", "t")) as reader:
            assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 7)]
            assert reader.position == end


def test_a_log_without_checksums_is_read(fresh_database: Callable[[SqlServer], str]) -> None:
    with MySqlServer({"binlog_checksum": "NONE"}) as server:
        name = fresh_database(server)
        server.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v VARCHAR(20))")
        start = position_of(server)
        insert(server, TableId(name, "t"), 1)
        end = position_of(server)
        with reading(server, start, TableId(name, "t")) as reader:
            assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 1)]


def test_the_log_is_read_over_tls() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")
        start = position_of(server)
        server.execute("INSERT INTO d.t VALUES (1, REPEAT('x', 3000000)), (2, 'y')")
        for key in range(3, 60):
            server.execute(f"INSERT INTO d.t VALUES ({key}, 'z')")
        end = position_of(server)
        endpoint = replace(
            Endpoint.parse(server.dsn()),
            ssl_ca=str(server.datadir / "ca.pem"),
            ssl_verify_identity=False,
        )
        with reading(server, start, TableId("d", "t"), endpoint=endpoint) as reader:
            began = time.monotonic()
            batches = list(reader.read_to(end.binlog))
            assert rows_of(batches) == [("INSERT", key) for key in range(1, 60)]
            assert next(reader.read_to(None, max_wait_s=0.3)).changes == 0
            server.execute("INSERT INTO d.t VALUES (60, 'late')")
            last = position_of(server).binlog
            assert rows_of(list(reader.read_to(last))) == [("INSERT", 60)]
            assert time.monotonic() - began < 10
