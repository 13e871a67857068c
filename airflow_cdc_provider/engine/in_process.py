"""Small jobs in the process that wants them done: no Spark, and otherwise the same work.

A few changes, or a few rows, take less than Spark's start. The rules are those of any job (one
owner, heartbeats, retries, refusals), and so is what reads and applies: only the hands that a job's
rows pass through are not Spark's. What is committed is in the sink's ledger, where any job goes on.
"""

from __future__ import annotations

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.engine.job import Job, remembered_failure
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.ownership import kept_lease
from airflow_cdc_provider.engine.snapshot.assigner_server import DriverPlace
from airflow_cdc_provider.engine.snapshot.reader_task import ReadersEnd, ReaderTask, read_splits
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot, worst
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower


def run_in_process(job: Job, *, carries_out: bool = False) -> JobResult:
    """Run a snapshot, or a stream that may also do the open requests (`carries_out`), right here.

    It returns when the job has ended or was asked to stop. With `carries_out` the stream ends when
    no open request of the pipeline is left.
    """
    spec = job.spec
    try:
        with kept_lease(job.store, spec.pipeline, spec.generation), remembered_failure(job):
            if spec.kind is JobKind.SNAPSHOT:
                return run_snapshot(job, OwnReader())
            return run_stream(job, OwnFollower, carries_out=carries_out)
    except CdcError as error:
        raise error.rewritten(job.servers.secrets.scrub) from None


class OwnReader:
    """Runs snapshot readers in the calling thread, one after the other, without Spark."""

    driver = DriverPlace("127.0.0.1")
    at_once = 1

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        """Run the readers, one after the other."""
        batches = (batch for number in range(count) for batch in read_splits(task, number))
        rows = [row for batch in batches for row in batch.to_pylist()]
        return worst(ReadersEnd.of(rows).errors)
