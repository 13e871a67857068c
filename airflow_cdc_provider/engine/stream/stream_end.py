"""Where one run of a stream ends: at the end of the log, or where the stream ends for good.

The place of a stop is looked for once and kept in the sink's ledger, before anything up to it is
applied: so a run that follows a killed one ends at the same place. Until the log has the place, a
run ends where the log ends.
"""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.columns.source_port import FindsStops, offered
from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    NotConsistentError,
    RefusedError,
    SourceIdentityError,
)
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_stops import StopKind, StreamStop, has_ended
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.ledger.ledger import Ledger


def end_of_log(job: Job) -> LogPosition:
    """Return the position at the end of the source's log."""
    with closing(job.source().log_end(purpose="end of the log")) as log_end:
        return log_end.now()


def end_of_run(job: Job) -> tuple[LogPosition, bool]:
    """Return where a bounded run ends, and whether the stream ends there for good."""
    stop, end = job.spec.stops_at, end_of_log(job)
    if not stop:
        return end, False
    with closing(job.sink().open_ledger()) as ledger:
        stream = ledger.stream()
        if stream is None:
            return end, False
        stream = stream.passed(stream.start)
        place = _kept(stream, stop) or _found(job, stop, stream, end)
        if (stream.stop, stream.stop_by) != (place, str(stop) if place else ""):
            ledger.keep_stop(place, str(stop) if place else "")
    if place is None:
        return end, False
    if place.server != end.server:
        raise SourceIdentityError(
            f"the stream is to end at {place}, and the log of {end.server} answers",
            where=f"stream.stop: {stop}",
            risk="none: nothing was applied; another server's log has the place elsewhere",
            remedy="write stop: never until a run has caught up with this server, then the place "
            "in its log",
        )
    return place, True


def forget_other_stop(job: Job, ledger: Ledger, stream: StreamSplit | None) -> None:
    """Forget the place of another stop than the file has now: the stream may pass it from here on.

    Where the file has that one again, it is looked for anew, and refused if the sink is beyond it.
    """
    name = job.spec.pipeline
    if stream is None or stream.stop is None or stream.stop_by == str(job.spec.stops_at):
        return
    ledger.keep_stop(None)
    told = job.store.note(name, NoteKind.ENDED)
    if told is not None and told.form:
        job.store.keep_note(name, NoteKind.ENDED, {})


def note_end(job: Job, stream: StreamSplit) -> None:
    """Store, for status and page, where the stream has ended, if it has."""
    stop = job.spec.stops_at
    if has_ended(stream, stop):
        form = {"stop": str(stop), "position": position_to_json(stream.start.bare())}
        job.store.keep_note(job.spec.pipeline, NoteKind.ENDED, form)


def _kept(stream: StreamSplit, stop: StreamStop) -> LogPosition | None:
    """Return the place that the ledger keeps for a stop, None if it keeps none or another's.

    A table whose rows are still to be read would be of another position there.
    """
    return stream.stop if stream.stop_by == str(stop) and not stream.unread else None


def _found(job: Job, stop: StreamStop, stream: StreamSplit, end: LogPosition) -> LogPosition | None:
    """Find the place of a stop in the log; None if it is not there yet."""
    if stop.kind is StopKind.SNAPSHOT_ONLY:
        raise RefusedError(
            f"the log was to be applied to {job.spec.pipeline}, whose file lets it have no stream",
            where="stream.mode: snapshot_only",
            risk=NOTHING_CHANGED,
            remedy="`run` it as the file says now",
        )
    if stream.unread or job.store.to_do(job.spec.pipeline):
        if stop.kind is StopKind.CONSISTENT:
            return None  # once their rows are read
        raise rows_to_read(stop, stream)
    if stop.kind is StopKind.CONSISTENT:
        return stream.reach
    is_start = stream.began is not None and stream.began.at == stream.reach
    source = offered(job.source(), FindsStops)
    return source.stop_place(stop, stream.reach, end, is_start=is_start)


def rows_to_read(stop: StreamStop, stream: StreamSplit | None) -> NotConsistentError:
    """Return the error for rows that would be read as of a place behind the stop."""
    unread = () if stream is None else stream.unread
    tables = ", ".join(map(str, unread)) or "what requests name"
    return NotConsistentError(
        f"rows are still to be read: {tables}; they would be of a place behind the stop",
        where=f"stream.stop: {stop}",
        risk=NOTHING_CHANGED,
        remedy="write stop: consistent, which reads them first, or stop: never; `cancel` the "
        "requests that are not needed",
    )
