"""The stream on Spark: one small batch job after the other, each up to where the log then ends.

The driver asks the source where its log ends and gives Spark a job of one task for what has come.
In it one Python worker reads and decodes the log, and another applies it. The calls are `range`,
`mapInArrow` and `collect` alone: each PySpark from 3.5 on has them, classic or over Spark Connect.

Nothing of a job is kept but what the sink's ledger says. A task that is lost is run again, by Spark
or by the next try, from there.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.stream.log_pace import LogPace
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.named_jobs import NamedJobs
from airflow_cdc_provider.spark.session import context_of
from airflow_cdc_provider.spark.stream_task import (
    APPLIED_SCHEMA,
    LOG_SCHEMA,
    BatchNumber,
    apply_changes,
    is_first_attempt,
    read_log,
)
from airflow_cdc_provider.spark.workers import workers_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SHOWN_CHARS = 300


class SparkFollower:
    """Follows the log by micro-batches, each a Spark job."""

    def __init__(
        self, job: Job, spark: SparkSession, task: StreamTask, following: Following
    ) -> None:
        self._job = job
        self._spark = spark if context_of(spark) is None else spark.newSession()
        self._task = task
        self._following = following
        self._told = _Told()
        self._asked_s: float | None = None

    def follow(self, start: LogPosition) -> bool:
        """Follow the log from a position to the run's end."""
        self.run(start, self._following.bound)
        return True

    def run(self, start: LogPosition, bound: LogPosition | None) -> None:
        """Follow the log from a position, to a bound if there is one."""
        pipeline, run, number = self._job.spec.pipeline, uuid.uuid4().hex, 0
        log.info("spark follows the log: pipeline=%s run=%s from=%s", pipeline, run, start)
        jobs = NamedJobs(self._spark, f"cdc-stream-{pipeline}-{self._job.spec.generation}")
        try:
            with ExitStack() as stack:
                log_end = self._task.source.log_end(purpose="end of the log")
                pace = LogPace(stack.enter_context(closing(log_end)), self._following, bound)
                stack.enter_context(_one_row_in_a_batch(self._spark))
                stack.enter_context(jobs.cancelled_once(self._is_cut_off))
                while (end := pace.next_end(start)) is not start:
                    number += 1
                    self._micro_batch(BatchNumber(run, number), end, jobs)
                    start = end
        except SPARK_FAILURES as failure:
            if not self._following.ending.is_set():  # what was cut off is read again some day
                where, secrets = f"stream of {pipeline}", self._job.servers.secrets
                raise spark_failure(failure, where=where, secrets=secrets) from None

    def _micro_batch(self, turn: BatchNumber, end: LogPosition, jobs: NamedJobs) -> None:
        """Bring the log up to an end into the sink; raise the error that a worker reported."""
        passed_over = self._following.passed_over
        shown = f"stream of {self._job.spec.pipeline}: log up to {end}"[:_SHOWN_CHARS]
        began = time.monotonic()
        with passed_over.micro_batch, jobs.described(f"{shown}; {self._told}"):
            rows = self._rows(turn, end, passed_over.take()).collect()
            changes = self._following.note((row["kind"], row["body"]) for row in rows)
        self._told.add(changes, time.monotonic() - began)

    def _rows(self, turn: BatchNumber, end: LogPosition, quiet: IdleRange | None) -> DataFrame:
        """Build the data frame of one micro-batch: read the log, apply it; nothing runs yet."""
        task, has_own_workers = self._task, context_of(self._spark) is not None

        def read(ones: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in ones:  # to their end, or Spark would not use this worker again
                yield from read_log(task, turn, end, keeps=has_own_workers and is_first_attempt())

        def apply(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            keeps = has_own_workers and is_first_attempt()
            return apply_changes(task, turn, quiet, rows, keeps=keeps)

        one = self._spark.range(0, 1, 1, 1)
        with workers_named(self._spark, "log reader"):
            read_rows = one.mapInArrow(read, LOG_SCHEMA)
        with workers_named(self._spark, "log writer"):
            return read_rows.mapInArrow(apply, APPLIED_SCHEMA)

    def _is_cut_off(self) -> bool:
        """Tell whether to cancel the running micro-batch: it is late after a stop, or fenced."""
        if not self._following.ending.is_set():
            return False
        self._asked_s = self._asked_s or time.monotonic()
        is_late = time.monotonic() - self._asked_s > STOP_GRACE_S
        return is_late or self._following.fenced is not None


class _Told:
    """Counts and speed of the micro-batches so far, shown in Spark's UI."""

    def __init__(self) -> None:
        self._batches = 0
        self._changes = 0
        self._last = 0.0

    def add(self, changes: int, seconds: float) -> None:
        """Add one micro-batch to the counts."""
        self._batches += 1
        self._changes += changes
        self._last = changes / seconds

    def __str__(self) -> str:
        if not self._batches:
            return "the first micro-batch"
        return (
            f"{self._batches} micro-batches before it with {self._changes:,} changes, "
            f"{self._last:,.0f}/s in the last"
        )


@contextmanager
def _one_row_in_a_batch(spark: SparkSession) -> Iterator[None]:
    """Have each row travel in an Arrow batch of its own: rows have megabytes."""
    before = str(spark.conf.get(_ARROW_ROWS))
    spark.conf.set(_ARROW_ROWS, "1")
    try:
        yield
    finally:
        with suppress(*SPARK_FAILURES):
            spark.conf.set(_ARROW_ROWS, before)
