"""The whole pipeline in one call, for a first try, a cron job or a test.

It ends when everything that was committed at the source before the stream job started is in the
sink: that position is taken after the call began, so what was committed before the call is in.
It never ends well while a table is not consistent: the log is then read to its end once more, and
if that does not help, the error says which splits are still to pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.backoff import FOR_A_DAY
from airflow_cdc_provider.core.errors import (
    FencedError,
    PausedError,
    StateMovedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_stops import StopKind
from airflow_cdc_provider.engine.outages import Outages, Part
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import require_fit
from airflow_cdc_provider.pipeline.steps.finishing import (
    finish_tables,
    inconsistent_tables,
    not_consistent,
)
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import UNREACHABLE, JobEnd, SparkOptions
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.pipeline.steps.new_table_watch import NewTableWatch
from airflow_cdc_provider.pipeline.steps.one_spark import OneSpark
from airflow_cdc_provider.pipeline.steps.planning import PlanSummary, plan
from airflow_cdc_provider.pipeline.steps.start_jobs import (
    catch_up,
    require_unpaused,
    snapshot,
    stream,
)
from airflow_cdc_provider.pipeline.steps.stream_ends import (
    end_of_ended,
    ended_stream,
    ended_text,
)

log = logging.getLogger(__name__)

_MOST_ROUNDS = 3


def _silent() -> None:
    """Do nothing."""


def _no_words(_text: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks for the progress of a run; by default they do nothing."""

    on_step: Callable[[str], None] = field(default=_no_words)
    on_tick: Callable[[], None] = field(default=_silent)
    on_warning: Callable[[str], None] = field(default=_no_words)
    """Told what the run does not do and a person may expect."""
    on_change: Callable[[str], None] = field(default=_no_words)
    """Told which tables came and went."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """The result of one call: the plan, both jobs' ends, and tables not yet consistent."""

    plan: PlanSummary
    snapshot: JobEnd | None
    """None if the snapshot was done before."""
    stream: JobEnd
    inconsistent: tuple[TableId, ...]
    """Tables that are not at their consistent point yet; none after `run_until_caught_up`."""


def run_until_caught_up(
    run: Run, options: SparkOptions | None = None, watcher: Watcher | None = None
) -> Convergence:
    """Run every step that is still to do, and catch up with the log."""
    with OneSpark() as spark:
        work = _Work(run, options, watcher or Watcher(), spark)
        if (ended := ended_stream(run)) is not None:
            return _has_ended(work, ended)
        require_unpaused(run)
        try:
            planned, read = _until_handed_off(work)
        except PausedError:
            return _paused(work)
        if (ended := ended_stream(run)) is not None:  # with the snapshot
            return Convergence(planned, read, end_of_ended(run, ended), ())
        work.watcher.on_step("stream")
        caught_up = _consistent(work)
        spark.no_more_jobs()
        work.watcher.on_step("finish")
        return Convergence(planned, read, caught_up, finish_tables(run))


@dataclass(frozen=True, slots=True)
class _Work:
    """What the steps of one call share: run, Spark options, callbacks, Spark process."""

    run: Run
    options: SparkOptions | None
    watcher: Watcher
    spark: OneSpark


def _has_ended(work: _Work, ended: StreamSplit) -> Convergence:
    """Return the result of a run of a pipeline that has ended: there is nothing to do."""
    run = work.run
    work.watcher.on_change(f"{ended_text(run, ended)}; nothing is left to do")
    end = end_of_ended(run, ended)
    # a run that was killed at the end has added no keys
    waiting = finish_tables(run) if run.model.stream.has_stream else ()
    return Convergence(_as_planned(run), None, end, waiting)


def _as_planned(run: Run) -> PlanSummary:
    """Return the plan that a handed-off pipeline has, without a look at what would change it."""
    state = run.store.ensure(run.name)
    plans = tuple(each.plan for each in run.store.tables(run.name))
    return PlanSummary(state.plan_id, state.generation, is_new=False, tables=plans, handed_off=True)


def _not_begun(work: _Work) -> JobEnd:
    """Return the end of a stream that was paused before it began, as if it had been just after."""
    return JobEnd.stopped(work.run.name, JobKind.STREAM)


def _paused(work: _Work, *, may_wait: bool = False) -> Convergence:
    """Return the result of a run that was paused between its jobs, as it might have been in one.

    Unless the tables may wait for their consistent point, `NotConsistentError` names those that do.
    """
    run = work.run
    if not run.store.is_handed_off(run.name):
        raise _snapshot_stopped(run)
    if not may_wait and inconsistent_tables(run):
        raise not_consistent(run, stopped=True)
    return Convergence(_as_planned(run), None, _not_begun(work), finish_tables(run))


def _snapshot_stopped(run: Run) -> StateMovedError:
    """Return the error of a snapshot that was asked to stop."""
    return StateMovedError(
        f"the snapshot of {run.name} was asked to stop",
        where=f"state of {run.name}",
        risk="none: what is read stays read",
        remedy="resume the pipeline and run again; it goes on from there",
    )


