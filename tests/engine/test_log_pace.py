"""The pace of micro-batches, asked of a real server."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import SourceUnreachableError
from airflow_cdc_provider.engine.stream.log_pace import LogPace
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.registry import open_source
from tests.servers.given import SqlServer

_FORMER = "11111111-1111-1111-1111-111111111111"


def test_a_bounded_run_ends_on_a_new_server_that_is_written_to_all_the_while(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    source = open_source(Endpoint.parse(mysql_server.dsn()))
    start = MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 400), GtidSet())
    bound = MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 900))
    with closing(source.log_end(purpose="test")) as log_end:
        pace = LogPace(log_end, Following(), bound)
        ends = [pace.next_end(start)]
        for _ in range(3):
            mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES ()")
            ends.append(pace.next_end(ends[-1]))
    assert ends[0] is not start
    assert ends[0] is ends[1] is ends[2] is ends[3]


def test_a_stream_that_ends_for_good_takes_no_other_servers_end_for_its_own(
    mysql_server: SqlServer,
) -> None:
    start = MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 400), GtidSet())
    following = Following(bound=MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 900)))
    following.is_last = True
    source = open_source(Endpoint.parse(mysql_server.dsn()))
    with (
        closing(source.log_end(purpose="test")) as log_end,
        pytest.raises(SourceUnreachableError, match="another server's log answers"),
    ):
        LogPace(log_end, following).next_end(start)


def test_nothing_is_waited_for_once_the_end_is_asked_for(mysql_server: SqlServer) -> None:
    following = Following()
    with closing(open_source(Endpoint.parse(mysql_server.dsn())).log_end(purpose="test")) as end:
        start = end.now()
        following.ending.set()
        assert LogPace(end, following).next_end(start) is start
