"""lineitem copied from server to server by the snapshot job on a warm Spark session, local[2]."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.many_records import collect_seldom
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.jobs import snapshot_spec
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.spark.main import run_job
from airflow_cdc_provider.spark.session import close_session, open_session
from tests.benchmarks import subject

if TYPE_CHECKING:
    import pyarrow as pa

PIPELINE = """
pipeline: bench
source: {{dsn_env: BENCH_SOURCE, tables: ["bench.lineitem"], server_id: 9910-9919}}
sink: {{{sink}}}
state: {{dsn_env: BENCH_STATE}}
snapshot: {{max_connections: 8}}
"""
SINK = "type: mysql, dsn_env: BENCH_SINK"


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what readers import; interpreter start-up is not what is measured."""
    import airflow_cdc_provider.engine.snapshot.reader_task  # noqa: F401, PLC0415

    yield from batches


@contextmanager
def planned_run(given: subject.Arguments, *, sink: str = SINK) -> Iterator[Run]:
    """Give a pipeline over the benchmark's servers, checked and planned but for its splits."""
    collect_seldom()  # as a driver does
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(PIPELINE.format(sink=sink), encoding="utf-8")
        dsns = {
            "BENCH_SOURCE": subject.dsn(given["source"]),
            "BENCH_SINK": subject.dsn(given["sink"]),
            "BENCH_STATE": f"sqlite:///{folder}/state.db",
        }
        with open_run(load_pipeline(file), lambda ref: dsns[ref.dsn_env or ""]) as run:
            plan(run)
            yield run


def main() -> None:
    given = subject.arguments()
    with planned_run(given) as run:
        os.environ.update(run.servers.environment())
        spec = snapshot_spec(run.model, run.store.ensure(run.name).generation)
        spark = open_session("benchmark", master="local[2]")
        spark.range(0, 4, 1, 4).mapInArrow(warm, "id long").collect()

        def copy() -> int:
            result = run_job(spec, spark)
            if result.error or result.rows != given["rows"]:
                raise SystemExit(f"the snapshot job did not copy all rows: {result}")
            return int(result.rows)

        subject.work(copy)
        close_session()


if __name__ == "__main__":
    main()
