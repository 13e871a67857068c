"""A log read, decoded, merged and applied to the sink, position and all.

With `edge` it is that of a topology: `plain`, or `guarded` against changes of the same rows. With
`beside` another session changes other rows of the sink's table all the while.

As in the product's stream, one batch is read and decoded while the last one is applied.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pymysql

from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.benchmarks import subject
from tests.benchmarks.ours.setting import edge_of, setting
from tests.benchmarks.workload import WORKLOADS

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor


def main() -> None:
    given = subject.arguments()
    workload = WORKLOADS[given["workload"]]
    mode = ApplyMode(given["mode"])
    kind = given.get("edge", "")
    edge = edge_of(guarded=kind == "guarded") if kind else None
    bench = setting(given, workload.table, apply=mode, writers=given["writers"], edge=edge)
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
        origins=None if edge is None else edge.origins(),
        opposite="" if edge is None else edge.opposite().name_in_ledger,
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

    with _writer_beside(given["sink"], workload.table) if given.get("beside") else nullcontext():
        subject.work(run)
    sink.close()
    reader.close()


_BESIDE = """
import sys, time, pymysql
connection = pymysql.connect(
    host="127.0.0.1", port=int(sys.argv[1]), user="root", database="bench", ssl_disabled=True
)
cursor, number = connection.cursor(), 0
cursor.execute("SET sql_mode = ''")
print("writes", flush=True)
while True:
    for _ in range(10):
        number += 1
        key = 900_000_000 + number % 5000
        values = f"(id) VALUES ({key}) ON DUPLICATE KEY UPDATE k = k + 1"
        cursor.execute(f"INSERT INTO {sys.argv[2]} {values}")
    connection.commit()
    time.sleep(0.005)
"""


@contextmanager
def _writer_beside(port: int, table: str) -> Iterator[None]:
    """Have another process change other rows of the table within the block."""
    command = [sys.executable, "-c", _BESIDE, str(port), table]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            yield
            assert writer.poll() is None, "the writer beside has ended"
        finally:
            writer.kill()


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
