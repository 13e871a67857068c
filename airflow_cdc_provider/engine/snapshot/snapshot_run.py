"""Reading a snapshot, whoever runs the readers: readers pull splits until none is left.

Readers are few and long: a split costs no start of a task, and the number of connections on the
source is the number of readers times what one needs.

A reader that dies takes nothing with it: its split is given out again as soon as its connection
to the driver ends. If nobody starts the reader again, the job waits a little and runs another
round of readers for what is left. Only what can be the loss of a reader is met in this way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Protocol

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    IntegrityError,
    RetryableError,
    SparkLostError,
)
from airflow_cdc_provider.core.history import AppliedThrough, held_by_reports
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.split_size import SplitSize
from airflow_cdc_provider.core.stream_split import smallest
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.ownership import Ownership
from airflow_cdc_provider.engine.readings import split_reading
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.retries import Retries
from airflow_cdc_provider.engine.server_looks import watched_servers
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.assigner_server import AssignerServer, DriverPlace
from airflow_cdc_provider.engine.snapshot.planner import Planner
from airflow_cdc_provider.engine.snapshot.reader_task import ReaderTask
from airflow_cdc_provider.engine.snapshot.split_failures import SplitFailures
from airflow_cdc_provider.engine.throttle.load_watch import LoadWatch
from airflow_cdc_provider.engine.throttle.throttle import Throttle

log = logging.getLogger(__name__)

MOST_ROUNDS = 5
_BETWEEN_ROUNDS = BackOff(first_s=1.0)
_MAY_START = frozenset({Phase.PLANNING, Phase.FAILED})


class Readers(Protocol):
    """Runs snapshot readers, in this process or on Spark."""

    @property
    def driver(self) -> DriverPlace:
        """Where the driver listens for the readers."""

    @property
    def at_once(self) -> int | None:
        """How many readers run at the same time; None if that is not known."""

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        """Run `count` readers to their end; return the worst error of theirs."""


def worst(errors: Sequence[CdcError]) -> CdcError | None:
    """Return the error that decides how the round ends: a fence first; None if there is none."""
    return min(errors, key=lambda error: not isinstance(error, FencedError), default=None)


def run_snapshot(job: Job, readers: Readers, *, back_off: BackOff | None = None) -> JobResult:
    """Read every split that is not finished, until all are, or until asked to stop."""
    started = time.monotonic()
    while True:
        assigner, begins_again = _own_and_read(job, readers, back_off)
        if assigner.queue.stopped_by is not None:
            raise assigner.queue.stopped_by
        if not begins_again:
            if job.sink().abilities.begins_tables_again:
                _set_changed_aside(job, assigner)
            _raise_failures(job, assigner)
            return _result(job, assigner, started)


def _own_and_read(
    job: Job, readers: Readers, back_off: BackOff | None
) -> tuple[SplitAssigner, bool]:
    """Own the pipeline and read until nothing is left or a stop; True to begin again."""
    spec = job.spec
    begins_again = job.sink().abilities.begins_tables_again
    assigner = SplitAssigner(job.store, spec.pipeline, spec.generation, begins_again=begins_again)
    throttle = assigner.throttle = Throttle(
        spec.throttle, split_rows=spec.split_rows, most_bytes=spec.max_split_bytes
    )
    ending, again = threading.Event(), threading.Event()

    def end(fenced: FencedError | None) -> None:
        assigner.queue.stop(fenced)
        ending.set()

    def begin_again() -> None:
        again.set()
        end(None)

    with Ownership(
        job.store,
        spec.pipeline,
        spec.generation,
        on_end=end,
        on_restart=begin_again,
        stop=job.stop,
    ):
        retries = Retries(job, ending, back_off)
        assigner.failures = SplitFailures(retries.outages, retries.warn)
        retries.outages.tell()  # which process is at work
        try:
            with watched_servers(job, retries.outages):
                each = retries.call(lambda: _begin(job))
                if each is not None:
                    # queue.stop takes any error: what reads then ends, what is read stays
                    with LoadWatch(job, throttle, on_critical=assigner.queue.stop, always=True):
                        _read(job, assigner, readers, each, ending)
        except RetryableError as error:
            if not ending.is_set():
                raise
            log.warning("asked to stop, so this is not waited for: %s", error)
        finally:
            retries.outages.end()
    return assigner, again.is_set()


def _begin(job: Job) -> int | None:
    """Take the pipeline over; return connections per reader, None if nothing is to be read."""
    spec = job.spec
    plan_id = job.pipeline().plan_id
    with closing(job.sink().open_ledger()) as ledger:
        if not ledger.generation():  # the plan was an owner's: it is not where that was made
            ledger.require_owner()
        ledger.take_over(spec.generation)
        if not ledger.plan_id():
            ledger.start_plan(plan_id)
        correction = reconcile(job.store, ledger, spec.pipeline, spec.generation)
        held = held_by_reports(ledger.reports())
    if not correction.same_plan:
        raise _another_plan(job, plan_id)
    if correction.handed_off:
        log.info("nothing to read, the stream has taken over: pipeline=%s", spec.pipeline)
        return None
    job.enter(Phase.SNAPSHOT, from_=_MAY_START)
    if held:
        _check_source(job, held)
    return job.source().connections_a_reader(backfill=spec.backfill)


def _read(
    job: Job, assigner: SplitAssigner, readers: Readers, each: int, ending: threading.Event
) -> None:
    """Run the readers, and beside them the planner of splits."""
    spec = job.spec
    assigner.load()
    for table in job.store.tables(spec.pipeline):
        if table.phase in {TablePhase.PLANNED, TablePhase.FAILED}:
            job.store.mark_table(spec.pipeline, spec.generation, table.table, TablePhase.SNAPSHOT)
            if table.planning_done:
                assigner.note_if_read(table.table)
    tables = job.store.tables(spec.pipeline)
    size = SplitSize(spec.split_rows, spec.split_bytes)
    planner = Planner(
        assigner,
        [table for table in tables if table.phase is not TablePhase.CHANGED],
        lambda table: job.source().boundaries(size.rows_of(table.plan)),
        stored=lambda table: job.store.splits(spec.pipeline, table.table),
    )
    with planner, AssignerServer(assigner, readers.driver) as server:
        task = _task(job, server)
        count = reader_count(job, readers.at_once, each, planning=planner.is_needed)
        log.info("snapshot starts: pipeline=%s readers=%d", spec.pipeline, count)
        _run_rounds(job, assigner, lambda: readers.run(task, count), ending)


def _check_source(job: Job, held: Sequence[AppliedThrough]) -> None:
    """Require that the source's log has what published splits contain; record a failover."""
    read = smallest(each.position for each in held)
    news = job.source().require_same_log(read, held, job.schemas())
    if news:
        job.store.tell(job.spec.pipeline, news, level="warning")


