"""The pace of micro-batches, asked of a real server without a Spark."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable

from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.codec import dumps, position_to_json
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.log_source import LogStreamReader
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.registry import open_sink, open_source
from tests.servers.given import SqlServer

_FORMER = "11111111-1111-1111-1111-111111111111"


def test_a_bounded_run_ends_on_a_new_server_that_is_written_to_all_the_while(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    endpoint = Endpoint.parse(mysql_server.dsn())
    sink = open_sink("mysql", endpoint, Owner(PipelineName("log_source"), 1))
    reading = LogReading({}, reader_id=7311)
    task = StreamTask(open_source(endpoint), sink, reading)
    before = MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 400), GtidSet())
    bound = MySqlPosition(_FORMER, BinlogPosition.of("bin.000007", 900))
    positions = {"start": before, "until": bound}
    options = {name: dumps(position_to_json(place)) for name, place in positions.items()}
    reader = LogStreamReader(task, {"run": "r", **options})
    offsets = [reader.initialOffset()]
    for _ in range(3):
        mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES ()")
        offsets.append(reader.latestOffset(offsets[-1], ReadAllAvailable()))
    assert offsets[1] != offsets[0]
    assert offsets[3] == offsets[2] == offsets[1]
