"""Pause, resume and restart: what the owner of a pipeline is asked through the state store."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PausedError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.pipeline.run import Run, lease_is_live, lease_left_s
from airflow_cdc_provider.state.desired_state import set_aside

_POLL_S = 0.5
_NOT_RUN = "{} has not run yet, as far as this state store knows"


def pause(run: Run, *, wait_s: float = 0.0, on_tick: Callable[[], None] = lambda: None) -> str:
    """Ask the pipeline's owner to stop at the next boundary, wait, and describe the result."""
    has_run = _has_run(run)
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
    if not has_run:
        return f"{_NOT_RUN.format(run.name)}. It is paused: no run of it starts before `resume`."
    return f"{run.name} is paused. Rows, state and ledger stay; resume goes on from there."


def resume(run: Run) -> str:
    """Allow a paused or failed pipeline to run again; the next run continues it."""
    again, has_run = set_aside(run.store, run.name), _has_run(run)
    run.store.want(run.name, Wanted.RUN)
    if not has_run:
        return f"{_NOT_RUN.format(run.name)}. It may run again."
    more = " What its stream ended with is met again if it is still there." if again else ""
    return f"{run.name} may run again; it goes on from its last committed position.{more}"


def restart(run: Run, *, wait_s: float = 0.0, on_tick: Callable[[], None] = lambda: None) -> str:
    """Ask the pipeline's owner to begin again from the ledger, wait, and describe the result.

    Without an owner the failure is cleared, and the next run begins there. A failure with which the
    owner begins again, such as of a password that has changed, is raised and stays stored.
    """
    state = run.store.ensure(run.name)
    if not lease_is_live(run, state):
        return resume(run)
    run.store.want(run.name, Wanted.RESTART)
    deadline = time.monotonic() + wait_s
    while (state := run.store.ensure(run.name)).wanted is Wanted.RESTART:
        if not lease_is_live(run, state):
            if state.phase is Phase.FAILED:
                run.store.want(run.name, Wanted.RUN)
                raise state.error.read().located(f"restart of {run.name}")
            return resume(run)
        if time.monotonic() >= deadline:
            return (
                f"{run.name} was asked to begin again; {state.owner} has not yet. Nothing is lost: "
                "it ends behind the transaction it is at, or, if it does not stream or read just "
                "now, begins from the ledger anyway."
            )
        on_tick()
        time.sleep(_POLL_S)
    if state.wanted is Wanted.STOP:
        return f"{run.name} was paused meanwhile, and does not begin again before `resume`."
    return f"{run.name} has begun again, from its last committed position: {state.owner}."


def runs_now(run: Run) -> bool:
    """Tell whether a process runs the pipeline."""
    return lease_is_live(run, run.store.ensure(run.name))


def is_stopped(run: Run) -> bool:
    """Tell whether the pipeline is paused or has failed.

    A process that still runs it is about to end.
    """
    state = run.store.ensure(run.name)
    return state.wanted is Wanted.STOP or state.phase is Phase.FAILED


def require_wanted(run: Run) -> None:
    """Raise `PausedError` if the pipeline is paused: a run of it would do nothing."""
    if run.store.ensure(run.name).wanted is Wanted.STOP:
        raise PausedError(
            f"pipeline {run.name} is paused",
            where=f"state of {run.name}",
            risk=NOTHING_STARTED,
            remedy="`resume` it, which begins a run as well",
        )


def _has_run(run: Run) -> bool:
    """Tell whether the pipeline was ever planned."""
    state = run.store.pipeline(run.name)
    return state is not None and bool(state.plan_id)
