"""Whether a catch-up has anything to do: where it has not, no Spark is started.

It has nothing to do where the ledger's position is at the end of the source's log and every table
is consistent there, but for those that a person has paused. The first position after a snapshot may
have no place in the log; where it has all that the log held at the splits' H, it is at the last H's
place as well. The source is then asked what a stream job would ask of it: whether the log is still
the one that was read, and whether the server has all that the sink holds. Whatever speaks against
it, an answer that does not come too, is left to the job, which tells it and tries again as it
always does.

A distributed transaction that is prepared and not committed does not matter here. The position has
passed its rows, and its commit will be new log, whose reader looks for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing

from airflow_cdc_provider.columns.source_port import KnowsReach
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.row_counts import NO_COUNTS, TableCounts
from airflow_cdc_provider.core.stream_counts import StreamCounts
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.engine.stream.heartbeat import note_reach
from airflow_cdc_provider.engine.stream.table_counts import count_tables
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, sink_of, source_of

log = logging.getLogger(__name__)
_MAY_STREAM = frozenset({Phase.HANDED_OFF, Phase.STREAMING, Phase.STOPPED, Phase.FAILED})


def nothing_to_stream(run: Run, generation: int) -> JobResult | None:
    """Return the result of a stream job with nothing to do; None if one must be started.

    The state store is then left as that job would leave it, and the lease is given back.
    """
    started = time.monotonic()
    with closing(open_ledger(run)) as ledger:
        stored, counts, stopped = ledger.stream(), ledger.counts(), ledger.stopped()
        changed = NO_COUNTS if stored is None else count_tables(ledger, stored)
    state = run.store.ensure(run.name)
    if stored is None or state.phase not in _MAY_STREAM:
        return None
    if not all(each.is_paused for each in stopped):
        return None  # a job tries these again
    stream = stored.passed(stored.start)
    end = _end_if_reached(run, stream, stored.place)
    if end is None:
        return None
    _tell(run, generation, _state(run, stream, counts, end), changed)
    return JobResult(
        str(run.name),
        generation,
        JobKind.STREAM.value,
        Outcome.FINISHED,
        seconds=round(time.monotonic() - started, 3),
        tables=len(stream.tables),
        position=str(stream.start),
        consistent=not stopped,
    )


def _end_if_reached(run: Run, stream: StreamSplit, at: LogPosition) -> LogPosition | None:
    """Return the log's end if `at` has reached it; None also if that is not sure."""
    if stream.inconsistent:
        return None
    source = source_of(run)
    try:
        with closing(source.log_end(purpose="end of the log")) as log_end:
            end = log_end.now()
            if isinstance(log_end, KnowsReach):
                note_reach(run.store, run.name, log_end, at)
        if not at.reaches(end):
            return None
        captured = [progress.table for progress in stream.tables]
        news = source.require_same_log(at, held_by_stream(stream), captured)
        sink = sink_of(run)
        if isinstance(sink, CommitsLater) and sink.has_unpublished():
            return None
    except CdcError as error:
        log.info("left to the stream job: pipeline=%s cause=%s", run.name, error.what)
        return None
    return None if news else end


def _state(run: Run, stream: StreamSplit, counts: StreamCounts, end: LogPosition) -> StreamState:
    """Return the stream's state at the log's end, without lag."""
    return StreamState(
        position=stream.start,
        source_end=end,
        batch=counts.batches,
        changes=counts.changes,
        transactions=counts.transactions,
        lag_us=0,
        heartbeat_us=run.store.now_us(),
    )


def _tell(
    run: Run, generation: int, told: StreamState, changed: Mapping[TableId, TableCounts]
) -> None:
    """Store what a stream job without work would, and give the lease back."""
    store, name = run.store, run.name
    for table in store.tables(name):
        if table.table in changed and table.phase is not TablePhase.CONSISTENT:
            store.mark_table(name, generation, table.table, TablePhase.CONSISTENT)
    store.beat(name, generation, told, counts=changed)
    phase = store.ensure(name).phase
    if phase is not Phase.STREAMING:
        store.move(name, generation, expected=phase, to=Phase.STREAMING)
    store.move(name, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    if isinstance(sink_of(run), CommitsLater):  # their tables lack nothing
        store.keep_note(name, NoteKind.PUBLISHED, {"at_us": told.heartbeat_us})
    store.tell(name, f"nothing to stream: the sink has the log up to its end at {told.source_end}")
    store.release_lease(name, generation)
