"""The stream job: one query of Structured Streaming that follows the log into the sink.

What a stream job does, when it tries again and when it ends is `engine.stream.follow`'s. Spark's
checkpoint, in a new folder for every run of the query, only paces the micro-batches.

A micro-batch of Spark's takes a quarter of a second, most of it to plan it and to write two files
of the checkpoint. So a continuous stream is followed by the driver's own process, and by Spark only
while more log waits than that should read alone.
"""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.codec import dumps, position_to_json
from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.backoff import BackOff
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.stream import follow
from airflow_cdc_provider.engine.stream.following import Following
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.log_source import SOURCE_NAME, log_source
from airflow_cdc_provider.spark.session import context_of
from airflow_cdc_provider.spark.stream_task import APPLIED_SCHEMA, Turn, apply_changes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
_WORKER_VARIABLE = "AIRFLOW_CDC_WORKER"


def run_stream(
    job: Job, spark: Callable[[], SparkSession], *, back_off: BackOff | None = None
) -> JobResult:
    """Follow the log until the bound, until asked to stop, or until an error no retry mends."""
    with _checkpoints(job.spec.work_dir) as folder:

        def by_spark(task: StreamTask, following: Following) -> _Query:
            return _Query(job, _own_session(spark(), task), following, task, Path(folder))

        def by_turns(task: StreamTask, following: Following) -> _Turns:
            return _Turns(job, task, following, by_spark)

        follower = by_turns if job.spec.may_need_no_spark else by_spark
        return follow.run_stream(job, follower, back_off=back_off)


class _Turns:
    """Follows in this process while little log waits, and by Spark what is more than that.

    Spark is started when it is needed first, and stays.
    """

    def __init__(
        self,
        job: Job,
        task: StreamTask,
        following: Following,
        by_spark: Callable[[StreamTask, Following], _Query],
    ) -> None:
        self._job = job
        self._following = following
        self._own = OwnFollower(task, following, job.spec.driver_log_bytes)
        self._open_query = partial(by_spark, task, following)
        self._query: _Query | None = None
        self._much_waits = False

    def follow(self, start: LogPosition) -> bool:
        """Follow until the other one's turn comes."""
        if not self._much_waits:
            is_over = self._own.follow(start)
            self._much_waits = not is_over
            return is_over
        self._much_waits = False
        if self._query is None:
            self._query = self._open_query()
        with closing(self._job.source().log_end(purpose="end of the log")) as log_end:
            bound = log_end.now()
        self._query.run(start, bound)
        return self._following.ending.is_set()


class _Query:
    """Runs the query; each run has a checkpoint of its own."""

    def __init__(
        self, job: Job, spark: SparkSession, following: Following, task: StreamTask, folder: Path
    ) -> None:
        self._job = job
        self._spark = spark
        self._following = following
        self._task = task
        self._folder = folder

    def follow(self, start: LogPosition) -> bool:
        """Run the query from a start to its end."""
        self.run(start, self._following.bound)
        return True

    def run(self, start: LogPosition, bound: LogPosition | None) -> None:
        """Run the query from a start, to a bound if there is one."""
        run_id = uuid.uuid4().hex
        try:
            query = self._start(start, bound, run_id)
            while not query.awaitTermination(1):
                if self._following.ending.is_set():
                    self._stop(query)
                    return
        except SPARK_FAILURES as failure:
            raise self._reason(failure) from None

    def _start(self, start: LogPosition, bound: LogPosition | None, run_id: str) -> StreamingQuery:
        reader = self._spark.readStream.format(SOURCE_NAME).option("run", run_id)
        reader = reader.option("start", dumps(position_to_json(start)))
        if bound is not None:
            reader = reader.option("until", dumps(position_to_json(bound)))
        spec = self._job.spec
        writer = (
            reader.load()
            .writeStream.queryName(f"{spec.pipeline}_{spec.generation}_{run_id[:8]}")
            .option("checkpointLocation", (self._folder / run_id).as_uri())
            .foreachBatch(lambda rows, number: self._apply(rows, Turn(run_id, number)))
        )
        if bound is not None:
            writer = writer.trigger(availableNow=True)
        log.info("query starts: pipeline=%s run=%s from=%s", spec.pipeline, run_id, start)
        return writer.start()

    def _apply(self, rows: DataFrame, turn: Turn) -> None:
        """Apply one micro-batch on an executor; an error has to leave, or Spark would commit."""
        passed_over = self._following.passed_over
        with passed_over.micro_batch:
            task, quiet = self._task, passed_over.take()

            def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return apply_changes(task, turn, quiet, batches)

            applied = rows.mapInArrow(apply, APPLIED_SCHEMA).collect()
            self._following.note((row["kind"], row["body"]) for row in applied)

    def _stop(self, query: StreamingQuery) -> None:
        """Let a micro-batch that is under way end, unless it takes long or may not commit."""
        deadline = time.monotonic() + STOP_GRACE_S
        while self._following.passed_over.micro_batch.locked() and time.monotonic() < deadline:
            if self._following.fenced is not None or not query.isActive:
                break
            time.sleep(0.05)
        with suppress(*SPARK_FAILURES):  # what was cut off is read again some day
            query.stop()

    def _reason(self, failure: Exception) -> CdcError:
        if self._following.error is not None:
            return self._following.error
        where = f"stream of {self._job.spec.pipeline}"
        return spark_failure(failure, where=where, secrets=self._job.servers.secrets)


def _own_session(spark: SparkSession, task: StreamTask) -> SparkSession:
    """Make a session whose settings fit rows of megabytes: one row in an Arrow batch."""
    if context_of(spark) is None:
        raise RefusedError(
            "the stream does not run over Spark Connect",
            where="spark",
            remedy="submit the stream job with spark-submit, or use a classic session",
        )
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    # Spark keeps idle Python workers by the environment they were started with and hands them
    # out in turn. With one environment for both, the reader's and the writer's worker would
    # change places in every micro-batch, and neither could keep its connection open.
    environment = session.sparkContext.environment
    environment.pop(_WORKER_VARIABLE, None)
    session.dataSource.register(log_source(task))
    environment[_WORKER_VARIABLE] = "writer"
    return session


def _checkpoints(work_dir: str) -> tempfile.TemporaryDirectory[str]:
    if work_dir:
        Path(work_dir).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(
        prefix="cdc-stream-", dir=work_dir or None, ignore_cleanup_errors=True
    )
