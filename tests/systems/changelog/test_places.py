"""Where in the source's log each row stands, in a change log of a real server's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint, Folder, parse_sink
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.changelog.changelog_sink import ChangelogSink
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer
from tests.systems.changelog.world import Event, events_in
from tests.systems.mysql.binlog.captured import session
from tests.systems.mysql.read_logs import position_of, reading

PLACE = ("file", "pos", "row", "server_id", "thread", "query")


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def log(server: SqlServer, fresh_database: Any) -> Log:
    return Log(server, fresh_database(server))


class Log:
    """A stretch of a server's log, and the change logs that are made of it."""

    def __init__(self, server: SqlServer, database: str) -> None:
        self._server = server
        self.table = TableId(database, "t")
        server.execute(f"CREATE TABLE {self.table} (id INT PRIMARY KEY, v VARCHAR(20))")
        self.start = position_of(server)
        is_mariadb = isinstance(server, MariaDbServer)
        noted = "binlog_annotate_row_events" if is_mariadb else "binlog_rows_query_log_events"
        with session(server, database) as run:
            run(f"SET {noted} = 1")
            run("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
            run("XA START 'p'", "INSERT INTO t VALUES (7, 'x'), (8, 'y')")
            run("XA END 'p'", "XA PREPARE 'p'")
            if is_mariadb:  # elsewhere it would be this session's until it ends
                run("XA COMMIT 'p'")
        server.execute("FLUSH BINARY LOGS")
        with session(server, database) as run:
            run(f"SET {noted} = 1", "BEGIN")
            run("UPDATE t SET v = 'z' WHERE id < 3", "UPDATE t SET id = 30 WHERE id = 3")
            run("COMMIT")
            if not is_mariadb:
                run("XA COMMIT 'p'")
            run("DELETE FROM t WHERE id = 30")
        self.end = position_of(server)

    def events(self, root: Path, *, one_by_one: bool = False, **folder: Any) -> list[Event]:
        """Write the log; `one_by_one` by a reader and a sink of their own for each batch."""
        sink = self._sink(Folder(str(root), **folder))
        ledger = sink.open_ledger()
        ledger.take_over(1)
        ledger.store_stream(StreamSplit(self.start, None, (TableProgress(self.table, self.start),)))
        limits = BatchLimits(changes=1) if one_by_one else BatchLimits()
        columns = arrow_schemas(plan.schema for plan in sink.plans)
        options = {"facts": sink.abilities.facts, "limits": limits}
        is_over = False
        while not is_over:
            stream = ledger.stream()
            assert stream is not None
            at = own(stream.start)
            with (
                closing(sink.open_changes(columns)) as changes,
                reading(self._server, at, self.table, **options) as reader,
            ):
                is_over = True
                for batch in reader.read_to(self.end.binlog):
                    changes.apply(batch)
                    if one_by_one and batch.changes and batch.end is not None:
                        is_over = False
                        break
        return events_in(root, str(self.table))

    def _sink(self, folder: Folder) -> ChangelogSink:
        endpoint = Endpoint.parse(self._server.dsn())
        with closing(connect(endpoint, purpose="test")) as connection:
            schemas = read_schemas(connection, [self.table])
        plans = tuple(TablePlan.alike(schema, schema.table, 0) for schema in schemas.values())
        return ChangelogSink(folder, Owner(PipelineName("t"), 1), plans)


def _places(events: list[Event]) -> Iterator[tuple[Any, ...]]:
    for event in events:
        yield (event["op"], event["key"]["id"], *(event["source"][name] for name in PLACE))


def test_each_form_has_the_place_of_each_row(log: Log, tmp_path: Path) -> None:
    in_json, in_parquet = (
        list(_places(log.events(tmp_path / form, form=form, with_queries=True))) for form in Format
    )
    assert in_json == in_parquet
    rows = [(op, key, row, query) for op, key, _, _, row, _, _, query in in_json]
    insert = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    assert [each for each in rows if each[1] not in (7, 8)] == [
        ("c", 1, 0, insert),
        ("c", 2, 1, insert),
        ("c", 3, 2, insert),
        ("u", 1, 0, "UPDATE t SET v = 'z' WHERE id < 3"),
        ("u", 2, 1, "UPDATE t SET v = 'z' WHERE id < 3"),
        ("d", 3, 0, "UPDATE t SET id = 30 WHERE id = 3"),
        ("c", 30, 0, "UPDATE t SET id = 30 WHERE id = 3"),
        ("d", 30, 0, "DELETE FROM t WHERE id = 30"),
    ]
    assert [each for each in rows if each[1] in (7, 8)] == [
        ("c", 7, 0, "INSERT INTO t VALUES (7, 'x'), (8, 'y')"),
        ("c", 8, 1, "INSERT INTO t VALUES (7, 'x'), (8, 'y')"),
    ]
    files = {key: file for _, key, file, *_ in in_json}
    first, last = (str(place.binlog).partition(":")[0] for place in (log.start, log.end))
    assert first != last
    assert files[7] == files[8] == first, "rows of XA are logged before it is committed"
    assert files[30] == last


def test_statements_are_told_only_where_they_are_asked_for(log: Log, tmp_path: Path) -> None:
    events = log.events(tmp_path / "log", form="json")
    assert {event["source"]["query"] for event in events} == {None}
    assert None not in {event["source"][name] for event in events for name in PLACE[:4]}


def test_a_log_read_again_batch_by_batch_gives_the_same_rows(log: Log, tmp_path: Path) -> None:
    whole = log.events(tmp_path / "whole", form="json", with_queries=True)
    again = log.events(tmp_path / "again", form="json", with_queries=True, one_by_one=True)
    for event in (*whole, *again):
        for name in ("ts_ms", "ts_us", "ts_ns"):  # when each was written
            del event[name]
    assert again == whole


@pytest.mark.parametrize("with_queries", [False, True])
def test_a_folders_address_says_whether_statements_are_wanted(with_queries: bool) -> None:
    folder = Folder("/data/log", "json", with_queries)
    assert parse_sink(folder.address) == folder
    assert folder.identity == Folder("/data/log", "json").address
