"""The stream job: one query of Structured Streaming that follows the log into the sink.

The driver decides nothing about positions: reading starts where the sink's ledger says, every
commit moves the ledger together with the rows, and Spark's checkpoint, in a new folder for every
run of the query, only paces the micro-batches. So whatever fails, the query is simply started
again from the ledger: at once when it went forward before, else after growing waits, and not for
ever. What trying again does not mend ends the job with its named error.

A bounded run reads to what was the end of the log when the job began, also over restarts of the
query; a continuous one ends when it is asked to.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.sink_port import StreamCounts
from airflow_cdc_provider.columns.source_port import LogReading
from airflow_cdc_provider.core.codec import dumps, position_to_json, quiet_log_from_json
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RefusedError,
    RetryableError,
    SnapshotRequiredError,
    SparkLostError,
)
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.jobspec import StreamMode
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.backoff import BackOff
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.ownership import Ownership
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.stream.heartbeat import Heartbeat
from airflow_cdc_provider.engine.stream.passed_over import PassedOver
from airflow_cdc_provider.engine.stream.stream_task import (
    APPLIED_SCHEMA,
    ERROR,
    StreamTask,
    Turn,
    apply_changes,
)
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.job import Job
from airflow_cdc_provider.spark.log_source import SOURCE_NAME, log_source
from airflow_cdc_provider.spark.session import context_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
_HEALTHY_S = 60.0
"""A query that lived for as long has gone on, whether or not there was anything to commit."""
_WORKER_VARIABLE = "AIRFLOW_CDC_WORKER"
_MAY_START = frozenset({Phase.HANDED_OFF, Phase.STOPPED, Phase.FAILED})


@dataclass(slots=True)
class _Run:
    """What the threads of a stream job tell each other."""

    ending: threading.Event = field(default_factory=threading.Event)
    """Set when asked to stop, or when fenced."""
    passed_over: PassedOver = field(default_factory=PassedOver)
    error: CdcError | None = None
    """Of the micro-batch that failed last, or the fencing."""

    def end(self, fenced: FencedError | None) -> None:
        """Ask the query to end."""
        self.error = fenced or self.error
        self.ending.set()


def run_stream(job: Job, *, back_off: BackOff | None = None) -> JobResult:
    """Follow the log until the bound, until asked to stop, or until an error no retry mends."""
    started = time.monotonic()
    spec = job.spec
    if context_of(job.spark) is None:
        raise RefusedError(
            "the stream does not run over Spark Connect",
            where="spark",
            remedy="submit the stream job with spark-submit, or use a classic session",
        )
    before = _take_over(job)
    bound = _end_of_log(job) if spec.stream_mode is StreamMode.BOUNDED else None
    job.enter(Phase.STREAMING, from_=_MAY_START)
    run = _Run()
    with ExitStack() as stack:
        heartbeat = Heartbeat(
            job.store, job.source(), job.sink(), on_fenced=run.end, passed_over=run.passed_over
        )
        stack.enter_context(heartbeat)
        stack.enter_context(
            Ownership(job.store, spec.pipeline, spec.generation, on_end=run.end, stop=job.stop)
        )
        folder = stack.enter_context(_checkpoints(spec.work_dir))
        _Queries(job, run, bound, Path(folder), back_off or BackOff()).run_to_the_end()
        with closing(job.sink().open_ledger()) as ledger:
            run.passed_over.commit(ledger)
    split, counts = _committed(job)
    job.store.move(spec.pipeline, spec.generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    return JobResult(
        str(spec.pipeline),
        spec.generation,
        spec.kind.value,
        Outcome.STOPPED if run.ending.is_set() else Outcome.FINISHED,
        seconds=round(time.monotonic() - started, 3),
        tables=len(split.tables),
        changes=counts.changes - before.changes,
        transactions=counts.transactions - before.transactions,
        position=str(split.start),
        consistent=not split.inconsistent,
    )


class _Queries:
    """Runs the query, and runs it again from the ledger while that may help."""

    def __init__(
        self, job: Job, run: _Run, bound: LogPosition | None, folder: Path, back_off: BackOff
    ) -> None:
        self._job = job
        self._run = run
        self._bound = bound
        self._folder = folder
        self._back_off = back_off
        self._task = _task(job)
        self._spark = _own_session(job.spark, self._task)

    def run_to_the_end(self) -> None:
        """Return when the bound is reached or a stop was asked for; raise what no retry mends."""
        failures, failing_since = 0, time.monotonic()
        start: LogPosition | None = None
        while not self._run.ending.is_set():
            began = time.monotonic()
            try:
                stream = _committed(self._job)[0]
                before, start = start, stream.start
                if start != before:
                    failures = 0
                # also where nothing is to be read, and so nobody would look at the log
                held, tables = held_by_stream(stream), self._task.captured
                news = self._job.source().require_same_log(start, held, tables)
                if news:
                    self._tell(news)
                self._run_query(start)
                return
            except SparkLostError:
                raise  # no query of this process will ever start again
            except RetryableError as error:
                now = time.monotonic()
                if now - began >= _HEALTHY_S:  # a position that stands still says nothing then
                    failures = 0
                failing_since = failing_since if failures else now
                failures += 1
                if self._back_off.is_over(now - failing_since):
                    raise
                self._tell_retry(error)
                self._run.ending.wait(self._back_off.wait_s(failures))
        if isinstance(self._run.error, FencedError):
            raise self._run.error

    def _tell_retry(self, error: RetryableError) -> None:
        text = self._job.servers.secrets.scrub(str(error))
        log.warning("stream starts again from the ledger: cause=%s", text)
        self._tell(f"stream restarts: {text}")

    def _tell(self, text: str) -> None:
        with suppress(CdcError):
            self._job.store.tell(self._job.spec.pipeline, text, level="warning")

    def _run_query(self, start: LogPosition) -> None:
        run_id = uuid.uuid4().hex
        self._run.error = None
        self._run.passed_over.log = None  # reading begins where the ledger is
        try:
            query = self._start(start, run_id)
            while not query.awaitTermination(1):
                if self._run.ending.is_set():
                    self._stop(query)
                    return
        except SPARK_FAILURES as failure:
            raise self._reason(failure) from None

    def _start(self, start: LogPosition, run_id: str) -> StreamingQuery:
        reader = self._spark.readStream.format(SOURCE_NAME).option("run", run_id)
        reader = reader.option("start", dumps(position_to_json(start)))
        if self._bound is not None:
            reader = reader.option("until", dumps(position_to_json(self._bound)))
        spec = self._job.spec
        writer = (
            reader.load()
            .writeStream.queryName(f"{spec.pipeline}_{spec.generation}_{run_id[:8]}")
            .option("checkpointLocation", (self._folder / run_id).as_uri())
            .foreachBatch(lambda rows, number: self._apply(rows, Turn(run_id, number)))
        )
        if self._bound is not None:
            writer = writer.trigger(availableNow=True)
        log.info("query starts: pipeline=%s run=%s from=%s", spec.pipeline, run_id, start)
        return writer.start()

    def _apply(self, rows: DataFrame, turn: Turn) -> None:
        """Apply one micro-batch on an executor; an error has to leave, or Spark would commit."""
        passed_over = self._run.passed_over
        with passed_over.micro_batch:
            task, quiet = self._task, passed_over.log
            passed_over.log = None  # unless it comes through: it may have committed

            def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return apply_changes(task, turn, quiet, batches)

            for row in rows.mapInArrow(apply, APPLIED_SCHEMA).collect():
                form = json.loads(row["body"])
                if row["kind"] == ERROR:
                    self._run.error = CdcError.from_json(form)
                    raise self._run.error
                passed_over.log = quiet_log_from_json(form["quiet"])

    def _stop(self, query: StreamingQuery) -> None:
        """Let a micro-batch that is under way end, unless it takes long or may not commit."""
        deadline = time.monotonic() + STOP_GRACE_S
        while self._run.passed_over.micro_batch.locked() and time.monotonic() < deadline:
            if isinstance(self._run.error, FencedError) or not query.isActive:
                break
            time.sleep(0.05)
        with suppress(*SPARK_FAILURES):  # what was cut off is read again some day
            query.stop()
        if isinstance(self._run.error, FencedError):
            raise self._run.error

    def _reason(self, failure: Exception) -> CdcError:
        if self._run.error is not None:
            return self._run.error
        where = f"stream of {self._job.spec.pipeline}"
        return spark_failure(failure, where=where, secrets=self._job.servers.secrets)


def _take_over(job: Job) -> StreamCounts:
    """Fence every older writer, bring the state store in line, and mark what is to catch up.

    Returns what earlier runs have committed.
    """
    spec = job.spec
    job.pipeline()
    with closing(job.sink().open_ledger()) as ledger:
        ledger.take_over(spec.generation)
        reconcile(job.store, ledger, spec.pipeline, spec.generation)
        split, counts = ledger.stream(), ledger.counts()
    if split is None:
        raise _not_handed_off(job)
    for table in split.passed(split.start).inconsistent:
        job.store.mark_table(spec.pipeline, spec.generation, table, TablePhase.CATCHING_UP)
    return counts


def _committed(job: Job) -> tuple[StreamSplit, StreamCounts]:
    """Return the stream as the ledger has it, and what was committed since the hand-off."""
    with closing(job.sink().open_ledger()) as ledger:
        split, counts = ledger.stream(), ledger.counts()
    if split is None:
        raise _not_handed_off(job)
    return split.passed(split.start), counts


def _end_of_log(job: Job) -> LogPosition:
    with closing(job.source().log_end(purpose="end of the log")) as log_end:
        return log_end.now()


def _task(job: Job) -> StreamTask:
    spec = job.spec
    return StreamTask(
        source=job.source(),
        sink=job.sink(),
        reading=LogReading(
            schemas=job.schemas(),
            reader_id=spec.server_id_first,
            max_batch_changes=spec.max_batch_changes,
            zero_dates=spec.zero_dates,
        ),
        max_batch_s=spec.max_batch_s,
    )


def _own_session(spark: SparkSession, task: StreamTask) -> SparkSession:
    """Make a session whose settings fit rows of megabytes: one row in an Arrow batch."""
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


def _not_handed_off(job: Job) -> SnapshotRequiredError:
    return SnapshotRequiredError(
        f"pipeline {job.spec.pipeline} is not handed off",
        where="sink's ledger",
        risk="where the stream starts is unknown",
        remedy="finish the snapshot and hand it off first",
    )
