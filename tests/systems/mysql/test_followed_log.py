"""The log followed as the server pushes it: each change once, in order, with nothing asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.errors import SourceUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer
from tests.servers.proxy import CuttingProxy, Fault
from tests.systems.mysql.law_10_lineage import whole_position
from tests.systems.mysql.read_logs import insert, reading, rows_of, through

WAIT = {"batch_s": 1.0, "wait_s": 0.1}


@pytest.fixture(
    params=[
        pytest.param("mysql_server", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ]
)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> TableId:
    database = fresh_database(server)
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    return TableId(database, "t")


def until(reader: LogReader, count: int) -> Iterator[ChangeBatch]:
    """Follow until so many changes came."""
    for batch in reader.follow(**WAIT):
        if batch is None:
            continue
        yield batch
        count -= batch.changes
        if count <= 0:
            return


def test_what_is_written_meanwhile_comes_once_and_in_order(
    server: SqlServer, table: TableId
) -> None:
    start, keys = whole_position(server), range(300)

    def write() -> None:
        with closing(server.connect(table.database)) as connection, connection.cursor() as cursor:
            for key in keys:
                cursor.execute(f"INSERT INTO t VALUES ({key}, 'v')")
                if key % 100 == 50:
                    cursor.execute("FLUSH BINARY LOGS")

    with reading(server, start, table) as reader:
        writer = threading.Thread(target=write)
        writer.start()
        batches = list(until(reader, len(keys)))
        writer.join()
        assert rows_of(batches) == [("INSERT", key) for key in keys]
        assert len(batches) > 1
        assert batches[0].start == start
        assert all(first.end == second.start for first, second in pairwise(batches))
        assert batches[-1].end == reader.position
        insert(server, table, 1000)
        assert rows_of(list(until(reader, 1))) == [("INSERT", 1000)]


def test_a_definition_that_changes_ends_its_batch(server: SqlServer, table: TableId) -> None:
    start = whole_position(server)
    insert(server, table, 1)
    server.execute(f"ALTER TABLE {table.database}.t ADD COLUMN w INT")
    server.execute(f"INSERT INTO {table.database}.t (id) VALUES (2)")
    with reading(server, start, table) as reader:
        batches = [batch for batch in until(reader, 2) if batch.changes or batch.barrier]
        ended = [batch.barrier is not None for batch in batches]
        assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2)]
        assert ended.index(True) < len(ended) - 1


def test_log_that_holds_nothing_of_ours_moves_the_position_all_the_same(
    server: SqlServer, table: TableId
) -> None:
    start = whole_position(server)
    server.execute(f"CREATE TABLE {table.database}.other (id INT PRIMARY KEY)")
    server.execute(f"INSERT INTO {table.database}.other VALUES (1)")
    end = whole_position(server)
    with reading(server, start, table) as reader:
        for batch in reader.follow(**WAIT):
            assert batch is None or not batch.changes
            if reader.position.reaches(end):
                break


def test_a_cut_or_silent_connection_is_an_error_and_never_the_end(
    server: SqlServer, table: TableId
) -> None:
    start = whole_position(server)
    for fault in (None, Fault(hang=True)):
        with (
            CuttingProxy(server.port) as proxy,
            reading(
                server,
                start,
                table,
                endpoint=through(proxy, server),
                heartbeat_s=0.2,
                silence_s=1.0,
            ) as reader,
        ):
            followed = reader.follow(**WAIT)
            assert next(followed) is None
            if fault is None:
                proxy.cut()
            else:
                proxy.fault = fault
            with pytest.raises(SourceUnreachableError):
                assert [batch for batch in followed if batch is not None] == []
