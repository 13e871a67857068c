"""The snapshot job: a DataFrame with one row a reader, run through `mapInArrow`.

That works on classic Spark and on Spark Connect. Spark sees a handful of tasks and knows nothing of
splits, whatever the size of the cluster. A task ends after two minutes and another follows it, so
that a cluster may take a machine away, and so that Spark's UI shows with each job how far it is.
Spark starts a lost reader's task again on a cluster; `local[N]` makes one attempt, and
`engine.snapshot.snapshot_run` another round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.snapshot import snapshot_run
from airflow_cdc_provider.engine.snapshot.assigner_server import DriverPlace
from airflow_cdc_provider.engine.snapshot.reader_task import (
    ROW_SCHEMA,
    ReadersEnd,
    ReaderTask,
    reader_rows,
)
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.named_jobs import NamedJobs
from airflow_cdc_provider.spark.session import bind_address, is_local, reachable_host, slots
from airflow_cdc_provider.spark.workers import workers_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

READER_S = 120.0
"""How long a reader takes splits, until another follows it."""


def run_snapshot(job: Job, spark: SparkSession) -> JobResult:
    """Run the snapshot on Spark: read every split that is not finished, until done or stopped."""
    return snapshot_run.run_snapshot(job, _SparkReaders(job, spark))


class _SparkReaders:
    """Runs readers of splits as the tasks of Spark jobs."""

    def __init__(self, job: Job, spark: SparkSession) -> None:
        self._job = job
        self._spark = spark
        spec = job.spec
        self._jobs = NamedJobs(spark, f"cdc-snapshot-{spec.pipeline}-{spec.generation}")
        self._told = _Told()

    @property
    def driver(self) -> DriverPlace:
        """Return where the driver listens for the readers."""
        if is_local(self._spark):
            return DriverPlace("127.0.0.1")
        ports = self._job.spec.assigner_ports
        return DriverPlace(reachable_host(self._spark), bind_address(self._spark), ports)

    @property
    def at_once(self) -> int | None:
        """Return how many readers run at once."""
        return slots(self._spark)

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        """Run the readers, each as one task, until no split is left."""
        relieved = replace(task, relieved_after_s=READER_S)
        try:
            while True:
                end = self._run_once(relieved, count)
                if end.errors or not end.is_relieved:
                    return snapshot_run.worst(end.errors)
        except SPARK_FAILURES as failure:
            where = f"snapshot of {self._job.spec.pipeline}"
            return spark_failure(failure, where=where, secrets=self._job.servers.secrets)

    def _run_once(self, task: ReaderTask, count: int) -> ReadersEnd:
        """Run one Spark job of readers, and count what they read."""

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return reader_rows(task, batches)

        with self._jobs.described(
            f"snapshot of {self._job.spec.pipeline}: {count} readers; {self._told}"
        ):
            with workers_named(self._spark, "snapshot reader"):
                numbers = self._spark.range(0, count, 1, count)
                readers = numbers.mapInArrow(read, ROW_SCHEMA)
            end = ReadersEnd.of([row.asDict() for row in readers.collect()])
        self._told.add(end)
        return end


class _Told:
    """Counts and speed of what was read so far, shown in Spark's UI."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._splits = 0
        self._rows = 0

    def add(self, end: ReadersEnd) -> None:
        """Add what the readers of one job read."""
        self._splits += end.splits
        self._rows += end.rows

    def __str__(self) -> str:
        rate = self._rows / (time.monotonic() - self._began)
        return f"{self._splits:,} splits with {self._rows:,} rows before it, {rate:,.0f} rows/s"
