"""How many conflicts an edge has settled, told to the state store as the ledger counts them."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import NoteKind

TELL_EVERY_S = 600.0


class ConflictCount:
    """Notes how many conflicts there are, and tells of new ones by an event now and then."""

    def __init__(
        self,
        store: StateStore,
        name: PipelineName,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        note = store.note(name, NoteKind.CONFLICTS)
        form = {} if note is None else note.form
        self._noted = int(form.get("count", 0))
        self._told = int(form.get("told", self._noted))
        self._tell_s = 0.0

    def tell(self, count: int) -> None:
        """Note a count; more than was told of is an event, ten minutes after the last one."""
        now_s, new = self._clock(), count - self._told
        is_time = new > 0 and now_s >= self._tell_s
        if count == self._noted and not is_time:
            return
        self._noted = count
        if is_time or new < 0:
            self._told = count
        self._store.keep_note(self._name, NoteKind.CONFLICTS, {"count": count, "told": self._told})
        if is_time:
            self._tell_s = now_s + TELL_EVERY_S
            rows = counted(new, "row was", "rows were")
            text = f"{rows} changed at both nodes and settled; `conflicts` lists them"
            self._store.tell(self._name, text, level="warning")
