"""What of the sink's changes the source has beaten, row by row: they count no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cdc_provider.core.conflicts import Conflict
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.engine.sink.row_identity import RowIdentity
    from airflow_cdc_provider.engine.sink.slot_store import SlotStore


class BeatenChanges:
    """Where the last change of each row is that the source has beaten, in the sink's log."""

    def __init__(self, store: SlotStore, src_node: str) -> None:
        self._store = store
        self._src_node = src_node
        self._of: dict[TableId, tuple[RowIdentity, dict[str, str]]] = {}
        """Of tables that were asked for, by the names of rows."""

    def places(
        self, table: TableId, identity: RowIdentity, unknown: Callable[[], set[str]]
    ) -> Mapping[str, str]:
        """Return the places by the names of rows.

        Of what was stored before counts only what the source does not know: changes at places
        among the `unknown`.
        """
        if table not in self._of or self._of[table][0] is not identity:
            left = unknown()
            stored = self._store.beaten(table, self._src_node)
            found = [(key, place) for key, place in stored if place in left]
            names = identity.names([key for key, _ in found])
            places = (place for _, place in found)
            self._of[table] = identity, dict(zip(names, places, strict=True))
        return self._of[table][1]

    def note(self, conflicts: Sequence[Conflict]) -> None:
        """Note the changes at the sink that were beaten now."""
        for conflict in conflicts:
            if conflict.kept == self._src_node and conflict.table in self._of:
                identity, places = self._of[conflict.table]
                places[identity.names([conflict.key])[0]] = conflict.sink.at
