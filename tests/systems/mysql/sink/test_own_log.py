"""The own log of a MySQL sink: its behaviours, its readers' ids, its preflight and its errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.columns.source_port import LogReading, TailReader
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import AccessDeniedError, RefusedError, SinkUnreachableError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.own_log import MySqlOwnLog
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from airflow_cdc_provider.systems.mysql.server_ids import derived_ids, own_log_ids
from tests.behaviours.own_log_behaviours import OwnLogBehaviours, noted
from tests.behaviours.sink_world import SinkWorld
from tests.servers.accounts import sink_account
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.proxy import CuttingProxy
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.read_logs import through
from tests.systems.mysql.sink.mysql_sinks import MariaDbByInsert, MySqlByLoad
from tests.systems.mysql.sink.world import MySqlSinkWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_SOURCE = {"server_ids": [5400, 5499]}
SHOP = PipelineName("shop")
BOTH = pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])


class MySqlOwnLogBehaviours(OwnLogBehaviours):
    def write_by_hand(self, world: SinkWorld, key: int, name: str) -> None:
        assert isinstance(world, MySqlSinkWorld)
        world.put((key, name))


class TestOwnLogOfMySql(MySqlByLoad, MySqlOwnLogBehaviours):
    pass


class TestOwnLogOfMariaDb(MariaDbByInsert, MySqlOwnLogBehaviours):
    pass


def own_log_at(server: SqlServer, pipeline: PipelineName = SHOP) -> MySqlOwnLog:
    return MySqlOwnLog.of(Endpoint.parse(server.dsn()), pipeline, AT_SOURCE)


def empty_reading(reader: int) -> LogReading:
    return LogReading({}, reader, options=AT_SOURCE)


# --- the ids of readers ---------------------------------------------------------------------------


def test_the_ids_at_the_sink_are_apart_from_all_that_are_derived_for_a_source() -> None:
    for number in range(200):
        mine = own_log_ids(f"p{number}", "sink:3306", at_source=range(5400, 5500))
        theirs = derived_ids(f"p{number}", "conn_id=sink", needed=5)
        assert mine.stop <= 1_000_000_000 <= theirs.start
        assert mine == own_log_ids(f"p{number}", "sink:3306", at_source=range(5400, 5500))


@pytest.mark.parametrize("beside", [-50, 0, 50])
def test_ids_that_the_file_writes_for_the_source_are_left_out(beside: int) -> None:
    first = own_log_ids("shop", "sink:3306", at_source=range(1, 2)).start
    written = range(first + beside, first + beside + 100)
    found = own_log_ids("shop", "sink:3306", at_source=written)
    assert len(found) == 100
    assert not set(found) & set(written)


def test_a_range_for_the_source_that_leaves_no_ids_is_refused() -> None:
    with pytest.raises(RefusedError, match="leave none") as refused:
        MySqlOwnLog.of(
            Endpoint.parse("mysql://u:p@host:3306/"), SHOP, {"server_ids": [1, 2**32 - 1]}
        )
    assert "shorter range" in str(refused.value)


@FAMILIES
def test_readers_of_all_kinds_read_one_servers_log_side_by_side(
    family: str, request: pytest.FixtureRequest
) -> None:
    """Source and sink are one server; it is another pipeline's sink, and a third one's source."""
    server = request.getfixturevalue(f"{family}_server")
    source = MySqlSource(Endpoint.parse(server.dsn()))
    mine, other = own_log_at(server), own_log_at(server, PipelineName("other"))
    third = derived_ids("third", "conn_id=sink", needed=5)
    with ExitStack() as stack:
        start = StreamSplit(noted(mine), None, ())
        at_third = LogReading({}, 0, options={"server_ids": [third.start, third.stop - 1]})
        readers: list[TailReader] = [
            stack.enter_context(closing(reader))
            for reader in (
                source.log_reader(start, empty_reading(0)),
                mine.log_reader(start, empty_reading(0)),
                mine.log_reader(start, empty_reading(1)),
                other.log_reader(start, empty_reading(0)),
                source.log_reader(start, at_third),
            )
        ]
        with source.catalogue() as catalogue:
            statement = catalogue.capabilities.replicas_statement
        connected = {int(row[0]) for row in server.execute(statement)}
        assert connected >= {
            5400,
            *mine.server_ids[:2],
            other.server_ids[0],
            third[0],
        }
        server.execute("CREATE DATABASE IF NOT EXISTS unseen_by_readers")
        server.execute("DROP DATABASE unseen_by_readers")
        with closing(mine.log_end(purpose="test")) as log_end:
            end = log_end.now()
            for reader in readers:
                list(reader.read_up_to(end, batch_s=1.0))
                assert log_end.bytes_behind(reader.position) == 0


# --- preflight ------------------------------------------------------------------------------------


def blocking(found: Sequence[Finding]) -> dict[str, str]:
    return {
        str(finding.code): finding.observed for finding in found if finding.level is Level.BLOCK
    }


def wait_for_former_readers(server: SqlServer, log: MySqlOwnLog) -> None:
    """Have the server notice readers that have gone: it does when it has something to send."""
    deadline = time.monotonic() + 20
    while "own_log.reader_id" in blocking(log.preflight(is_new=True)):
        assert time.monotonic() < deadline, "a reader of another test is there still"
        server.execute("FLUSH BINARY LOGS")
        time.sleep(0.1)


@BOTH
def test_preflight_names_the_log_settings_that_hide_changes(kind: type[ThrowawayServer]) -> None:
    with kind({"binlog-row-image": "MINIMAL", "binlog-format": "MIXED"}) as server:
        found = own_log_at(server).preflight(is_new=True)
    blocks = [finding for finding in found if finding.level is Level.BLOCK]
    assert {finding.code for finding in blocks} == {OwnLogCode.SETTING}
    assert {finding.observed for finding in blocks} == {
        "binlog_format = MIXED",
        "binlog_row_image = MINIMAL",
    }
    assert all(finding.fix for finding in blocks)
    texts = " ".join(str(finding.to_json()) for finding in found)
    assert "source." not in texts
    assert "the source" not in texts


@BOTH
def test_preflight_refuses_a_sink_without_a_log(kind: type[ThrowawayServer]) -> None:
    options = {"skip-log-bin": None, "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    with kind(options if kind is MySqlServer else {"skip-log-bin": None}) as server:
        assert blocking(own_log_at(server).preflight(is_new=True)) == {
            "own_log.none": "log_bin = OFF"
        }


@FAMILIES
def test_preflight_names_the_rights_that_the_sinks_account_lacks(
    family: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    server.execute("DROP USER IF EXISTS writer_only")
    server.execute("CREATE USER writer_only IDENTIFIED BY 'writer_secret'")
    endpoint = Endpoint.parse(server.dsn("writer_only", "writer_secret"))
    try:
        found = MySqlOwnLog.of(endpoint, SHOP, AT_SOURCE).preflight(is_new=True)
        rights = [finding for finding in found if finding.code is OwnLogCode.RIGHTS]
        for finding in rights:
            server.execute(finding.fix.rstrip(";"))
        after = MySqlOwnLog.of(endpoint, SHOP, AT_SOURCE).preflight(is_new=True)
    finally:
        server.execute("DROP USER writer_only")
    assert len(rights) == 2
    assert all(finding.level is Level.BLOCK for finding in rights)
    assert not [finding for finding in after if finding.code is OwnLogCode.RIGHTS]
    assert "the source" not in " ".join(finding.observed + finding.why for finding in found)


@FAMILIES
def test_preflight_names_another_reader_with_an_id_of_the_range(
    family: str, request: pytest.FixtureRequest
) -> None:
    """Another pipeline has the sink as its source, under ids that its file writes."""
    server = request.getfixturevalue(f"{family}_server")
    mine = own_log_at(server)
    clashing = LogReading({}, 0, options={"server_ids": [mine.server_ids[3], mine.server_ids[9]]})
    source = MySqlSource(Endpoint.parse(server.dsn()))
    wait_for_former_readers(server, mine)
    assert "own_log.reader_id" not in blocking(mine.preflight(is_new=True))
    with closing(source.log_reader(StreamSplit(noted(mine), None, ()), clashing)):
        found = mine.preflight(is_new=True)
        assert str(mine.server_ids[3]) in blocking(found)["own_log.reader_id"]
        assert "own_log.reader_id" not in blocking(mine.preflight(is_new=False))


def test_preflight_names_a_server_with_an_id_of_the_range(mysql_server: SqlServer) -> None:
    (number,) = mysql_server.execute("SELECT @@server_id")[0]
    log = replace(own_log_at(mysql_server), server_ids=range(number - 1, number + 2))
    found = blocking(log.preflight(is_new=True))
    assert found["own_log.reader_id"] == f"the sink itself has server_id {number}"


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture
def proxy(mysql_server: SqlServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(mysql_server.port, host=mysql_server.host) as started:
        yield started


def test_a_log_that_cannot_be_reached_is_the_sinks(
    mysql_server: SqlServer, proxy: CuttingProxy
) -> None:
    log = MySqlOwnLog.of(through(proxy, mysql_server), SHOP, AT_SOURCE)
    start = StreamSplit(noted(log), None, ())
    with closing(log.log_reader(start, empty_reading(0))) as reader:
        following = reader.follow(batch_s=0.1, wait_s=0.1)
        next(following)
        proxy.cut()
        with pytest.raises(SinkUnreachableError) as lost:
            list(islice(following, 100))
    assert "the source" not in str(lost.value)


@FAMILIES
def test_triggers_that_the_account_may_not_see_are_not_taken_for_none(
    family: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    database = fresh_database(server)
    table = TableId(database, "orders")
    server.execute("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", database=database)
    server.execute(
        "CREATE TRIGGER doubles BEFORE INSERT ON orders FOR EACH ROW SET NEW.v = 2 * NEW.v",
        database=database,
    )
    account = sink_account(server, database)
    own_log = MySqlOwnLog.of(Endpoint.parse(account.dsn), SHOP, AT_SOURCE)
    try:
        assert own_log.firing_triggers([table]) == {table: ("doubles",)}
        for right in (right for right in account.rights if right.privilege == "TRIGGER"):
            account.revoke(right)
        if family == "mariadb":  # which shows them to who may write
            assert own_log.firing_triggers([table]) == {table: ("doubles",)}
        else:
            with pytest.raises(AccessDeniedError, match="may not see the triggers") as denied:
                own_log.firing_triggers([table])
            assert f"GRANT TRIGGER ON `{database}`.* TO" in denied.value.remedy
    finally:
        account.drop()
