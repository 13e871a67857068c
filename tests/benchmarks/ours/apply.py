"""A log read, decoded, merged and applied to the sink, position and all.

As in the product's stream, one batch is read and decoded while the last one is applied.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pymysql

from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.benchmarks import subject
from tests.benchmarks.ours.setting import setting
from tests.benchmarks.workload import WORKLOADS

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor


def main() -> None:
    given = subject.arguments()
    workload = WORKLOADS[given["workload"]]
    mode = ApplyMode(given["mode"])
    bench = setting(given, workload.table, apply=mode, writers=given["writers"])
    stream = bench.copied()
    connection = _source_connection(given["source"])
    with connection.cursor() as cursor:
        rows = workload.run(cursor)
    end = bench.end_of_log()
    reader = LogReader(
        bench.source,
        server_id=9904,
        start=own(stream.start),
        captured=frozenset({bench.schema.table}),
        limits=BatchLimits(changes=given["batch"]),
    )
    sink = bench.sink.open_changes(arrow_schemas([bench.schema]))

    def run() -> int:
        changes = 0
        with ThreadPoolExecutor(1) as ahead:
            batches = iter(reader.read_to(end))
            coming = ahead.submit(next, batches, None)
            while (batch := coming.result()) is not None:
                coming = ahead.submit(next, batches, None)
                changes += batch.changes
                sink.apply(batch)
        if changes != rows:
            raise SystemExit(f"{rows} changes were written and {changes} applied")
        return changes

    subject.work(run)
    sink.close()
    reader.close()


def _source_connection(port: int) -> Connection[Cursor]:
    return pymysql.connect(
        host="127.0.0.1",
        port=port,
        user="root",
        database="bench",
        ssl_disabled=True,
        autocommit=True,
    )


if __name__ == "__main__":
    main()
