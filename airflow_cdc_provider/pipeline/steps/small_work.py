"""Small work: done here, in the process that asks for it, instead of by a Spark job.

Spark's start takes longer than a few changes or rows do, so a bounded stream and a snapshot are
first measured:

- a stream is small if at most 64 MB of log lie before the end of the source's;
- a snapshot is small if what is left of it are at most 200,000 rows of at most 50 tables. They are
  counted by looking for the boundaries of small splits, and one by one where a key bounds none; the
  server's own estimates are not asked.

What cannot be told is not small. Nothing else depends on the answer: the work, its rules and what
it leaves behind are the same (`engine.in_process`), and the next job may be of either kind. Where
`spark.always` is set in the file, nothing is small.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.source_port import KnowsReach, Source, Verifies, offered
from airflow_cdc_provider.core.errors import CdcError, SnapshotRequiredError
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.core.keys import Key, KeyRange, bounding_whole
from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.jobs import (
    SMALL_LOG_BYTES,
    STOP_PATIENCE_S,
    JobEnd,
    SparkOptions,
    patient,
)
from airflow_cdc_provider.pipeline.steps.sink import (
    open_ledger,
    require_log_goes_on,
    source_of,
)
from airflow_cdc_provider.systems import registry

if TYPE_CHECKING:
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.stream_split import StreamSplit
    from airflow_cdc_provider.core.table_schema import TableSchema
    from airflow_cdc_provider.engine.job import Job

log = logging.getLogger(__name__)

SMALL_ROWS = 200_000
SMALL_TABLES = 50
_ROWS_A_LOOK = 10_000


class InProcessJob:
    """A job that a thread of this process does, without Spark."""

    pid: int | None = None
    log: Path | None = None
    """It has no process of its own, and tells what it does where this one does."""

    def __init__(self, spec: JobSpec, work: Callable[[threading.Event], JobResult]) -> None:
        self.spec = spec
        self._work = work
        self._stop = threading.Event()
        self._ended: Future[JobResult] = Future()
        # a thread that does not end, because a server does not answer, keeps no process alive
        threading.Thread(target=self._run, name="cdc-job", daemon=True).start()

    def wait(self, *, on_tick: Callable[[], None] = lambda: None, every_s: float = 1.0) -> JobEnd:
        """Wait for the job's end, calling `on_tick` now and then; raise a failed job's error.

        If this is interrupted the job is stopped.
        """
        on_tick = patient(on_tick)
        try:
            while not wait_for([self._ended], timeout=every_s).done:
                on_tick()
        except BaseException:
            self.stop()
            raise
        return JobEnd.done_here(self._ended.result())

    def stop(self, *, patience_s: float = STOP_PATIENCE_S) -> None:
        """Ask the job to end, and wait up to `patience_s`."""
        self._stop.set()
        wait_for([self._ended], timeout=patience_s)

    def _run(self) -> None:
        """Do the job's work, and keep its result or error."""
        try:
            self._ended.set_result(self._work(self._stop))
        except BaseException as failure:  # noqa: BLE001 - raised again by whoever waits
            self._ended.set_exception(failure)


def done_here(run: Run, spec: JobSpec, options: SparkOptions) -> InProcessJob | None:
    """Start the job in this process if it has little to read, else return None."""
    if options.always:
        return None
    try:
        size = _rows_left(run) if spec.kind is JobKind.SNAPSHOT else _log_left(run)
    except CdcError as error:
        log.info("how much there is to do is not known: pipeline=%s cause=%s", run.name, error.what)
        return None
    if not size:
        return None
    run.store.tell(
        run.name,
        f"{spec.kind.value} without Spark under generation {spec.generation}: {size} to read",
    )
    return InProcessJob(spec, lambda stop: _work(run, spec, stop))


def start_requests_in_process(run: Run, spec: JobSpec) -> InProcessJob | None:
    """Start the stream job in this process if a request is open, else return None.

    However much log waits: requests are carried out beside a stream that this process follows.
    """
    asked = run.store.to_do(run.name)
    if not asked:
        return None
    names = ", ".join(request.request_id for request in asked)
    run.store.tell(run.name, f"carrying out {names} under generation {spec.generation}")
    return InProcessJob(spec, lambda stop: _work(run, spec, stop, carries_out=True))


