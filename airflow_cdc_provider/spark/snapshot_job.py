"""The snapshot job: a DataFrame with one row a reader, run through `mapInArrow`.

That works on classic Spark and on Spark Connect. Spark sees a handful of long tasks and knows
nothing of splits, whatever the size of the cluster. It starts a lost reader's task again on a
cluster; `local[N]` makes one attempt, and `engine.snapshot.snapshot_run` another round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.snapshot import snapshot_run
from airflow_cdc_provider.engine.snapshot.assigner_server import DriverPlace
from airflow_cdc_provider.engine.snapshot.reader_task import ROW_SCHEMA, ReaderTask, reader_rows
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.session import bind_address, is_local, reachable_host, slots
from airflow_cdc_provider.spark.workers import workers_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_snapshot(job: Job, spark: SparkSession) -> JobResult:
    """Read every split that is not finished; returns when all are, or when asked to stop."""
    return snapshot_run.run_snapshot(job, _SparkReaders(job, spark))


class _SparkReaders:
    """One Spark job for each round of readers."""

    def __init__(self, job: Job, spark: SparkSession) -> None:
        self._job = job
        self._spark = spark

    @property
    def driver(self) -> DriverPlace:
        if is_local(self._spark):
            return DriverPlace("127.0.0.1")
        ports = self._job.spec.assigner_ports
        return DriverPlace(reachable_host(self._spark), bind_address(self._spark), ports)

    @property
    def at_once(self) -> int | None:
        return slots(self._spark)

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        """Run the readers, each as one task."""

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return reader_rows(task, batches)

        try:
            with workers_named(self._spark, "snapshot reader"):
                numbers = self._spark.range(0, count, 1, count)
                readers = numbers.mapInArrow(read, ROW_SCHEMA)
            rows = readers.collect()
        except SPARK_FAILURES as failure:
            where = f"snapshot of {self._job.spec.pipeline}"
            return spark_failure(failure, where=where, secrets=self._job.servers.secrets)
        errors = [CdcError.from_json(json.loads(row["error"])) for row in rows]
        return snapshot_run.worst(errors)
