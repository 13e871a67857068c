"""The stream's reading task, without a Spark: what it does when another server answers."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, SourceUnreachableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import Owner, Sink
from airflow_cdc_provider.engine.stream.stream_control import ERROR
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.stream_task import BatchNumber, read_log
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.registry import open_sink, open_source
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import position_of

_FORMER = "11111111-1111-1111-1111-111111111111"


def streaming_sink(server: SqlServer, start: MySqlPosition) -> Sink:
    name = PipelineName("stream_task")
    sink = open_sink("mysql", Endpoint.parse(server.dsn()), Owner(name, 1), ())
    with closing(sink.open_ledger()) as ledger:
        ledger.take_over(1)
        ledger.start_plan("a plan")
        ledger.store_stream(StreamSplit(start, None, ()))
    return sink


@pytest.mark.timeout(30)
def test_an_end_of_the_former_servers_log_is_not_waited_for_on_a_new_one(
    mysql_server: SqlServer, mysql_sink: SqlServer
) -> None:
    start = position_of(mysql_server)
    assert start.binlog is not None
    sink = streaming_sink(mysql_sink, start)
    reading = LogReading({}, 0, options={"server_ids": [7301, 7301]})
    task = StreamTask(open_source(Endpoint.parse(mysql_server.dsn())), sink, reading)
    end = MySqlPosition(_FORMER, start.binlog.at(1 << 30))
    (row,) = [
        batch.to_pylist()[0] for batch in read_log(task, BatchNumber("run", 1), end, keeps=False)
    ]
    assert row["kind"] == ERROR
    error = CdcError.from_json(json.loads(row["part"]))
    assert isinstance(error, SourceUnreachableError), error
    assert _FORMER in str(error)
