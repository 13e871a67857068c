"""Looking at a log on real servers: what stands around a place, and which places are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    LogPurgedError,
    RefusedError,
    SourceIdentityError,
)
from airflow_cdc_provider.core.logged_events import LoggedEvent, LogView
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.source.log_view import look_at_log
from tests.servers.accounts import least_privileged, source_account
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import position_of

BOTH = ("mysql", "mariadb")
SECRET = "s3cr3t-text"
ROWS = {"WRITE_ROWS", "WRITE_ROWS_V1"}


class World:
    """A table on a server, and an account with the documented rights that looks at its log."""

    def __init__(self, server: SqlServer, database: str, dsn: str) -> None:
        self.server, self.database, self.endpoint = server, database, Endpoint.parse(dsn)
        self.at_source("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")

    @property
    def table(self) -> str:
        return f"{self.database}.t"

    def at_source(self, *statements: str) -> None:
        with closing(self.server.connect(self.database)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)

    def end(self) -> BinlogPosition:
        place = position_of(self.server).binlog
        assert place is not None
        return place

    def look(self, at: object = "", **options: Any) -> LogView:
        options = {"count": 20, "values": False} | options
        return look_at_log(self.endpoint, str(at), options.pop("position", None), **options)


@pytest.fixture(params=BOTH)
def world(
    request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Iterator[World]:
    server: SqlServer = request.getfixturevalue(f"{request.param}_server")
    database = fresh_database(server)
    with least_privileged(source_account(server, database)) as (account,):
        yield World(server, database, account.dsn)


def rows_in(view: LogView, table: str) -> list[LoggedEvent]:
    return [event for event in view.events if event.rows is not None and event.tables == (table,)]


def test_the_events_around_a_place_are_told_with_tables_rows_and_kinds(world: World) -> None:
    world.at_source(f"INSERT INTO t VALUES (1, '{SECRET}')")
    place = world.end()
    world.at_source(
        f"INSERT INTO t VALUES (2, '{SECRET}'), (3, 'b')", "ALTER TABLE t ADD COLUMN w INT"
    )
    view = world.look(place, count=16)
    before, behind = (
        [event for event in view.events if (event.start < place.offset) is side]
        for side in (True, False)
    )
    assert len(view.events) == 16
    assert len(before) >= 8  # more where fewer follow
    assert view.events[len(before)].start == place.offset
    assert before[-1].kind == "XID"
    assert [event.rows for event in before if event.rows] == [1]
    assert [event.rows for event in behind if event.rows] == [2]
    (ddl,) = [event for event in behind if event.statement == "alter"]
    assert ddl.tables == (world.table,)
    assert {event.tables for event in behind if event.rows} == {(world.table,)}
    (gtid,) = {event.transaction for event in behind if event.rows}
    assert gtid
    assert gtid not in {event.transaction for event in before}
    assert all(event.end - event.start == event.bytes for event in view.events)


def test_values_are_told_only_where_they_are_asked_for(world: World) -> None:
    world.at_source(
        f"INSERT INTO t VALUES (7, '{SECRET}')", f"UPDATE t SET v = '{SECRET} too' WHERE id = 7"
    )
    view = world.look()
    assert rows_in(view, world.table)
    assert SECRET not in json.dumps(view.to_json())
    assert all("values" not in event for event in view.to_json()["events"])
    added, changed = rows_in(world.look(values=True), world.table)
    assert added.values == ({"row": {"id": 7, "v": SECRET}},)
    assert changed.values == (
        {"before": {"id": 7, "v": SECRET}, "after": {"id": 7, "v": f"{SECRET} too"}},
    )


def test_a_statement_is_told_by_its_kind_and_never_by_its_text(world: World) -> None:
    world.at_source(f"CREATE VIEW w AS SELECT '{SECRET}' AS x", "TRUNCATE TABLE t")
    view = world.look(values=True)
    assert SECRET not in json.dumps(view.to_json())
    assert [event.statement for event in view.events if event.statement][-2:] == [
        "other",
        "truncate",
    ]


@contextmanager
def compressing(world: World) -> Iterator[str]:
    """Give what a session has to say so that its rows are logged compressed."""
    if "mariadb" not in world.server.version.lower():
        yield "SET binlog_transaction_compression = ON"
        return
    world.server.execute("SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10")
    try:
        yield "DO 1"
    finally:
        world.server.execute("SET GLOBAL log_bin_compress = OFF")


def test_compressed_rows_are_told_like_others(world: World) -> None:
    with compressing(world) as wish:
        world.at_source(wish, "INSERT INTO t VALUES (1, REPEAT('x', 50)), (2, REPEAT('y', 50))")
    view = world.look()
    kinds = {event.kind for event in view.events}
    assert kinds & {"TRANSACTION_PAYLOAD", "MARIADB_WRITE_ROWS_COMPRESSED_V1"}
    (rows,) = rows_in(view, world.table)
    assert (rows.rows, rows.problem) == (2, "")
    assert rows.transaction


def test_of_a_large_compressed_transaction_only_the_first_events_are_told(
    mysql_server: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> None:
    world = World(mysql_server, fresh_database(mysql_server), mysql_server.dsn())
    many = (f"INSERT INTO t VALUES ({number}, 'x')" for number in range(300))
    world.at_source("SET binlog_transaction_compression = ON", "BEGIN", *many, "COMMIT")
    events = world.look(count=8).events
    assert "TRANSACTION_PAYLOAD" in {each.kind for each in events if not each.compressed}
    inner = [each for each in events if each.compressed]
    assert len(inner) == 8 + 1
    assert "only its first 8 events" in inner[-1].problem


def test_a_gtid_is_a_place(world: World) -> None:
    world.at_source("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    (_, second) = rows_in(world.look(), world.table)
    world.at_source(*(f"INSERT INTO t VALUES ({number}, 'c')" for number in range(10, 20)))
    view = world.look(second.transaction)
    assert second in view.events
    is_behind = isinstance(position_of(world.server).gtids, MariaDbGtidPosition | type(None))
    named = [event for event in view.events if event.transaction == second.transaction]
    assert (named[-1].end if is_behind else named[0].start) == view.offset


def test_what_a_reader_has_is_the_place_where_it_goes_on(world: World) -> None:
    had = gtids_of(world)
    place = world.end()
    world.at_source("INSERT INTO t VALUES (1, 'a')")
    assert world.look(had).offset == place.offset
    assert world.look(gtids_of(world)).offset == world.end().offset


def gtids_of(world: World) -> str:
    """Return what a reader of the whole log has."""
    if "mariadb" in world.server.version.lower():
        return str(world.server.execute("SELECT @@gtid_binlog_pos")[0][0])
    return str(world.server.execute("SELECT @@global.gtid_executed")[0][0])


def test_a_stream_s_position_is_a_place_on_another_server_by_its_gtids_only(world: World) -> None:
    mine = position_of(world.server)
    text = gtids_of(world)
    is_mariadb = "mariadb" in world.server.version.lower()
    gtids = MariaDbGtidPosition.parse(text) if is_mariadb else GtidSet.parse(text)
    world.at_source("INSERT INTO t VALUES (1, 'a')")
    here = replace(mine, gtids=gtids)
    assert mine.binlog is not None
    assert world.look(position=here).offset == mine.binlog.offset
    assert world.look(position=replace(here, server_uuid="another")).offset == mine.binlog.offset
    with pytest.raises(SourceIdentityError):
        world.look(position=MySqlPosition("another", mine.binlog))


def test_a_place_inside_an_event_is_refused_with_its_ends(world: World) -> None:
    world.at_source("INSERT INTO t VALUES (1, 'a')")
    (rows,) = rows_in(world.look(), world.table)
    with pytest.raises(RefusedError, match=f"from {rows.start} to {rows.end}"):
        world.look(f"{rows.file}:{rows.start + 1}")


def test_places_that_the_log_does_not_have_are_refused(world: World) -> None:
    end = world.end()
    for at, told in (
        (end.at(end.offset + 1000), "it ends at"),
        (end.at(2), "has no place"),
        (f"other.{end.file_number:06d}:4", "are named bin, not other"),
        ("nonsense", "is no place of this server's log"),
        (f"{end.base}.{end.file_number + 7:06d}:4", "has no place"),
    ):
        with pytest.raises(RefusedError, match=told):
            world.look(at)


def test_a_transaction_that_the_server_does_not_have_is_refused(world: World) -> None:
    is_mariadb = "mariadb" in world.server.version.lower()
    unknown = "0-99-999999" if is_mariadb else "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"
    with pytest.raises((RefusedError, SourceIdentityError), match=unknown):
        world.look(unknown)


def test_a_purged_place_is_refused(world: World) -> None:
    place = world.end()
    for _ in range(2):
        world.server.execute("FLUSH BINARY LOGS")
    last, files = world.end().file, [place.file]
    deadline = time.monotonic() + 30
    while place.file in files:  # not as long as the server still takes it for read by someone
        assert time.monotonic() < deadline
        world.server.execute(f"PURGE BINARY LOGS TO '{last}'")
        files = [row[0] for row in world.server.execute("SHOW BINARY LOGS")]
    with pytest.raises(LogPurgedError, match=f"purged {place.file}"):
        world.look(place)


def test_events_go_on_in_the_next_file(world: World) -> None:
    place = world.end()
    world.server.execute("FLUSH BINARY LOGS")
    world.at_source("INSERT INTO t VALUES (1, 'a')")
    view = world.look(place)
    assert {event.file for event in view.events} == {place.file, world.end().file}
    assert rows_in(view, world.table)


def test_what_the_library_cannot_read_is_told_and_the_rest_is_shown(
    mysql_server: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> None:
    world = World(mysql_server, fresh_database(mysql_server), mysql_server.dsn())
    world.at_source(
        "CREATE TABLE n (id INT PRIMARY KEY, v VECTOR(3))",
        "INSERT INTO n VALUES (1, TO_VECTOR('[1,2,3]'))",
        "INSERT INTO t VALUES (1, 'a')",
    )
    view = world.look()
    assert any("cannot read it" in event.problem for event in view.events)
    assert [event.rows for event in rows_in(view, world.table)] == [1]


def test_only_looking_at_the_log_loads_mysql_replication() -> None:
    room = "airflow_cdc_provider.systems.mysql"
    names = [f"{room}.source.log_reader", f"{room}.source.snapshot_reader"]
    names += ["airflow_cdc_provider.pipeline.steps.checking", "airflow_cdc_provider.cli.main"]
    listing = f"import sys, {', '.join(names)}; print('pymysqlreplication' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", listing], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
