"""The two steps that Spark works on: the snapshot, and the stream.

Each takes the pipeline over first. A job of an earlier try that is still alive is fenced by that,
and its splits are given out again; what it has committed is in the ledger and is not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError, StateMovedError
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.claims import claim_tables
from airflow_cdc_provider.pipeline.steps.ended import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_changes import require_unchanged
from airflow_cdc_provider.pipeline.steps.jobs import (
    JobEnd,
    JobProcess,
    SparkOptions,
    snapshot_spec,
    stream_spec,
    submit,
)
from airflow_cdc_provider.pipeline.steps.nothing_to_stream import nothing_to_stream
from airflow_cdc_provider.pipeline.steps.sink import open_ledger


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a job would find."""

    generation: int
    handed_off: bool


def start_snapshot(run: Run, options: SparkOptions | None = None) -> JobProcess | None:
    """Start the snapshot job; None if the stream has taken over already."""
    ready = _make_ready(run)
    if ready.handed_off:
        return None
    return submit(run, snapshot_spec(run.model, ready.generation), options or _options(run))


def start_stream(
    run: Run, options: SparkOptions | None = None, *, mode: str | None = None
) -> JobProcess:
    """Start the stream job; `mode` overrides the file's."""
    return _submit_stream(run, _ready_to_stream(run), options, mode)


def start_catching_up(run: Run, options: SparkOptions | None = None) -> JobProcess | JobEnd:
    """Start the stream job up to the log's end, or return the end it would have at once."""
    generation = _ready_to_stream(run)
    done = nothing_to_stream(run, generation)
    if done is not None:
        return JobEnd.without_job(done)
    return _submit_stream(run, generation, options, "bounded")


def _ready_to_stream(run: Run) -> int:
    ready = _make_ready(run)
    if not ready.handed_off:
        raise StateMovedError(
            f"pipeline {run.name} is not handed off",
            where=f"ledger of {run.name}",
            risk="none: nothing was started",
            remedy="run the snapshot to its end and hand off, then stream",
        )
    return ready.generation


def _submit_stream(
    run: Run, generation: int, options: SparkOptions | None, mode: str | None
) -> JobProcess:
    return submit(run, stream_spec(run.model, generation, mode=mode), options or _options(run))


def snapshot(
    run: Run,
    options: SparkOptions | None = None,
    *,
    on_tick: Callable[[], None] = lambda: None,
) -> JobEnd | None:
    """Read every split that is not read yet; None if the stream has taken over already."""
    job = start_snapshot(run, options)
    return None if job is None else job.wait(on_tick=on_tick)


def catch_up(
    run: Run,
    options: SparkOptions | None = None,
    *,
    on_tick: Callable[[], None] = lambda: None,
) -> JobEnd:
    """Stream up to where the source's log ends when the job starts, if there is anything to."""
    started = start_catching_up(run, options)
    return started if isinstance(started, JobEnd) else started.wait(on_tick=on_tick)


def _make_ready(run: Run) -> Readiness:
    if run.store.ensure(run.name).wanted is Wanted.STOP:
        raise RefusedError(
            f"pipeline {run.name} is paused",
            where=f"state of {run.name}",
            risk="none: nothing was started",
            remedy="resume it first",
        )
    require_not_ended(run)
    require_unchanged(run)
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        correction = reconcile(run.store, ledger, run.name, generation)
    claim_tables(run, generation, [state.plan for state in run.store.tables(run.name)])
    return Readiness(generation, correction.handed_off)


def _options(run: Run) -> SparkOptions:
    return SparkOptions.of(run.model)
