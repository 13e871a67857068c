"""A reader of the log leaves marked transactions out, wherever it begins; a backfill takes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition, own
from tests.servers.given import SqlServer
from tests.servers.prepared import finish_prepared
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.read_logs import position_of, reading, rows_of
from tests.systems.mysql.splits import Hooks, reader_of, schema_of, split_of, tuples

T = TableId("d", "t")
EDGE = EdgeOrigins(TableId("d", "marker"), "a", "b")
ECHO = (
    "INSERT INTO marker VALUES ('b', 'b', 'a', 1), ('c', 'b', 'a', 1) "
    "ON DUPLICATE KEY UPDATE n = n + 1"
)


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """A server of the module's own: what is prepared hinders others."""
    kind: type[ThrowawayServer] = request.param
    with kind() as started:
        started.execute("CREATE DATABASE d")
        yield started


@pytest.fixture(autouse=True)
def tables(server: SqlServer) -> Iterator[None]:
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(500))")
    server.execute(
        "CREATE TABLE d.marker (data_origin_node VARCHAR(255), src_node VARCHAR(255), "
        "dst_node VARCHAR(255), n BIGINT, PRIMARY KEY (data_origin_node, src_node, dst_node))"
    )
    yield
    for row in server.execute("XA RECOVER"):
        finish_prepared(server, "ROLLBACK", f"'{row[3]}'")
    server.execute("DROP TABLE d.t, d.marker")


def commit(server: SqlServer, *statements: str) -> None:
    with closing(server.connect("d", autocommit=False)) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def prepare(server: SqlServer, name: str, *statements: str) -> None:
    with closing(server.connect("d")) as session, session.cursor() as cursor:
        for statement in (
            f"XA START '{name}'",
            *statements,
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        ):
            cursor.execute(statement)


def insert(key: int, text: str = "x") -> str:
    return f"INSERT INTO d.t VALUES ({key}, '{text}')"


def read(
    server: SqlServer, start: MySqlPosition, limits: BatchLimits | None = None
) -> list[ChangeBatch]:
    end = position_of(server).binlog
    with reading(server, start, T, origins=EDGE, limits=limits or BatchLimits()) as reader:
        return list(reader.read_to(end))


def keys_of(batches: list[ChangeBatch]) -> list[object]:
    return [key for _, key in rows_of(batches)]


def test_a_reader_that_begins_anywhere_leaves_out_the_same(server: SqlServer) -> None:
    start = position_of(server)
    for key in range(12):
        first = (ECHO,) if key % 3 == 0 else ()
        commit(server, *first, insert(key), f"UPDATE t SET v = 'y' WHERE id = {key}")
    wanted = [key for key in range(12) if key % 3]
    batches = read(server, start, BatchLimits(changes=1))
    assert len(batches) >= len(wanted)
    for number, batch in enumerate(batches):
        assert batch.end is not None
        before, rest = batches[: number + 1], read(server, own(batch.end))
        assert keys_of(before) + keys_of(rest) == keys_of(batches)
    inserted = [key for op, key in rows_of(batches) if op == "INSERT"]
    assert inserted == wanted


def test_a_left_out_transaction_moves_the_position_and_is_not_only_a_ledgers(
    server: SqlServer,
) -> None:
    start = position_of(server)
    commit(server, ECHO, insert(1))
    batches = read(server, start)
    assert not any(batch.changes for batch in batches)
    assert own_end(batches) == position_of(server).binlog
    assert not all(batch.only_ledgers for batch in batches)


def own_end(batches: list[ChangeBatch]) -> object:
    end = batches[-1].end
    assert end is not None
    return own(end).binlog


def test_a_marked_transaction_of_xa_prepared_before_the_start_is_left_out_at_its_commit(
    server: SqlServer,
) -> None:
    prepare(server, "echo", ECHO, insert(1))
    prepare(server, "here", insert(2))
    start = position_of(server)
    for name in ("'echo'", "'here'"):
        finish_prepared(server, "COMMIT", name)
    commit(server, insert(3))
    assert keys_of(read(server, start)) == [2, 3]


def test_the_streams_reader_is_given_the_rule_by_its_reading(server: SqlServer) -> None:
    start = position_of(server)
    commit(server, ECHO, insert(1))
    commit(server, insert(2))
    source = MySqlSource(Endpoint.parse(server.dsn()))
    options = {"server_ids": [7111, 7112]}
    found = {}
    for name, origins in (("with", EDGE), ("without", None)):
        settings = LogReading({T: schema_of(server, T)}, 0, options=options, origins=origins)
        with (
            closing(source.log_reader(StreamSplit(start, None, ()), settings)) as reader,
            closing(source.log_end(purpose="test")) as log_end,
        ):
            end: LogPosition = log_end.now()
            found[name] = keys_of(list(reader.read_up_to(end, batch_s=1.0)))
    assert found == {"with": [2], "without": [1, 2]}


def test_a_backfill_takes_marked_transactions_for_the_rows_it_read_hold_others(
    server: SqlServer,
) -> None:
    if isinstance(server, MariaDbServer):
        pytest.skip("its splits are read in one snapshot, and nothing is replayed onto them")
    commit(server, insert(1))
    schema = schema_of(server, T)
    hooks = Hooks(after_low=lambda: commit(server, ECHO, insert(2, "echo")))
    with reader_of(server, schema, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema))
    assert tuples(rows) == [(1, "x"), (2, "echo")]
