"""Pipelines that end: at a stop of the stream, or with the snapshot.

The sink's ledger says whether a stream has reached the place that its file names. Then nothing is
left to do: a run says so and succeeds, and asks neither the source nor whether its log still has
that place. What would go on from there, such as rows that are read again, is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from airflow_cdc_provider.columns.source_port import FindsStops, offered
from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    NOTHING_STARTED,
    RefusedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_stops import StopKind, has_ended
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.stream.stream_end import rows_to_read
from airflow_cdc_provider.pipeline.run import Run, lease_is_live, take_over
from airflow_cdc_provider.pipeline.steps.file_diff import dropped, require_unchanged
from airflow_cdc_provider.pipeline.steps.jobs import JobEnd
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, source_of
from airflow_cdc_provider.pipeline.steps.stream_starts import unread_tables


def ended_stream(run: Run) -> StreamSplit | None:
    """Return the stream of a pipeline that has ended as its file says; None if more is to do.

    State store and ledger must know the same plan, and the file pick the same tables.
    """
    stop, state = run.model.stream.stops_at, run.store.pipeline(run.name)
    if not stop or state is None or not state.plan_id:
        return None
    with closing(open_ledger(run)) as ledger:
        if ledger.plan_id() != state.plan_id:
            return None
        stream, stopped = ledger.stream(), ledger.stopped()
    asked = (*run.store.table_requests(run.name), *run.store.to_do(run.name))
    if not has_ended(stream, stop) or stopped or asked or dropped(run):
        return None
    require_unchanged(run)
    _require_no_more_tables(run)
    return stream


def _require_no_more_tables(run: Run) -> None:
    """Refuse a file that picks more tables than it did when the pipeline ended."""
    origin = run.store.origin(run.name)
    more = (
        []
        if origin is None
        else [
            number
            for number, pattern in enumerate(run.model.source.tables)
            if pattern not in origin.tables
        ]
    )
    if more:
        problem = (
            ("source", "tables", more[0]),
            "the pipeline has ended, and this is not among the tables that it ended with",
            "remove it, or `reset`: the next run then reads all tables again and ends again",
        )
        raise run.loaded.refusal(problem)


def end_of_ended(run: Run, stream: StreamSplit) -> JobEnd:
    """Return the end of a stream job that has nothing to do, as the stream has ended."""
    note_ended(run, stream)
    _end_of_killed(run)
    result = JobResult(
        str(run.name),
        run.store.ensure(run.name).generation,
        JobKind.STREAM.value,
        Outcome.FINISHED,
        tables=len(stream.tables),
        position=str(stream.start),
        consistent=run.model.stream.has_stream,
    )
    return JobEnd.without_job(result)


def _end_of_killed(run: Run) -> None:
    """Store that the job has ended that was killed right after it had reached the stop."""
    state = run.store.ensure(run.name)
    if state.phase is not Phase.STREAMING or lease_is_live(run, state):
        return
    with closing(open_ledger(run)) as ledger:
        take_over(run, ledger)  # by which it is at rest


def note_ended(run: Run, stream: StreamSplit) -> None:
    """Store, for status and page, that the stream has ended and where."""
    stop = str(run.model.stream.stops_at)
    form = {"stop": stop, "position": position_to_json(stream.start.bare())}
    known = run.store.note(run.name, NoteKind.ENDED)
    if known is None or dict(known.form) != form:
        run.store.keep_note(run.name, NoteKind.ENDED, form)


def forget_end(run: Run) -> None:
    """Store that the pipeline has not ended, or not any more."""
    known = run.store.note(run.name, NoteKind.ENDED)
    if known is not None and known.form:
        run.store.keep_note(run.name, NoteKind.ENDED, {})


def ended_text(run: Run, stream: StreamSplit) -> str:
    """Say that a pipeline has ended, and where."""
    stop = run.model.stream.stops_at
    if stop.kind is StopKind.SNAPSHOT_ONLY:
        return f"{run.name} has ended: its tables are read, each split as of its own high watermark"
    return f"{run.name} has ended at {stream.start.short}: {stop.words}"


def require_may_end(run: Run) -> None:
    """Refuse a stream with a stop whose tables would not end at one position."""
    stop = run.model.stream.stops_at
    if not stop:
        return
    with closing(open_ledger(run)) as ledger:
        stopped, stream = ledger.stopped(), ledger.stream()
    if stop.kind.has_value and run.store.to_do(run.name):
        raise rows_to_read(stop, stream)
    if stop.kind is StopKind.SNAPSHOT_ONLY and stream is not None:
        raise RefusedError(
            f"the log was to be applied to {run.name}, which is handed off",
            where="stream.mode: snapshot_only",
            risk=NOTHING_STARTED,
            remedy="write mode: bounded with stop: consistent, or `reset` it: the next run reads "
            "all tables again",
        )
    if stopped:
        names = ", ".join(str(each.table) for each in stopped)
        raise TablesStoppedError(
            f"the stream leaves {names} alone, and is to end where all tables are of one position",
            where=f"stream.stop: {stop}",
            risk=NOTHING_STARTED,
            remedy="write stop: never, and `resume` these tables with --table, or `remove` them; "
            "then write the stop again",
        )


def require_stop_ahead(run: Run) -> None:
    """Refuse a stop that is in the log already, before rows are read that would be beyond it.

    Of a GTID set that is told only by the watermarks of what was read.
    """
    stop = run.model.stream.stops_at
    if stop.kind not in {StopKind.POSITION, StopKind.TIMESTAMP} or run.model.stream.starts_at:
        return  # without a snapshot the stop is compared with the start
    source = source_of(run)
    with closing(source.log_end(purpose="end of the log")) as log_end:
        end = log_end.now()
    offered(source, FindsStops).stop_place(stop, end, end)


def require_streams_on(run: Run, what: str) -> None:
    """Refuse what needs a stream that goes on: rows that are read now are of a place behind."""
    stop = run.model.stream.stops_at
    if not stop:
        return
    ends = "has no stream" if stop.kind is StopKind.SNAPSHOT_ONLY else "ends at a stop"
    raise RefusedError(
        f"{what} needs a stream that goes on, and {run.name} {ends}",
        where=f"stream.{'mode' if stop.kind is StopKind.SNAPSHOT_ONLY else 'stop'}: {stop}",
        risk=NOTHING_CHANGED,
        remedy="write stop: never, and a mode that streams; or `reset` the pipeline: the next run "
        "reads all tables again",
    )


def why_not_comparable(run: Run, tables: Collection[TableId] | None = None) -> str:
    """Explain why source and sink, or some tables, cannot be compared; empty if they can."""
    stop = run.model.stream.stops_at
    if stop.kind is StopKind.SNAPSHOT_ONLY:
        return (
            "the sink has each split as of its own high watermark (`stream.mode: snapshot_only`), "
            "and the source goes on: there is no moment at which they would be equal"
        )
    if stop:
        return (
            f"the sink is as of the stop (`stream.stop`: {stop.words}), and the source goes on: "
            "what differs may have changed since"
        )
    unread = set(unread_tables(run)) & (set(tables) if tables is not None else _planned(run))
    if unread:
        return (
            f"the stream began without a snapshot, and {', '.join(map(str, sorted(unread)))} "
            "began without rows: only `resync` of a whole table reads what was not changed since"
        )
    return ""


def _planned(run: Run) -> set[TableId]:
    """Return the tables of the plan."""
    return {state.table for state in run.store.tables(run.name)}


def require_comparable(run: Run, tables: Collection[TableId] | None = None) -> None:
    """Refuse to compare where the two sides, or some tables, are not to be equal."""
    if why := why_not_comparable(run, tables):
        raise RefusedError(
            f"source and sink of {run.name} cannot be compared: {why}",
            where=f"stream of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="write stop: never and mode: bounded, `run` it, and `verify` then"
            if run.model.stream.stops_at
            else "`resync` these tables, or name others with --table; write existing_rows: keep "
            "under sink if the sink had the source's rows as of stream.start",
        )
