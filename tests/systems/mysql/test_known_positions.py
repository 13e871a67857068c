"""The log says, between its own changes, how far the edge back had come when they were made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.codec import apart_to_json, dumps, position_to_json
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.known_log import KnownLog, TableApart, TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.read_logs import position_of
from tests.systems.mysql.splits import schema_of

T = TableId("d", "t")
EDGE = Topology("shops", "a", "b", TableId("d", "marker"), winner="a")
BACK = EDGE.opposite()


def place(number: int) -> LogPosition:
    """Return a place in the other node's log."""
    return MySqlPosition("other", BinlogPosition.of("binlog.000001", number))


def known(number: int, **apart: int) -> KnownLog:
    """Return what is known where an edge is at a place, and some of its tables at others."""
    tables = (TableApart(TableId("d", name), place(at)) for name, at in apart.items())
    return KnownLog(place(number), TablesApart(tuple(tables)))


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    kind: type[ThrowawayServer] = request.param
    with kind() as started:
        started.execute("CREATE DATABASE d")
        started.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(500))")
        started.execute(
            "CREATE TABLE d.marker (data_origin_node VARCHAR(255), src_node VARCHAR(255), "
            "dst_node VARCHAR(255), n BIGINT, PRIMARY KEY (data_origin_node, src_node, dst_node))"
        )
        sink = open_sink(
            "mysql",
            Endpoint.parse(started.dsn()),
            Owner(PipelineName("back"), 1),
            [],
            SinkSettings(edge=BACK),
        )
        sink.open_ledger().close()  # creates its tables
        for name, edge in (("back", BACK.name_in_ledger), ("other", "shops:c:a")):
            started.execute(
                "INSERT INTO airflow_cdc.stream (pipeline, slot, position, split, edge) "
                f"VALUES ('{name}', 0, 'none', 'none', '{edge}')"
            )
        yield started


def bring(server: SqlServer, number: int, pipeline: str = "back", **apart: int) -> None:
    """Bring a row of the other node's, as the edge back does."""
    position = dumps(position_to_json(place(number)))
    form = dumps(apart_to_json(known(number, **apart).apart)) if apart else None
    with closing(server.connect("d", autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "INSERT INTO marker VALUES ('b', 'b', 'a', 1) ON DUPLICATE KEY UPDATE n = n + 1"
        )
        cursor.execute(f"REPLACE INTO t VALUES ({-number}, 'theirs')")
        cursor.execute(
            "UPDATE airflow_cdc.stream SET position = %s, apart = %s WHERE pipeline = %s",
            (position, form, pipeline),
        )
        connection.commit()


def read(server: SqlServer, start: MySqlPosition) -> list[ChangeBatch]:
    """Read the log up to its end, as the stream of the edge does."""
    source = MySqlSource(Endpoint.parse(server.dsn()))
    reading = LogReading(
        {T: schema_of(server, T)},
        0,
        origins=EDGE.origins(),
        opposite=BACK.name_in_ledger,
        options={"server_ids": [7151, 7151]},
    )
    stream = StreamSplit(start, None, ()).with_tables({T: start}, ()).read([T])
    with closing(source.log_reader(stream, reading)) as reader:
        return [*reader.read_up_to(position_of(server), batch_s=30.0)]


def keys(batch: ChangeBatch) -> list[int]:
    return [row["id"] for changes in batch.tables for row in changes.after.to_pylist()]


def test_each_batch_knows_how_far_the_edge_back_had_come_by_then(server: SqlServer) -> None:
    start = position_of(server)
    server.execute("REPLACE INTO d.t VALUES (1, 'x')")
    bring(server, 1000)
    server.execute("REPLACE INTO d.t VALUES (2, 'x'), (3, 'x')")
    server.execute("REPLACE INTO d.t VALUES (4, 'x')")
    bring(server, 2000, "other")
    server.execute("REPLACE INTO d.t VALUES (5, 'x')")
    bring(server, 3000)
    bring(server, 4000)
    server.execute("REPLACE INTO d.t VALUES (6, 'x')")
    bring(server, 5000)
    found = [(keys(batch), batch.knew) for batch in read(server, start)]
    assert found == [
        ([1], None),
        ([2, 3, 4, 5], known(1000)),
        ([6], known(4000)),
        ([], known(5000)),
    ]


@pytest.mark.parametrize("rows", [1, 3000], ids=["few", "many"])
def test_a_table_that_is_left_alone_is_known_as_far_as_it_is(server: SqlServer, rows: int) -> None:
    start = position_of(server)
    bring(server, 1000, t=700, u=800)
    numbers = ", ".join(f"({10_000 + number}, 'with {rows}')" for number in range(rows))
    server.execute(f"REPLACE INTO d.t VALUES {numbers}")
    bring(server, 2000, u=800)
    server.execute(f"REPLACE INTO d.t VALUES ({20_000 + rows}, 'y')")
    found = [(len(keys(batch)), batch.knew) for batch in read(server, start) if batch.changes]
    assert found == [(rows, known(1000, t=700, u=800)), (1, known(2000, u=800))]
    assert [each.of(T) for _, each in found if each] == [place(700), place(2000)]


def test_changes_around_a_row_that_says_nothing_new_stay_in_one_batch(server: SqlServer) -> None:
    start = position_of(server)
    bring(server, 1000)
    server.execute("REPLACE INTO d.t VALUES (30001, 'before')")
    bring(server, 1000, t=1000)  # as where a table stops
    server.execute("REPLACE INTO d.t VALUES (30002, 'behind')")
    bring(server, 1000, t=900)
    server.execute("REPLACE INTO d.t VALUES (30003, 'apart')")
    found = [keys(batch) for batch in read(server, start) if batch.changes]
    assert found == [[30001, 30002], [30003]]


def test_many_transactions_of_both_nodes_are_told_apart_as_well(server: SqlServer) -> None:
    start = position_of(server)
    for number in range(40):
        server.execute(f"REPLACE INTO d.t VALUES ({number}, REPEAT('x', 400))")
        bring(server, 10_000 + number)
    found = [(keys(batch), batch.knew) for batch in read(server, start)]
    assert found == [
        ([0], None),
        *(([number], known(10_000 + number - 1)) for number in range(1, 40)),
        ([], known(10_039)),
    ]