def reader_count(job: Job, at_once: int | None, each: int, *, planning: bool) -> int:
    """Return how many readers keep within `max_connections` and what the source lets read at once.

    With backfill a reader counts two connections, one for rows and one for the log: to open the
    second only when a split has something to replay would break the promise when it matters. The
    planner holds one while it plans. More readers than run at once would only wait.
    """
    count = (job.spec.max_connections - int(planning)) // each
    count = min(count, job.source().most_readers(job.spec.source_options) - 1)
    return max(1, count if at_once is None else min(count, at_once))


def _task(job: Job, server: AssignerServer) -> ReaderTask:
    """Return the settings of the readers."""
    plans = {plan.schema.table: plan for plan in job.plans()}
    schemas = {table: plan.schema for table, plan in plans.items()}
    return ReaderTask(
        source=job.source(),
        sink=job.sink(),
        assigner=server.address,
        secrets=job.servers.secrets,
        plans=plans,
        salts=job.servers.salts,
        reading=split_reading(job.spec, schemas, reader=0, backfill=job.spec.backfill),
    )


def _run_rounds(
    job: Job,
    assigner: SplitAssigner,
    run_readers: Callable[[], CdcError | None],
    ending: threading.Event,
) -> None:
    """Run rounds of readers until the queue is empty; a round ends early if a reader broke."""
    for round_number in range(1, MOST_ROUNDS + 1):
        error = run_readers()
        if isinstance(error, FencedError):
            raise error
        if assigner.queue.is_over:
            return
        if error is None or round_number == MOST_ROUNDS:
            raise error or _left_over(job)
        if isinstance(error, SparkLostError) or not isinstance(error, RetryableError):
            raise error
        wait_s = _BETWEEN_ROUNDS.wait_s(round_number)
        log.warning("readers were lost: round=%d next_in_s=%g %s", round_number, wait_s, error)
        ending.wait(wait_s)


def _set_changed_aside(job: Job, assigner: SplitAssigner) -> None:
    """Mark failed tables as changed, if their definition is not the planned one any more."""
    failed, planned = _failed(assigner), job.schemas()
    if not failed:
        return
    with suppress(CdcError), job.source().catalogue() as catalogue:
        for table, now in catalogue.schemas(sorted(failed)).items():
            if not now.is_defined_as(planned[table]):
                assigner.set_aside(table)


def _failed(assigner: SplitAssigner) -> dict[TableId, CdcError]:
    """Return the tables that failed and were not changed, with their errors."""
    failed = assigner.queue.failed_tables
    return {table: failed[table] for table in failed if table not in assigner.changed}


def _raise_failures(job: Job, assigner: SplitAssigner) -> None:
    """Raise one error for all tables that failed."""
    failed = _failed(assigner)
    if not failed:
        return
    table, error = next(iter(sorted(failed.items())))
    what = f"{len(failed)} of the tables cannot be read, the first is {table}: {error.what}"
    remedy = "mend that and run again; only what is missing is read"
    raise type(error)(
        what,
        "; ".join(filter(None, (error.where, f"snapshot of {job.spec.pipeline}"))),
        "none: the other tables are read, and nothing of a failed split was published",
        "; ".join(filter(None, (error.remedy, remedy))),
    )


def _result(job: Job, assigner: SplitAssigner, started: float) -> JobResult:
    """Return the result of the snapshot job."""
    progress = assigner.progress
    return JobResult(
        str(job.spec.pipeline),
        job.spec.generation,
        job.spec.kind.value,
        Outcome.STOPPED if assigner.queue.is_stopped else Outcome.FINISHED,
        seconds=round(time.monotonic() - started, 3),
        tables=len(job.plans()),
        splits=progress.splits,
        rows=progress.rows,
        changes=progress.changes,
    )


def _another_plan(job: Job, plan_id: str) -> IntegrityError:
    """Return the error for a sink that has splits of another plan."""
    return IntegrityError(
        f"the sink holds another plan than {plan_id}, which the state store has",
        where=f"ledger of {job.spec.pipeline}",
        risk="splits of two plans would be mixed",
        remedy="plan again; the plan is then made anew in both places",
    )


def _left_over(job: Job) -> RetryableError:
    """Return the error for a round that left splits unread without a reason."""
    return RetryableError(
        "the readers ended and left splits behind",
        where=f"snapshot of {job.spec.pipeline}",
        risk="none: what is published stays",
        remedy="run again; it goes on with what is left",
    )
