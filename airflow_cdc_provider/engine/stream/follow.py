"""Following the log into the sink, whoever does the work: the rules of every stream job.

The driver decides nothing about positions: reading starts where the sink's ledger says, and every
commit moves the ledger together with the rows. So whatever fails, following is simply started
again from the ledger: at once when it went forward before, else after growing waits, and not for
ever. A server that is away while the job begins or ends is waited for in the same way. What trying
again does not mend ends the job with its named error.

The ledger alone is needed for that: while the state store is away the job goes on with the plan it
began with, and a newer owner is known by the generation in the ledger. Only what changes the plan
waits for the store: a table whose definition changed, and one that stops.

A bounded run reads to what was the end of the log when the job began, also when it starts again; a
continuous one ends when it is asked to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from airflow_cdc_provider.core.backoff import FOR_A_DAY, BackOff
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    SnapshotRequiredError,
    SparkLostError,
    TableChangedError,
)
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.jobspec import StreamMode
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_counts import StreamCounts
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.outages import Part
from airflow_cdc_provider.engine.ownership import Ownership
from airflow_cdc_provider.engine.readings import log_reading
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.requests.worker import RequestWorker
from airflow_cdc_provider.engine.retries import Retries
from airflow_cdc_provider.engine.server_looks import watched_servers
from airflow_cdc_provider.engine.sink.port import Sink
from airflow_cdc_provider.engine.stream.heartbeat import Heartbeat
from airflow_cdc_provider.engine.stream.isolated_tables import TableIsolation, require_none_stopped
from airflow_cdc_provider.engine.stream.new_tables import announce_new_tables
from airflow_cdc_provider.engine.stream.pending_changes import finish_changes
from airflow_cdc_provider.engine.stream.published_tables import PublishedTables
from airflow_cdc_provider.engine.stream.schema_changes import SchemaChanges
from airflow_cdc_provider.engine.stream.sink_drift import TableLooks
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.stream_end import (
    end_of_log,
    end_of_run,
    forget_other_stop,
    note_end,
)
from airflow_cdc_provider.engine.stream.stream_task import StreamTask

log = logging.getLogger(__name__)

_HEALTHY_S = 60.0
"""What lived for as long has gone on, whether or not there was anything to commit."""
_MAY_START = frozenset({Phase.HANDED_OFF, Phase.STOPPED, Phase.FAILED})


class Follower(Protocol):
    """Reads the log and applies its changes to the sink, once per call."""

    def follow(self, start: LogPosition) -> bool:
        """Follow the log from a position; raise what went wrong.

        True when the bound is reached or the stream is to end; False to be called again, from the
        ledger's position.
        """


OpenFollower = Callable[[StreamTask, Following], Follower]


def run_stream(
    job: Job,
    follower: OpenFollower,
    *,
    back_off: BackOff | None = None,
    carries_out: bool = False,
) -> JobResult:
    """Follow the log until the bound, a stop, or an error that a retry cannot fix.

    A continuous run carries out requests beside. A bounded one does where `carries_out` says so:
    then its bound is the end of the log when no open request is left.
    """
    started = time.monotonic()
    if back_off is None and job.spec.stream_mode is StreamMode.CONTINUOUS:
        back_off = FOR_A_DAY
    following = Following(carries_out=carries_out)
    _own_and_follow(job, following, follower, back_off)
    while following.begins_again:
        following = following.again()
        _own_and_follow(job, following, follower, back_off)
    if job.spec.stream_mode is StreamMode.BOUNDED and not following.ending.is_set():
        require_none_stopped(job, following.stopped)
    return _result(job, following, started)


def _own_and_follow(
    job: Job, following: Following, follower: OpenFollower, back_off: BackOff | None
) -> None:
    """Follow as the owner until the end or a restart; then all connections are closed."""
    retries = Retries(job, following.ending, back_off)
    ownership = Ownership(
        job.store,
        job.spec.pipeline,
        job.spec.generation,
        on_end=following.end,
        on_restart=following.begin_again,
        stop=job.stop,
    )
    with ExitStack() as stack:
        retries.call(lambda: stack.enter_context(ownership))
        retries.outages.tell()  # which process is at work
        try:
            _follow_to_the_end(job, following, follower, retries)
        finally:
            retries.outages.end()


def _follow_to_the_end(
    job: Job, following: Following, follower: OpenFollower, retries: Retries
) -> None:
    """Follow until the bound, a stop or a lasting error, with heartbeat and requests beside."""
    try:
        with watched_servers(job, retries.outages):
            before = retries.call(lambda: _begin(job, following))
        following.before = following.before or before
        with (
            Heartbeat(job, following, retries.outages),
            _requests(job, following),
            TableLooks(job, following),
            PublishedTables(job, following, retries.outages) as tables,
        ):
            _Tries(job, following, follower, retries).run_to_the_end()
            retries.call(lambda: _pass_over(job.sink(), following))
            retries.call(lambda: tables.publish_last(_logged_us(following)))
        retries.call(lambda: _last_committed(job, following))
    except RetryableError as error:
        if following.fenced is not None:
            raise following.fenced from error
        if not following.ending.is_set() or isinstance(error, SparkLostError):
            raise
        log.warning("asked to stop, so this is not waited for: %s", error)
        if Part.SINK not in retries.outages.parts():  # else it cannot say what is committed
            with suppress(RetryableError):
                _last_committed(job, following)
    if following.before is not None:
        retries.call(lambda: _leave(job, following))


def _begin(job: Job, following: Following) -> StreamCounts:
    """Take the pipeline over; return the counts that earlier runs have committed."""
    before = _take_over(job, following)
    if job.spec.stream_mode is StreamMode.BOUNDED and not following.carries_out:
        _bind(job, following)
    job.enter(Phase.STREAMING, from_=_MAY_START)
    return before


def _bind(job: Job, following: Following) -> None:
    """Find where a bounded run ends, unless that is known."""
    if following.bound is None:
        asked_us = time.time_ns() // 1000
        following.bound, following.is_last = end_of_run(job)
        following.bound_us = None if following.is_last else asked_us


def _logged_us(following: Following) -> int | None:
    """Return up to when a run that came to its end has read the log; None if it is not known."""
    return None if following.ending.is_set() else following.bound_us


def _result(job: Job, following: Following, started: float) -> JobResult:
    """Return the result of the stream job: what this run has committed."""
    result = JobResult(
        str(job.spec.pipeline),
        job.spec.generation,
        job.spec.kind.value,
        Outcome.STOPPED if following.ending.is_set() else Outcome.FINISHED,
        seconds=round(time.monotonic() - started, 3),
    )
    if following.before is None or following.committed is None:
        return result
    before, (split, counts) = following.before, following.committed
    return replace(
        result,
        tables=len(split.tables),
        changes=counts.changes - before.changes,
        transactions=counts.transactions - before.transactions,
        position=str(split.start),
        consistent=not (split.inconsistent or following.stopped or following.left_behind),
    )


def _leave(job: Job, following: Following) -> None:
    """Move the pipeline to the phase STOPPED, and note it if it has ended for good."""
    if following.committed is not None:
        note_end(job, following.committed[0])
    if job.pipeline().phase is not Phase.STOPPED:  # a try before this one may have come through
        job.store.move(
            job.spec.pipeline, job.spec.generation, expected=Phase.STREAMING, to=Phase.STOPPED
        )


def _requests(job: Job, following: Following) -> AbstractContextManager[object]:
    """Return the worker that carries out requests beside the stream, if the run has one."""
    if job.spec.stream_mode is StreamMode.CONTINUOUS:
        return RequestWorker(job, following, first=TableIsolation(job, following).catch_up_isolated)
    if not following.carries_out:
        return nullcontext()

    def end() -> None:
        following.bound = following.bound or end_of_log(job)

    return RequestWorker(job, following, on_idle=end)


class _Tries:
    """Follows the log, and again from the ledger's position as long as retries may help."""

    def __init__(
        self, job: Job, following: Following, follower: OpenFollower, retries: Retries
    ) -> None:
        self._job = job
        self._following = following
        self._retries = retries
        self._task = _task(job, following)
        self._open_follower = follower
        self._changed_by: tuple[object, ...] = ()
        self._follower = follower(self._task, following)

    def run_to_the_end(self) -> None:
        """Follow until the bound or a stop; raise an error that a retry cannot fix."""
        failures, failing_since = 0, time.monotonic()
        start: LogPosition | None = None
        while not self._following.ending.is_set():
            began = time.monotonic()
            try:
                stream = self._owned()
                before, start = start, stream.start
                if start != before:
                    failures = 0
                self._following.began_s = began
                if self._follow(stream):
                    return
                _pass_over(self._task.sink, self._following)
            except SparkLostError:
                raise  # no query of this process will ever start again
            except RetryableError as error:
                self._following.began_s = None
                self._retries.require_owner()
                now = time.monotonic()
                if now - began >= _HEALTHY_S:  # a position that stands still says nothing then
                    failures = 0
                failing_since = failing_since if failures else now
                failures += 1
                if self._retries.back_off.is_over(now - failing_since):
                    raise
                self._retries.wait("stream restarts from the ledger", error, failures)
            except CdcError as error:
                self._isolate(error)
        if self._following.fenced is not None:
            raise self._following.fenced

    def _owned(self) -> StreamSplit:
        """Read the stream from the ledger; raise `FencedError` if that has a newer owner."""
        with closing(self._task.sink.open_ledger()) as ledger:
            ledger.require_owner()
            return _committed(self._job, self._following, ledger)

    def _isolate(self, error: CdcError) -> None:
        """Isolate the tables that an error concerns and restart; raise any other error."""
        if isinstance(error, FencedError):
            raise error
        isolation = TableIsolation(self._job, self._following)
        if not self._retries.call(lambda: isolation.stop(error)):
            raise error
        self._following.begin_again()

    def _change_tables(self, stopped_by: TableChangedError) -> None:
        """Apply a change of table definitions to the sink, then follow with the new definitions."""
        if stopped_by.args == self._changed_by:
            raise stopped_by  # it was made, and stands in the way all the same
        self._changed_by = stopped_by.args
        self._retries.call(lambda: self._make_change(stopped_by))
        self._task = self._retries.call(lambda: _task(self._job, self._following))
        self._follower = self._open_follower(self._task, self._following)

    def _make_change(self, stopped_by: TableChangedError) -> None:
        """Apply the change that stopped the stream, from the ledger's position."""
        changes = SchemaChanges(self._job, self._following, self._task.reading)
        with closing(self._job.sink().open_ledger()) as ledger:
            changes.make(stopped_by, ledger, ledger.stream())

    def _follow(self, stream: StreamSplit) -> bool:
        """Follow once from the ledger's position; True if the bound or a stop was reached."""
        # also where nothing is to be read, and so nobody would look at the log
        held, tables = held_by_stream(stream), self._task.captured
        news = self._job.source().require_same_log(stream.start, held, tables)
        if news:
            self._retries.warn(news)
        self._task.tell_columns()
        self._following.error = None
        self._following.passed_over.log = None  # reading begins where the ledger is
        try:
            is_over = self._follower.follow(stream.start)
        except TableChangedError as error:
            is_over = self._following.ending.is_set()
            if not is_over:
                self._change_tables(error)
        if self._following.fenced is not None:
            raise self._following.fenced
        return is_over


