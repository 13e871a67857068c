"""The two long steps: the snapshot, and the stream. Spark works on them, unless they are small.

Each takes the pipeline over first. A job of an earlier try that is still alive is fenced by that,
and its splits are given out again; what it has committed is in the ledger and is not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import PausedError, RefusedError, StepMissingError
from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.pipeline.run import Run, is_streamed, take_over
from airflow_cdc_provider.pipeline.steps.claims import claim_tables
from airflow_cdc_provider.pipeline.steps.ended_stream import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.jobs import (
    JobEnd,
    JobProcess,
    SparkOptions,
    snapshot_spec,
    stream_spec,
    submit,
)
from airflow_cdc_provider.pipeline.steps.nothing_to_stream import nothing_to_stream
from airflow_cdc_provider.pipeline.steps.one_spark import StartJob
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.small_work import (
    InProcessJob,
    done_here,
    start_requests_in_process,
)
from airflow_cdc_provider.pipeline.steps.stream_ends import (
    end_of_ended,
    ended_stream,
    forget_end,
    require_may_end,
)


@dataclass(frozen=True, slots=True)
class Readiness:
    """A pipeline that is ready for a job: the generation, and whether it is handed off."""

    generation: int
    handed_off: bool


def start_snapshot(
    run: Run, options: SparkOptions | None = None
) -> JobProcess | InProcessJob | None:
    """Start the snapshot job; None if the pipeline is already handed off to the stream."""
    spec = _snapshot_to_do(run)
    if spec is None:
        return None
    options = options or _options(run)
    return done_here(run, spec, options) or submit(run, spec, options)


def start_stream(
    run: Run, options: SparkOptions | None = None, *, mode: str | None = None
) -> JobProcess:
    """Start the stream job; `mode` overrides the file's."""
    return submit(run, _stream_to_do(run, mode), options or _options(run))


def start_catching_up(
    run: Run, options: SparkOptions | None = None
) -> JobProcess | InProcessJob | JobEnd:
    """Start a stream job up to the log's end, or return its end if there is nothing to do."""
    to_do = _catching_up_to_do(run)
    if isinstance(to_do, JobEnd):
        return to_do
    options = options or _options(run)
    return _here(run, to_do, options) or submit(run, to_do, options)


def has_nothing_to_stream(run: Run) -> bool:
    """Tell whether the sink has all of the source's log, and store that as a stream would.

    If it has not, nothing is started, and this run owns the pipeline.
    """
    return isinstance(_catching_up_to_do(run), JobEnd)


def snapshot(
    run: Run,
    options: SparkOptions | None = None,
    *,
    on_tick: Callable[[], None] = lambda: None,
    start: StartJob = submit,
) -> JobEnd | None:
    """Read every split that is not read yet; None if the pipeline is already handed off."""
    spec = _snapshot_to_do(run)
    if spec is None:
        return None
    options = options or _options(run)
    job = done_here(run, spec, options) or start(run, spec, options)
    return job.wait(on_tick=on_tick)


def stream(
    run: Run,
    options: SparkOptions | None = None,
    *,
    on_tick: Callable[[], None] = lambda: None,
    start: StartJob = submit,
) -> JobEnd:
    """Stream until asked to stop; return how the job ended."""
    spec = _stream_to_do(run, "continuous")
    return start(run, spec, options or _options(run)).wait(on_tick=on_tick)


def catch_up(
    run: Run,
    options: SparkOptions | None = None,
    *,
    on_tick: Callable[[], None] = lambda: None,
    start: StartJob = submit,
) -> JobEnd:
    """Stream up to the end that the source's log has now, if anything is left to read."""
    to_do = _catching_up_to_do(run)
    if isinstance(to_do, JobEnd):
        return to_do
    options = options or _options(run)
    job = _here(run, to_do, options) or start(run, to_do, options)
    return job.wait(on_tick=on_tick)


def _snapshot_to_do(run: Run) -> JobSpec | None:
    """Own the pipeline and return the snapshot job, None if it is already handed off."""
    if is_streamed(run):
        return None
    ready = _make_ready(run)
    return None if ready.handed_off else snapshot_spec(run.model, ready.generation)


def _stream_to_do(run: Run, mode: str | None) -> JobSpec:
    """Own the pipeline and return the stream job; raise before the hand-off."""
    if mode == "continuous" and run.model.stream.stops_at:
        raise RefusedError(
            f"a stream without an end was to start, and the file lets {run.name} end",
            where=f"stream of {run.name}",
            risk="none: nothing was started; such a stream would go on behind the place",
            remedy="begin a run of its DAG, or `run` it: with a stop each run is bounded",
        )
    ready = _make_ready(run)
    if not ready.handed_off:
        raise StepMissingError(
            f"pipeline {run.name} is not handed off",
            where=f"ledger of {run.name}",
            risk="none: nothing was started",
            remedy="run the snapshot to its end and hand off, then stream; in Airflow, clear the "
            "task of the first of them that is not done",
        )
    return stream_spec(run.model, ready.generation, mode=mode)


def _catching_up_to_do(run: Run) -> JobSpec | JobEnd:
    """Return the job that streams to the log's end, or its end if there is nothing to do."""
    if (ended := ended_stream(run)) is not None:
        require_unpaused(run)
        return end_of_ended(run, ended)
    require_may_end(run)
    spec = _stream_to_do(run, "bounded")
    forget_end(run)
    if run.store.to_do(run.name) or spec.stops_at:
        return spec
    done = nothing_to_stream(run, spec.generation)
    return spec if done is None else JobEnd.without_job(done)


def _here(run: Run, spec: JobSpec, options: SparkOptions) -> InProcessJob | None:
    """Start the stream job in this process if it has requests or little log, else None."""
    return start_requests_in_process(run, spec) or done_here(run, spec, options)


def _make_ready(run: Run) -> Readiness:
    """Own the pipeline, reconcile and claim its sink tables, as each job needs first."""
    require_unpaused(run)
    require_not_ended(run)
    require_unchanged(run)
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        correction = reconcile(run.store, ledger, run.name, generation)
    claim_tables(run, generation, [state.plan for state in run.store.tables(run.name)])
    return Readiness(generation, correction.handed_off)


def require_unpaused(run: Run) -> None:
    """Refuse to start anything of a pipeline that is paused."""
    if run.store.ensure(run.name).wanted is Wanted.STOP:
        raise PausedError(
            f"pipeline {run.name} is paused",
            where=f"state of {run.name}",
            risk="none: nothing was started",
            remedy="resume it first",
        )


def _options(run: Run) -> SparkOptions:
    """Return the Spark settings of the pipeline file."""
    return SparkOptions.of(run.model)
