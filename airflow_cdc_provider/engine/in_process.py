"""Small jobs in the process that wants them done: no Spark, and otherwise the same work.

A few changes, or a few rows, take less than Spark's start. The rules are those of any job (one
owner, heartbeats, retries, refusals), and so is what reads and applies: only the hands that a job's
rows pass through are not Spark's. What is committed is in the sink's ledger, where any job goes on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.engine.job import Job, remembered_failure
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.ownership import kept_lease
from airflow_cdc_provider.engine.snapshot.reader_task import ReaderTask, read_splits
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot, worst
from airflow_cdc_provider.engine.stream.follow import Following, run_stream
from airflow_cdc_provider.engine.stream.stream_task import (
    BATCH_BYTES,
    Kept,
    StreamTask,
    Turn,
    apply_changes,
    read_log,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.sink_port import ChangeSink
    from airflow_cdc_provider.columns.source_port import TailReader
    from airflow_cdc_provider.core.positions import LogPosition


def run_in_process(job: Job) -> JobResult:
    """Run a snapshot or a bounded stream to its end, or until it is asked to stop."""
    spec = job.spec
    try:
        with kept_lease(job.store, spec.pipeline, spec.generation), remembered_failure(job):
            if spec.kind is JobKind.SNAPSHOT:
                return run_snapshot(job, OwnReader())
            return run_stream(job, OwnFollower)
    except CdcError as error:
        raise error.rewritten(job.servers.secrets.scrub) from None


class OwnReader:
    """One snapshot reader, in the thread that waits for it."""

    driver_host = "127.0.0.1"
    at_once = 1

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        """Run the readers, one after the other."""
        rows = (row for number in range(count) for row in _rows(read_splits(task, number)))
        return worst([CdcError.from_json(json.loads(row["error"])) for row in rows])


class OwnFollower:
    """Follows the log up to the bound, one micro-batch after the other."""

    def __init__(self, task: StreamTask, following: Following) -> None:
        self._task = task
        self._following = following

    def follow(self, start: LogPosition) -> None:
        """Read and apply from a start."""
        reader: Kept[TailReader] = Kept()
        sink: Kept[ChangeSink] = Kept()
        run = uuid.uuid4().hex
        with closing(reader), closing(sink):
            for number, end in enumerate(self._ends(start)):
                turn = Turn(run, number)
                self._apply(
                    turn, self._until_asked(read_log(self._task, turn, end, kept=reader)), sink
                )

    def _ends(self, start: LogPosition) -> Iterator[LogPosition]:
        """Yield where each micro-batch ends."""
        bound = self._following.bound
        with closing(self._task.source.log_end(purpose="end of the log")) as log_end:
            while not self._following.ending.is_set():
                found = log_end.next_end(start, bound=bound, batch_bytes=BATCH_BYTES)
                if found.end is start:
                    return
                start, bound = found.end, found.bound
                yield start

    def _apply(self, turn: Turn, rows: Iterable[pa.RecordBatch], kept: Kept[ChangeSink]) -> None:
        passed_over = self._following.passed_over
        with passed_over.micro_batch:
            applied = apply_changes(self._task, turn, passed_over.take(), rows, kept=kept)
            self._following.note((row["kind"], row["body"]) for row in _rows(applied))

    def _until_asked(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand rows on until the end is asked for; a transaction half-way is rolled back."""
        for row in rows:
            if self._following.ending.is_set():
                return
            yield row


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, str]]:
    for batch in batches:
        yield from batch.to_pylist()
