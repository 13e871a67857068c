"""What a person wants of a pipeline's throttle, through its state store alone."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.throttle import NAMES, ThrottleLimits, ThrottleWish
from airflow_cdc_provider.state.store import SqlStateStore

OFF: Mapping[str, float | None] = dict.fromkeys(NAMES)
"""Takes every limit away."""


def wish_throttle(
    store: SqlStateStore,
    name: PipelineName,
    wish: Mapping[str, float | None],
    *,
    file: tuple[ThrottleLimits, bool],
    by: str,
) -> ThrottleWish:
    """Store that limits are to be others than the file's, with an event; return the whole wish.

    `wish` comes beside what was wished before; an empty one lets the file's limits hold again.
    `file` has the limits of the file and whether it names replicas. `RefusedError` if the limits do
    not go together.
    """
    limits, has_replicas = file
    store.ensure(name)
    while True:
        note = store.note(name, NoteKind.THROTTLE)
        before = {} if note is None else ThrottleWish.from_json(note.at_us, note.form).changes
        changes = {**before, **wish} if wish else {}
        changes = {key: value for key, value in changes.items() if key in NAMES}
        wanted = limits.changed(changes)
        wrong = wanted.wrong(has_replicas=has_replicas)
        if wrong is not None:
            key, what, fix = wrong
            raise RefusedError(what, where=f"throttle, {key}", risk=NOTHING_CHANGED, remedy=fix)
        found = ThrottleWish(0, changes, wanted, by)
        # of two at the same time each keeps what the other one changed
        if store.move_note(name, NoteKind.THROTTLE, found.to_json(), expected=note):
            store.tell(name, f"throttle: {wanted} ({found.origin}), by {by}")
            return found


def throttle_wish(store: SqlStateStore, name: PipelineName) -> ThrottleWish | None:
    """Return what a person wants of the throttle, None if nobody ever wanted other limits."""
    note = store.note(name, NoteKind.THROTTLE)
    return None if note is None else ThrottleWish.from_json(note.at_us, note.form)
