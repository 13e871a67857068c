"""A server that took over and has changes of its own before transactions that were read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, SourceIdentityError
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.stream.stream_control import ERROR
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.stream_task import BatchNumber, read_log
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.servers.replication import catch_up, pair_of, part
from tests.systems.mysql.law_10_lineage import make_table, whole_position

TABLE = TableId("d", "t")
LOCAL = TableId("d", "local")


@dataclass(frozen=True, slots=True)
class History:
    """What was written where, in the order of the former replica's log."""

    primary: SqlServer
    replica: SqlServer
    before: MySqlPosition
    """Read of the primary before the replica's own changes."""
    after: MySqlPosition
    """Read of the primary when the replica had those, in the same file of its log."""
    later: MySqlPosition
    """In the next file."""

    @property
    def own(self) -> str:
        """The replica's uuid."""
        return whole_position(self.replica).server_uuid

    def check(self, read: MySqlPosition, *held: AppliedThrough, captured: TableId = TABLE) -> str:
        source = MySqlSource(Endpoint.parse(self.replica.dsn()))
        return source.require_same_log(read, held, {captured})


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    with pair_of("mysql") as (primary, replica):
        make_table(primary)
        primary.execute("INSERT INTO d.t VALUES (1, 'old')")
        before = whole_position(primary)
        catch_up(replica, primary)
        replica.execute("UPDATE d.t SET v = 'errant' WHERE id = 1")
        replica.execute("CREATE TABLE d.local (id INT PRIMARY KEY)")
        replica.execute("INSERT INTO d.local VALUES (1)")
        primary.execute("DELETE FROM d.t WHERE id = 1")
        after = whole_position(primary)
        catch_up(replica, primary)
        replica.execute("FLUSH BINARY LOGS")
        primary.execute("INSERT INTO d.t VALUES (2, 'new')")
        later = whole_position(primary)
        part(replica, primary)
        replica.execute("INSERT INTO d.t VALUES (3, 'since')")
        yield History(primary, replica, before, after, later)


@pytest.mark.mysql
def test_a_change_before_what_was_read_is_refused_by_name(history: History) -> None:
    for read in (history.after, history.later):
        with pytest.raises(SourceIdentityError, match=f"others that we have: {history.own}:1;"):
            history.check(read)


@pytest.mark.mysql
def test_a_change_before_what_one_split_has_read_is_refused(history: History) -> None:
    assert history.own in history.check(history.before)
    with pytest.raises(SourceIdentityError, match=f"{history.own}:1"):
        history.check(history.before, AppliedThrough("d.t#3", history.after))


@pytest.mark.mysql
def test_a_statement_and_rows_count_for_the_table_they_change(history: History) -> None:
    with pytest.raises(SourceIdentityError, match=f"{history.own}:2-3"):
        history.check(history.later, captured=LOCAL)


@pytest.mark.mysql
def test_changes_of_tables_that_are_not_copied_are_let_pass(history: History) -> None:
    news = history.check(history.later, captured=TableId("d", "other"))
    assert f"nothing here came from: {history.own}:1-4" in news


@pytest.mark.mysql
def test_what_was_read_of_the_server_itself_has_its_order(history: History) -> None:
    assert history.check(whole_position(history.replica)) == ""


@pytest.mark.mysql
def test_a_reader_that_finds_another_server_than_the_run_began_with_asks_again(
    history: History,
) -> None:
    replica = Endpoint.parse(history.replica.dsn())
    with closing(connect(replica, purpose="test")) as connection:
        plan = TablePlan.alike(read_schema(connection, TABLE), TableId("d", "copy"), 0)
    owner = Owner(PipelineName("errant"), 1)
    sink = MySqlSink(Endpoint.parse(history.primary.dsn()), owner, (plan,))
    with closing(sink.open_ledger()) as ledger:
        ledger.take_over(1)
        ledger.start_plan("a plan")
        start = history.later
        ledger.store_stream(StreamSplit(start, None, (TableProgress(TABLE, start),)))
    task = StreamTask(
        MySqlSource(replica),
        sink,
        LogReading({TABLE: plan.schema}, 0, options={"server_ids": [7421, 7421]}),
    )
    (row,) = read_log(task, BatchNumber("errant", 1), whole_position(history.replica), keeps=False)
    told = row.to_pylist()[0]
    assert told["kind"] == ERROR
    assert f"before others that we have: {history.own}:1" in str(
        CdcError.from_json(json.loads(told["part"]))
    )


def write_in_domain(server: SqlServer, domain: int, statement: str) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION gtid_domain_id = {domain}")
        cursor.execute(statement)


@pytest.mark.mariadb
def test_on_mariadb_a_change_in_another_domain_before_what_was_read_is_refused() -> None:
    with pair_of("mariadb") as (primary, replica):
        make_table(primary)
        primary.execute("INSERT INTO d.t VALUES (1, 'old')")
        before = whole_position(primary)
        catch_up(replica, primary)
        replica.execute("FLUSH BINARY LOGS")
        write_in_domain(replica, 7, "UPDATE d.t SET v = 'errant' WHERE id = 1")
        write_in_domain(replica, 8, "CREATE TABLE d.local (id INT PRIMARY KEY)")
        primary.execute("DELETE FROM d.t WHERE id = 1")
        after = whole_position(primary)
        part(replica, primary)
        write_in_domain(replica, 9, "INSERT INTO d.t VALUES (3, 'since')")
        history = History(primary, replica, before, after, after)
        number = replica.execute("SELECT @@server_id")[0][0]
        with pytest.raises(SourceIdentityError, match=f"others that we have: 7-{number}-1;"):
            history.check(after)
        with pytest.raises(SourceIdentityError, match=f"8-{number}-1;"):
            history.check(after, captured=LOCAL)
        with pytest.raises(SourceIdentityError, match=f"7-{number}-1;"):
            history.check(before, AppliedThrough("d.t#3", after))
        assert "compare with `verify`" in history.check(before)
        assert "compare with `verify`" in history.check(after, captured=TableId("d", "other"))
