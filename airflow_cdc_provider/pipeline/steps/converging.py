"""The whole pipeline in one call, for a first try, a cron job or a test.

It ends when everything that was committed at the source before the stream job started is in the
sink: that position is taken after the call began, so what was committed before the call is in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import require_fit
from airflow_cdc_provider.pipeline.steps.finishing import finish_tables
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import JobEnd, SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import PlanSummary, plan
from airflow_cdc_provider.pipeline.steps.working import catch_up, snapshot


def _silent() -> None:
    """Say nothing."""


def _no_step(_name: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Told what is going on; silent by default."""

    on_step: Callable[[str], None] = field(default=_no_step)
    on_tick: Callable[[], None] = field(default=_silent)


@dataclass(frozen=True, slots=True)
class Convergence:
    """What one call did."""

    plan: PlanSummary
    snapshot: JobEnd | None
    """None if the snapshot was done before."""
    stream: JobEnd
    inconsistent: tuple[TableId, ...]
    """Tables that are not at their consistent point yet; none after a whole run."""


def run_until_caught_up(
    run: Run, options: SparkOptions | None = None, watcher: Watcher | None = None
) -> Convergence:
    """Run every step that is still to do, and catch up with the log."""
    watcher = watcher or Watcher()
    watcher.on_step("check")
    require_fit(run)
    watcher.on_step("plan")
    planned = plan(run)
    read: JobEnd | None = None
    if not planned.handed_off:
        watcher.on_step("snapshot")
        read = snapshot(run, options, on_tick=watcher.on_tick)
        watcher.on_step("hand-off")
        hand_off(run)
    watcher.on_step("stream")
    caught_up = catch_up(run, options, on_tick=watcher.on_tick)
    watcher.on_step("finish")
    waiting = finish_tables(run)
    release(run)
    return Convergence(planned, read, caught_up, waiting)


def release(run: Run) -> None:
    """Give the lease back at the end of a run."""
    state = run.store.ensure(run.name)
    if state.owner == run.owner:
        run.store.release_lease(run.name, state.generation)