def _pass_over(sink: Sink, following: Following) -> None:
    """Commit the idle log that was read last, which moves the ledger's position."""
    with closing(sink.open_ledger()) as ledger:
        following.passed_over.commit(ledger)


def _finish_changes(job: Job, following: Following, ledger: Ledger) -> None:
    """Finish schema changes that were begun; a table whose change fails is isolated."""
    spec = job.spec
    while True:
        try:
            finish_changes(job.store, job.sink(), ledger, spec.pipeline, spec.generation)
        except CdcError as error:
            if not TableIsolation(job, following).stop(error):
                raise
        else:
            return


def _take_over(job: Job, following: Following) -> StreamCounts:
    """Become the owner: fence older writers, reconcile, finish changes; return the counts."""
    spec = job.spec
    job.pipeline()
    with closing(job.sink().open_ledger()) as ledger:
        if not ledger.generation():  # the hand-off was an owner's: it is not where that was made
            ledger.require_owner()
        ledger.take_over(spec.generation)
        reconcile(job.store, ledger, spec.pipeline, spec.generation)
        _finish_changes(job, following, ledger)
        TableIsolation(job, following).heed(ledger)
        split, counts = ledger.stream(), ledger.counts()
        forget_other_stop(job, ledger, split)
    if split is None:
        raise _not_handed_off(job)
    ask_for_unread(job.store, spec.pipeline, spec.generation, split, by="stream")
    following.on_new_tables = partial(announce_new_tables, job)
    following.tables = frozenset(progress.table for progress in split.tables)
    for table in split.passed(split.start).inconsistent:
        job.store.mark_table(spec.pipeline, spec.generation, table, TablePhase.CATCHING_UP)
    return counts


