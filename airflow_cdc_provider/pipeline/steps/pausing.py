"""Pause, resume and restart: what the owner of a pipeline is asked through the state store."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    NotRestartedYetError,
    NotStoppedYetError,
    PausedError,
    PauseTakenBackError,
)
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import NoteKind, PipelineState
from airflow_cdc_provider.pipeline.run import Run, lease_is_live, lease_left_s
from airflow_cdc_provider.state.desired_state import set_aside

_POLL_S = 0.5
_SOON_S = 0.1
_HEEDED_S = 2.0
"""An owner looks every second what is wanted of it."""
_NOT_RUN = "{} has not run yet, as far as this state store knows"


def pause(run: Run, *, wait_s: float = 0.0, on_tick: Callable[[], None] = lambda: None) -> str:
    """Ask the pipeline's owner to stop at the next boundary, wait, and describe the result.

    Raises `NotStoppedYetError` where the owner takes longer, and `PauseTakenBackError` as soon as
    somebody else wants the pipeline to run.
    """
    has_run = _has_run(run)
    run.store.want(run.name, Wanted.STOP)
    deadline = time.monotonic() + wait_s
    while True:
        state = run.store.ensure(run.name)
        if state.wanted is not Wanted.STOP:
            raise _taken_back(run, state)
        if not lease_is_live(run, state):
            break
        if time.monotonic() >= deadline:
            raise _not_stopped_yet(run, state)
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

    Raises `NotRestartedYetError` where the owner takes longer. Without an owner the failure is
    cleared, and the next run begins there. A failure with which the
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
            raise _not_restarted_yet(run, state)
        on_tick()
        time.sleep(_POLL_S)
    if state.wanted is Wanted.STOP:
        return f"{run.name} was paused meanwhile, and does not begin again before `resume`."
    return f"{run.name} has begun again, from its last committed position: {state.owner}."


def runs_now(run: Run) -> bool:
    """Tell whether a process runs the pipeline."""
    return lease_is_live(run, run.store.ensure(run.name))


class Before(Enum):
    """How a pipeline was before it was allowed to run again."""

    WANTED = auto()
    PAUSED = auto()
    FAILED = auto()
    """A process that still runs it is about to end."""


def before(run: Run) -> Before:
    """Return whether the pipeline is paused, has failed, or neither."""
    state = run.store.ensure(run.name)
    if state.phase is Phase.FAILED:
        return Before.FAILED
    return Before.PAUSED if state.wanted is Wanted.STOP else Before.WANTED


def runs_on(run: Run, was: Before) -> bool:
    """Tell whether a process runs the pipeline, and goes on with it.

    One that has heeded a pause ends all the same, and says so as it heeds it. So one that ran
    during a pause that was taken back is watched for longer than it takes to do that.
    """
    deadline = time.monotonic() + (_HEEDED_S if was is Before.PAUSED else 0.0)
    while True:
        state = run.store.ensure(run.name)
        if not lease_is_live(run, state) or was is Before.FAILED or _is_ending(run, state):
            return False
        if time.monotonic() >= deadline:
            return True
        time.sleep(_SOON_S)


def _is_ending(run: Run, state: PipelineState) -> bool:
    """Tell whether the owner has said that it is about to end."""
    note = run.store.note(run.name, NoteKind.ENDING)
    return note is not None and note.form.get("generation") == state.generation


def _taken_back(run: Run, state: PipelineState) -> PauseTakenBackError:
    """Return the error of a pause whose wish is not stored any more."""
    by = {Wanted.RUN: "`resume`", Wanted.RESTART: "`restart`"}
    return PauseTakenBackError(
        f"the pause of {run.name} was taken back by {by.get(state.wanted, 'another wish')}",
        where=f"state of {run.name}",
        risk="none: the pipeline is wanted to run",
        remedy="`pause` it again if it is to stop",
    )


def _not_stopped_yet(run: Run, state: PipelineState) -> NotStoppedYetError:
    """Return the error of a pause that the owner has not reached in time."""
    return NotStoppedYetError(
        f"{run.name} was asked to stop; {state.owner} has not stopped yet",
        where=f"state of {run.name}",
        risk="none: it ends behind the transaction it is at, and the wish stays",
        remedy=_again(run, state, "pause"),
    )


def _not_restarted_yet(run: Run, state: PipelineState) -> NotRestartedYetError:
    """Return the error of a restart that the owner has not reached in time."""
    return NotRestartedYetError(
        f"{run.name} was asked to begin again; {state.owner} has not yet",
        where=f"state of {run.name}",
        risk="none: it ends behind the transaction it is at, or, if it does not stream or read "
        "just now, begins from the ledger anyway; the wish stays",
        remedy=_again(run, state, "restart"),
    )


def _again(run: Run, state: PipelineState, command: str) -> str:
    """Return what to do where an owner has not heeded a command in time."""
    return (
        f"`{command}` again, which waits on; if the owner was killed, nobody is at work, and its "
        f"lease ends in {lease_left_s(run, state)} s"
    )


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
