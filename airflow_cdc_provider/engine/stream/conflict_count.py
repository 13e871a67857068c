"""How many conflicts an edge has settled, told to the state store as the ledger counts them."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import NoteKind


class ConflictCount:
    """Notes how many conflicts there are, and tells of new ones by an event."""

    def __init__(self, store: StateStore, name: PipelineName) -> None:
        self._store = store
        self._name = name
        note = store.note(name, NoteKind.CONFLICTS)
        self._noted = 0 if note is None else int(note.form["count"])

    def tell(self, count: int) -> None:
        """Note a count; more than before is an event, too."""
        if count == self._noted:
            return
        new, self._noted = count - self._noted, count
        self._store.keep_note(self._name, NoteKind.CONFLICTS, {"count": count})
        if new > 0:
            text = f"{new} rows were changed at both nodes and settled; `conflicts` lists them"
            self._store.tell(self._name, text, level="warning")
