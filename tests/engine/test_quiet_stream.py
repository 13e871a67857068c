"""A stream's micro-batches into the very server they read from, without a Spark.

What Spark does is done by hand here: one micro-batch after the other, and workers that are lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.codec import idle_range_from_json
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, PositionWentBackError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.engine.stream.idle_commits import IdleCommits
from airflow_cdc_provider.engine.stream.stream_control import ERROR
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark import stream_task
from airflow_cdc_provider.spark.stream_task import BatchNumber, apply_changes, read_log
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.law_10_lineage import whole_position

Fresh = Callable[[SqlServer], str]


@dataclass
class Loop:
    """A stream of one table into the server it is on, as the driver and its workers run it."""

    server: SqlServer
    database: str
    task: StreamTask
    turn: BatchNumber = field(default_factory=lambda: BatchNumber(secrets.token_hex(4), 0))
    quiet: IdleRange | None = None
    rows: int = 0

    def change(self) -> None:
        """Insert a row, and change all that are there."""
        self.rows += 1
        self.server.execute(f"INSERT INTO t VALUES ({self.rows}, 0)", database=self.database)
        self.server.execute("UPDATE t SET n = n + 1", database=self.database)

    def change_another(self) -> None:
        """Write to a table that nobody copies."""
        self.server.execute("INSERT INTO others VALUES (NULL)", database=self.database)

    def log_end(self) -> LogPosition:
        with closing(self.task.source.log_end(purpose="test")) as log_end:
            return log_end.now()

    def run(self) -> None:
        """Run one micro-batch to the end of the log."""
        self.turn = BatchNumber(self.turn.run, self.turn.number + 1)
        rows = read_log(self.task, self.turn, self.log_end(), keeps=True)
        (batch,) = apply_changes(self.task, self.turn, self.quiet, rows, keeps=True)
        (told,) = batch.to_pylist()
        body = json.loads(told["body"])
        if told["kind"] == ERROR:
            raise CdcError.from_json(body)
        self.quiet = idle_range_from_json(body["quiet"])

    def run_until_idle(self) -> None:
        """Run until what was committed last is read, too."""
        for _ in range(3):
            self.run()

    def pass_over(self) -> None:
        """Commit what was passed over, as the heartbeat does."""
        passed_over = IdleCommits()
        passed_over.log = self.quiet
        with closing(self.task.sink.open_ledger()) as ledger:
            passed_over.commit(ledger)
        self.quiet = passed_over.log

    @property
    def position(self) -> LogPosition:
        with closing(self.task.sink.open_ledger()) as ledger:
            stream = ledger.stream()
        assert stream is not None
        return stream.start

    def assert_equal(self) -> None:
        """Every row is there, changed as often as at the source."""
        held = "SELECT * FROM {} ORDER BY id"
        theirs = self.server.execute(held.format("copy"), database=self.database)
        assert theirs == self.server.execute(held.format("t"), database=self.database)
        assert len(theirs) == self.rows


def loop_on(server: SqlServer, database: str, mode: ApplyMode) -> Loop:
    for statement in (
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE copy (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE others (id INT PRIMARY KEY AUTO_INCREMENT)",
    ):
        server.execute(statement, database=database)
    endpoint = Endpoint.parse(server.dsn())
    table = TableId(database, "t")
    with closing(connect(endpoint, purpose="test")) as connection:
        plan = TablePlan.alike(read_schema(connection, table), TableId(database, "copy"), 0)
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    sink = MySqlSink(endpoint, owner, (plan,), SinkSettings(apply=mode, writers=2))
    start = whole_position(server)
    with closing(sink.open_ledger()) as ledger:
        ledger.take_over(1)
        ledger.start_plan("a plan")
        ledger.store_stream(StreamSplit(start, None, (TableProgress(table, start),)))
    reading = LogReading({plan.schema.table: plan.schema}, 0, options={"server_ids": [7411, 7411]})
    return Loop(server, database, StreamTask(MySqlSource(endpoint), sink, reading))


def lose_reader() -> None:
    stream_task._log_reader.take(BatchNumber("", -1))


def lose_writer() -> None:
    stream_task._change_sink.take(BatchNumber("", -1))


def lose_both() -> None:
    lose_reader()
    lose_writer()


@pytest.fixture(scope="module")
def mysql_without_gtids() -> Iterator[SqlServer]:
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        yield server


@pytest.fixture(
    params=[
        pytest.param((server, mode), id=f"{server}-{mode}", marks=getattr(pytest.mark, family))
        for server, family in (
            ("mysql_sink", "mysql"),
            ("mysql_without_gtids", "mysql"),
            ("mariadb_server", "mariadb"),
        )
        for mode in ApplyMode
    ]
)
def loop(request: pytest.FixtureRequest, fresh_database: Fresh) -> Iterator[Loop]:
    name, mode = request.param
    server: SqlServer = request.getfixturevalue(name)
    yield loop_on(server, fresh_database(server), mode)
    lose_both()


def test_what_the_stream_commits_is_read_and_not_committed_again(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    position, end = loop.position, loop.log_end()
    loop.run_until_idle()
    assert (loop.position, loop.log_end()) == (position, end)
    loop.assert_equal()
    loop.pass_over()  # the rows that were written to the copy are no ledger's
    loop.run_until_idle()
    position = loop.position
    assert loop.quiet is not None
    assert loop.quiet.only_ledgers
    assert loop.quiet.moves(position)


def test_what_others_write_is_passed_over_and_told_apart(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    position = loop.position
    loop.change_another()
    loop.run_until_idle()
    assert loop.position == position
    assert loop.quiet is not None
    assert not loop.quiet.only_ledgers
    end = loop.quiet.end
    loop.pass_over()
    assert loop.position == end
    loop.run_until_idle()
    assert loop.quiet is not None
    assert loop.quiet.only_ledgers, "the commit just made is all there is"


def test_a_statement_about_nothing_that_is_copied_is_passed_over(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    position = loop.position
    loop.server.execute("CREATE TABLE more (id INT PRIMARY KEY)", database=loop.database)
    loop.run_until_idle()
    assert loop.position == position
    assert loop.quiet is not None
    assert not loop.quiet.only_ledgers


@pytest.mark.parametrize("lose", [lose_reader, lose_writer, lose_both])
def test_a_worker_lost_behind_a_skipped_commit_costs_nothing(
    loop: Loop, lose: Callable[[], None]
) -> None:
    loop.change()
    loop.run_until_idle()
    for _ in range(2):
        loop.change_another()
        loop.run()
        lose()
        loop.change()
        loop.run()
        loop.assert_equal()
    loop.change_another()
    loop.run()
    lose()
    loop.run_until_idle()
    loop.pass_over()
    loop.change()
    loop.run()
    loop.assert_equal()


def test_a_driver_lost_behind_a_skipped_commit_reads_it_again(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    loop.change_another()
    loop.run_until_idle()
    loop.quiet = None
    loop.turn = BatchNumber(secrets.token_hex(4), 0)
    loop.change()
    loop.run()
    loop.assert_equal()


def test_without_the_memory_of_what_was_passed_over_the_next_batch_is_refused(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    before = loop.server.execute("SELECT * FROM copy", database=loop.database)
    loop.change_another()
    loop.run_until_idle()
    loop.quiet = None
    loop.change()
    with pytest.raises(PositionWentBackError, match="would be lost"):
        loop.run()
    assert loop.server.execute("SELECT * FROM copy", database=loop.database) == before


def test_a_log_that_goes_on_in_another_file_is_followed_even_if_idle(loop: Loop) -> None:
    loop.change()
    loop.run_until_idle()
    loop.server.execute("FLUSH BINARY LOGS")
    loop.run_until_idle()
    assert loop.quiet is not None
    assert loop.quiet.leaves_file(loop.position)
    loop.pass_over()
    loop.change()
    loop.run()
    lose_both()  # whoever reads on compares what stood before the position
    loop.change()
    loop.run()
    loop.assert_equal()
