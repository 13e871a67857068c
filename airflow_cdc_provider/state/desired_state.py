"""What anyone may want of a pipeline, through its state store alone: no server is asked."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import NoteKind, PipelineState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.store import SqlStateStore


def want(store: SqlStateStore, name: PipelineName, wanted: Wanted, *, by: str) -> Wanted:
    """Store what a person wants of the pipeline, with an event; return what is wanted now.

    A restart is for a running owner. Without one it is a wish to run. A failure stays, for no run
    is begun here: it is noted that the next one sets it aside and begins from the ledger.
    """
    state = store.ensure(name)
    if wanted is Wanted.RESTART and state.lease_until_us <= store.now_us():
        wanted = Wanted.RUN
    if wanted is Wanted.RUN and state.phase is Phase.FAILED:
        store.keep_note(name, NoteKind.TRY_AGAIN, {"generation": state.generation})
    store.want(name, wanted)
    store.tell(name, f"{_VERBS[wanted]} by {by}")
    return wanted


_VERBS = {Wanted.RUN: "resumed", Wanted.STOP: "asked to pause", Wanted.RESTART: "asked to restart"}


def is_to_be_tried_again(store: SqlStateStore, state: PipelineState) -> bool:
    """Tell whether a person wants the next run to set this failure aside."""
    note = store.note(state.name, NoteKind.TRY_AGAIN)
    return note is not None and note.form.get("generation") == state.generation


def set_aside(store: SqlStateStore, name: PipelineName) -> bool:
    """Clear a pipeline's failure so that the next run tries again; False if it has none."""
    state = store.ensure(name)
    if state.phase is not Phase.FAILED or not state.plan_id:
        return False
    before = Phase.HANDED_OFF if store.is_handed_off(name) else Phase.PLANNING
    store.move(name, state.generation, expected=Phase.FAILED, to=before)
    store.tell(name, f"to be tried again: {what_of(state.error)}", level="warning")
    return True


def what_of(error: StoredError) -> str:
    """Return an error's `what` and `where`, without risk and remedy."""
    told = error.read()
    return str(type(told)(told.what, told.where))