def _consistent(work: _Work) -> JobEnd:
    """Stream to the end of the log, in rounds until all tables are consistent.

    Where some have stopped that is told at last, for the others go on.
    """
    is_stopped, rounds = False, list[JobEnd]()
    alone: TablesStoppedError | None = None
    for _ in range(_MOST_ROUNDS):
        try:
            ended = catch_up(
                work.run, work.options, on_tick=work.watcher.on_tick, start=work.spark.start
            )
        except PausedError:
            ended = _not_begun(work)
        except TablesStoppedError as error:
            alone = error
            if not inconsistent_tables(work.run):
                break
            continue
        rounds.append(ended)
        if not inconsistent_tables(work.run) and not _is_to_end(work.run):
            return _all_in_all(rounds)
        is_stopped = ended.outcome == "stopped"
        if is_stopped:
            break
    raise alone or not_consistent(work.run, stopped=is_stopped)


def _is_to_end(run: Run) -> bool:
    """Tell whether the stream is to end where it is: tables were read beside it first."""
    return run.model.stream.stops_at.kind is StopKind.CONSISTENT and ended_stream(run) is None


def _all_in_all(rounds: Sequence[JobEnd]) -> JobEnd:
    """Return the last round's end, with the counts of all rounds."""
    last = rounds[-1]
    counted = {
        name: sum(each.result[name] for each in rounds) for name in ("changes", "transactions")
    }
    is_needed = any(each.is_needed for each in rounds)
    return replace(last, result={**last.result, **counted}, is_needed=is_needed)


def run_continuously(
    run: Run, options: SparkOptions | None = None, watcher: Watcher | None = None
) -> Convergence:
    """Run every step that is still to do, then stream until asked to stop.

    The sink's tables are finished as soon as they are consistent, while the stream runs. Where
    tables appear that are to be added, and where it is asked that tables come, go or begin again,
    the stream ends, does so and goes on, in one Spark.
    """
    with OneSpark() as spark:
        work = _Work(run, options, watcher or Watcher(), spark)
        require_unpaused(run)
        try:
            planned, read = _until_handed_off(work)
        except PausedError:
            return _paused(work, may_wait=True)
        work.watcher.on_step("stream")
        ended = _stream(work)
        while isinstance(ended, Run):
            work = replace(work, run=ended)
            try:
                planned = _planned_in_time(work)
            except PausedError:
                ended = _not_begun(work)
            else:
                ended = _stream(work)
        return Convergence(planned, read, ended, finish_tables(work.run))


def _planned_in_time(work: _Work) -> PlanSummary:
    """Plan between two streams, with retries while a server is away."""
    run, began, failures = work.run, time.monotonic(), 0
    outages = Outages(run.store, run.name, run.held.generation)
    while True:
        try:
            planned = _planned(work)
        except UNREACHABLE as error:
            failures += 1
            if FOR_A_DAY.is_over(time.monotonic() - began):
                raise
            wait_s = FOR_A_DAY.wait_s(failures)
            log.warning("planned again: pipeline=%s cause=%s", run.name, error)
            outages.note(Part.WORK, error, tries=failures, wait_s=wait_s)
            outages.tell()
            time.sleep(wait_s)
        else:
            outages.over(Part.WORK)
            outages.tell()
            return planned


def _stream(work: _Work) -> JobEnd | Run:
    """Stream until a stop; return the run to continue with if tables are added or removed.

    Or reset. The run has the file as it was when that was found.
    """
    finisher, later = _Finisher(work.run), NewTableWatch(work.run)

    def on_tick() -> None:
        work.watcher.on_tick()
        finisher.look()
        later.look()

    try:
        return stream(work.run, work.options, on_tick=on_tick, start=work.spark.start)
    except PausedError:
        return _not_begun(work)
    except FencedError:
        if not later.is_found:
            raise
        return later.run


class _Finisher:
    """Adds the sink tables' keys when the stream's heartbeat says that all are consistent."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_done = False
        self._added_us = 0

    def look(self) -> None:
        """Finish the tables if all are consistent, also after tables were read again."""
        stream = self._run.store.stream(self._run.name)
        if stream is None or not stream.heartbeat_us:
            return
        added_us = self._run.store.added_us(self._run.name)
        if added_us != self._added_us:
            self._is_done, self._added_us = False, added_us
        if not self._is_done and not stream.inconsistent:
            self._is_done = not finish_tables(self._run)


def _until_handed_off(work: _Work) -> tuple[PlanSummary, JobEnd | None]:
    """Check, plan, read the snapshot and hand off, as far as that is still to do."""
    run, watcher = work.run, work.watcher
    watcher.on_step("check")
    require_fit(run)
    planned = _planned(work)
    if planned.handed_off:
        return planned, None
    watcher.on_step("snapshot")
    read = snapshot(run, work.options, on_tick=watcher.on_tick, start=work.spark.start)
    if read is not None and read.outcome == "stopped":
        raise _snapshot_stopped(run)
    watcher.on_step("hand-off")
    hand_off(run)
    if planned.not_copied:  # they came, or were picked, while others were read
        planned = replace(_planned(work), is_new=planned.is_new)
    return planned, read


def _planned(work: _Work) -> PlanSummary:
    """Continue or make the plan, and report what it changes and leaves out."""
    run, watcher = work.run, work.watcher
    watcher.on_step("plan")

    def reach(run: Run) -> JobEnd:
        return catch_up(run, work.options, on_tick=watcher.on_tick, start=work.spark.start)

    planned = plan(run, reach=reach)
    if planned.warning:
        watcher.on_warning(planned.warning)
    for text in planned.changed:
        watcher.on_change(text)
    for table in planned.not_copied:
        watcher.on_warning(left_out_text(table))
    return planned
