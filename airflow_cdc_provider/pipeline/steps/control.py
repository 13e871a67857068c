"""Pause, resume, restart, drop: small moves, each of which says what it touches."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.pipeline.run import Run, lease_is_live, lease_left_s, take_over
from airflow_cdc_provider.pipeline.steps.claims import release_tables
from airflow_cdc_provider.pipeline.steps.ended import set_aside
from airflow_cdc_provider.pipeline.steps.planning import new_plan
from airflow_cdc_provider.pipeline.steps.sink import open_ledger

_POLL_S = 0.5


def pause(run: Run, *, wait_s: float = 0.0, on_tick: Callable[[], None] = lambda: None) -> str:
    """Ask the pipeline's owner to stop at the next boundary, and wait for it."""
    run.store.want(run.name, Wanted.STOP)
    deadline = time.monotonic() + wait_s
    while lease_is_live(run, run.store.ensure(run.name)):
        if time.monotonic() >= deadline:
            state = run.store.ensure(run.name)
            return (
                f"{run.name} was asked to stop; {state.owner} has not stopped yet. Nothing is "
                "lost: it ends behind the transaction it is at. If it was killed, nobody is at "
                f"work, and its lease ends in {lease_left_s(run, state)} s."
            )
        on_tick()
        time.sleep(_POLL_S)
    return f"{run.name} is paused. Rows, state and ledger stay; resume goes on from there."


def resume(run: Run) -> str:
    """Allow the pipeline to run again; the next run or the schedule starts it."""
    again = set_aside(run)
    run.store.want(run.name, Wanted.RUN)
    more = " What its stream ended with is met again if it is still there." if again else ""
    return f"{run.name} may run again; it goes on from its last committed position.{more}"


def restart(run: Run) -> str:
    """Plan from scratch: the next run reads every table again, split by split."""
    summary = new_plan(run)
    run.store.want(run.name, Wanted.RUN)
    return (
        f"{run.name} has a new plan for {len(summary.tables)} tables. Sink tables stay and are "
        "replaced split by split by the next run; splits and position of the old plan are "
        "forgotten in state and ledger."
    )


def drop(run: Run) -> str:
    """Forget the pipeline's state and ledger rows; tables and rows of the sink stay."""
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        ledger.start_plan("")
        release_tables(run, generation)
        run.store.forget(run.name, generation)
    return (
        f"{run.name} is forgotten: its plan, splits, position and events in the state store and "
        "its splits, position and tables in the sink's ledger. The sink's tables and rows stay. "
        "Whoever copies to these tables next, this pipeline too, is refused while they hold rows, "
        "unless its file says existing_rows: replace under sink."
    )
