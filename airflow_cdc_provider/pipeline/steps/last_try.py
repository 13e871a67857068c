"""What ended the last try to begin: noted for those who look later, until a try gets past it.

Preflight and planning run before there is a job that would remember its error, and often before
there is a plan. That somebody else is at work, or wants a pause, is no trouble, and is not noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from airflow_cdc_provider.core.edge_remedies import for_edge
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    LeaseHeldError,
    PausedError,
    StateMovedError,
)
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.run import Run

PREFLIGHT, PLAN = "preflight", "plan"
_STEPS = (PREFLIGHT, PLAN)
_OF_OTHERS = (LeaseHeldError, FencedError, StateMovedError, PausedError)


@contextmanager
def recording_attempt(run: Run, step: str) -> Iterator[None]:
    """Store the error with which a step ends; after success clear the stored error."""
    try:
        yield
    except _OF_OTHERS:
        raise
    except CdcError as error:
        note_refusal(run, step, error)
        raise
    _forget(run, step)


def note_refusal(run: Run, step: str, error: CdcError) -> None:
    """Store the error with which a step was refused; a store that is away is ignored."""
    form = {"step": step, "error": scrubbed(run, error).to_json()}
    with suppress(CdcError):
        run.store.ensure(run.name)
        run.store.keep_note(run.name, NoteKind.LAST_TRY, form)


def scrubbed(run: Run, error: CdcError) -> CdcError:
    """Return an error without the passwords of the run's servers, with what an edge can do."""
    return for_edge(error.rewritten(run.servers.secrets.scrub), run.model.edge)


def _forget(run: Run, step: str) -> None:
    """Clear the stored error of a try at this step or an earlier one."""
    note = run.store.note(run.name, NoteKind.LAST_TRY)
    past = _STEPS[: _STEPS.index(step) + 1]
    if note is not None and note.form["error"] and note.form["step"] in past:
        run.store.keep_note(run.name, NoteKind.LAST_TRY, {"step": step, "error": None})