def _last_committed(job: Job, following: Following) -> None:
    """Note what the ledger has when the job ends."""
    with closing(job.sink().open_ledger()) as ledger:
        _committed(job, following, ledger)


def _committed(job: Job, following: Following, ledger: Ledger) -> StreamSplit:
    """Read the stream from the ledger, and note what is committed since the hand-off."""
    split, counts, following.stopped = ledger.stream(), ledger.counts(), ledger.stopped()
    if split is None:
        raise _not_handed_off(job)
    split = split.passed(split.start)
    following.committed = split, counts
    return split


def _task(job: Job, following: Following) -> StreamTask:
    """Return the settings of the stream's reader and writer."""
    spec, schemas, sink = job.spec, job.schemas(), job.sink()
    # a table of the plan may be on its way in or out
    reading = log_reading(spec, {t: schemas[t] for t in schemas if t in following.tables})
    return StreamTask(
        source=job.source(),
        sink=sink,
        reading=replace(reading, picks=spec.picks, facts=sink.abilities.facts),
        max_batch_s=spec.max_batch_s,
        salts=job.servers.salts,
    )


def _not_handed_off(job: Job) -> SnapshotRequiredError:
    """Return the error for a pipeline that was not handed off to the stream."""
    return SnapshotRequiredError(
        f"pipeline {job.spec.pipeline} is not handed off",
        where="sink's ledger",
        risk="where the stream starts is unknown",
        remedy="finish the snapshot and hand it off first",
    )
