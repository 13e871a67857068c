"""The log goes on being read where its settings change under the reader, or a place has no name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pymysql
import pytest

from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.source import log_start
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.binlog.captured import captured_log
from tests.systems.mysql.read_logs import insert, position_of, reading, rows_of


@pytest.fixture
def server(family: str, request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(f"{family}_server")
    return found


@pytest.fixture
def table(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> TableId:
    database = fresh_database(server)
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    return TableId(database, "t")


@contextmanager
def checksum(server: SqlServer, kind: str) -> Iterator[None]:
    """Switch the checksum of the log to come; the log goes on in a new file."""
    before = server.execute("SELECT @@global.binlog_checksum")[0][0]
    server.execute(f"SET GLOBAL binlog_checksum = {kind}")
    yield
    server.execute(f"SET GLOBAL binlog_checksum = {before}")


@FAMILIES
def test_a_log_whose_checksums_are_switched_off_and_on_is_read_through(
    server: SqlServer, table: TableId
) -> None:
    start = position_of(server)
    with reading(server, start, table) as reader:
        insert(server, table, 1)
        with checksum(server, "NONE"):
            insert(server, table, 2)
        insert(server, table, 3)
        end = position_of(server)
        assert end.binlog is not None
        wanted = [("INSERT", key) for key in (1, 2, 3)]
        assert rows_of(list(reader.read_to(end.binlog))) == wanted
    with reading(server, start, table) as again:
        assert rows_of(list(again.read_to(end.binlog))) == wanted


@pytest.mark.mysql
def test_a_file_that_begins_with_tagged_gtids_is_read() -> None:
    with MySqlServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        start, table = position_of(server), TableId("d", "t")
        for key, tag in enumerate((":blue", "", ":green")):
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                cursor.execute(f"SET gtid_next = 'AUTOMATIC{tag}'")
                cursor.execute(f"INSERT INTO d.t VALUES ({key}, 'v')")
            server.execute("FLUSH BINARY LOGS")
        end = position_of(server)
        assert end.binlog is not None
        with reading(server, start, table) as reader:
            wanted = [("INSERT", key) for key in (0, 1, 2)]
            assert rows_of(list(reader.read_to(end.binlog))) == wanted
            assert reader.position == end


def test_behind_the_offsets_that_a_dump_can_name_gtids_are_gone_on_from(
    mysql_server: SqlServer, mysql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableId(mysql_database, "t")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    monkeypatch.setattr(log_start, "LARGEST_OFFSET", 4)
    start = position_of(mysql_server)
    insert(mysql_server, table, 1)
    end = position_of(mysql_server)
    assert end.binlog is not None
    with reading(mysql_server, start, table) as reader:
        assert rows_of(list(reader.read_to(end.binlog))) == [("INSERT", 1)]


@pytest.mark.mysql
def test_behind_the_offsets_that_a_dump_can_name_a_place_without_gtids_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_start, "LARGEST_OFFSET", 4)
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        start = position_of(server)
        with pytest.raises(SourceIdentityError, match="beyond the 4 GiB"), reading(server, start):
            pass


@FAMILIES
def test_what_a_statement_that_failed_has_dropped_all_the_same_is_a_barrier(
    server: SqlServer, table: TableId, family: str
) -> None:
    """MariaDB drops the tables that are there, MySQL all or none."""
    with captured_log(server) as log:
        with pytest.raises(pymysql.err.OperationalError, match="1051"):
            server.execute("DROP TABLE missing, t", database=table.database)
        batches = log().batches()
    effects = [batch.barrier.effect for batch in batches if batch.barrier]
    assert [effect.concerns(table) for effect in effects] == [True] * (family == "mariadb")