def _work(
    run: Run, spec: JobSpec, stop: threading.Event, *, carries_out: bool = False
) -> JobResult:
    """Run the job in this process."""
    # Arrow and the decoders are not loaded by commands that only look
    from airflow_cdc_provider.engine.in_process import run_in_process  # noqa: PLC0415

    return run_in_process(_job(run, spec, stop), carries_out=carries_out)


def _is_refused(run: Run, stream: StreamSplit) -> bool:
    """Tell whether the source's log does not continue from the stream's position."""
    try:
        require_log_goes_on(run, stream)
    except SnapshotRequiredError:
        return True
    return False


def _job(run: Run, spec: JobSpec, stop: threading.Event) -> Job:
    """Make the job from a run and a specification."""
    from airflow_cdc_provider.engine.job import Job, JobServers  # noqa: PLC0415 - see above

    at = run.servers
    servers = JobServers(at.source, at.sink, at.state_dsn, at.secrets, at.replicas, at.salts)
    return Job(spec, servers, run.store, registry, stop)


def _log_left(run: Run) -> str:
    """Describe how much log is left to read; empty if it is much or not known."""
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    if stream is None:
        return ""
    with closing(source_of(run).log_end(purpose="end of the log")) as log_end:
        size, at_most = log_end.bytes_behind(stream.start), ""
        if size is None and isinstance(log_end, KnowsReach):  # the position names no file
            size, at_most = log_end.reach(stream.start).kept_bytes, "at most "
    if (size is None or at_most) and _is_refused(run, stream):
        return "no log that goes on from the stream's position"  # no Spark has to start for that
    return f"{at_most}{size:,} bytes of log" if size is not None and size <= SMALL_LOG_BYTES else ""


def _rows_left(run: Run) -> str:
    """Describe how many rows are left to read; empty if they are many or not known.

    A table's last split has no end, so rows that came after it was planned are its own: they are
    counted, as the rows of a table that is not planned yet.
    """
    done = {SplitStatus.FINISHED, SplitStatus.CUT}
    tables = {
        state.table: state
        for state in run.store.tables(run.name)
        if state.phase is not TablePhase.CHANGED
    }
    unread = [
        each.split
        for each in run.store.splits(run.name)
        if each.status not in done and each.split.table in tables
    ]
    size = run.model.split_size
    rows = sum(
        size.rows_of(tables[split.table].plan) for split in unread if split.keys.end is not None
    )
    starts = {split.table: split.keys.start for split in unread if split.keys.end is None}
    starts |= {table: None for table, state in tables.items() if not state.planning_done}
    schemas = {table: tables[table].plan.schema for table in starts}
    if len(schemas) > SMALL_TABLES:
        return ""
    source = source_of(run)
    with source.catalogue() as catalogue:
        now = catalogue.schemas([*schemas])
    for table in [*schemas]:
        if table in now and not now[table].is_defined_as(schemas[table]):
            del schemas[table]  # it was changed, and is not read before it begins again
    uncut = [schemas.pop(t) for t in [*schemas] if not bounding_whole(schemas[t].key_kinds)]
    rows += _rows_counted(source, uncut, starts)
    with source.boundaries(_ROWS_A_LOOK) as boundaries:
        for table, schema in schemas.items():
            looks = max(0, SMALL_ROWS - rows) // _ROWS_A_LOOK + 1
            rows += sum(_ROWS_A_LOOK for _ in islice(boundaries(schema, starts[table]), looks))
    if rows > SMALL_ROWS:
        return ""
    # behind the last boundary that was found, or before the first one, are fewer rows than a look's
    most = rows + _ROWS_A_LOOK * len(schemas)
    tables_left = {split.table for split in unread} | starts.keys()
    of = counted(len(tables_left), "table")
    return f"at most about {most:,} rows of {of}" if tables_left else "no rows"


def _rows_counted(
    source: Source, tables: Sequence[TableSchema], starts: Mapping[TableId, Key | None]
) -> int:
    """Count the rows from a start on of tables whose keys bound no ranges, or that have none.

    No further than to more than are small.
    """
    rows = 0
    if tables:
        with closing(offered(source, Verifies).open_side()) as side:
            for schema in tables:
                left = KeyRange(starts[schema.table])
                counts = side.counts(schema, schema.primary_key)
                rows += counts.count(left, most=max(0, SMALL_ROWS - rows) + 1)
    return rows
