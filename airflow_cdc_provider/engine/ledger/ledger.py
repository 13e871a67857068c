"""The ledger of one pipeline, in whatever store a sink keeps it.

Its rules are `decisions`, its tables or files the store's. Each method that changes it is one
commit, so a kill at any point leaves it as it was before or as it is after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from airflow_cdc_provider.core.conflicts import ConflictsOfTable, KeepsConflicts, NotedConflict
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger import decisions
from airflow_cdc_provider.engine.ledger.records import Records
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part, known
from airflow_cdc_provider.engine.ledger.store import (
    Ask,
    Hold,
    KeepsEdge,
    KnowsLockWaits,
    LedgerStore,
)

_NO_TABLES: Mapping[TableId, LogPosition] = MappingProxyType({})
_STREAM = Part.SLOTS | Part.STOPPED
_Decide = Callable[[LedgerState, int], Records]


class Ledger:
    """A pipeline's ledger, read and written under one generation."""

    def __init__(self, store: LedgerStore, generation: int) -> None:
        self._store = store
        self._by = generation

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    # --- ownership ----------------------------------------------------------------------------

    def take_over(self, generation: int) -> None:
        """Make `generation` the only one that may commit; `FencedError` if a newer one is there."""
        self._commit(decisions.take_over, by=generation, hold=Hold.ARRIVAL)
        self._by = generation

    def generation(self) -> int:
        """Return the generation that may commit, 0 for a pipeline that the ledger does not know."""
        return self._store.read(Part.OWNER).generation

    def require_owner(self) -> None:
        """Raise `FencedError` if another generation than this ledger's may commit."""
        decisions.require_owner(self._store.read(Part.OWNER), self._by)

    def lock_waits(self, *, from_s: int) -> Sequence[LockWait]:
        """Return the owner's writes that have waited for another session's lock for so long.

        None where the sink has no such locks, or does not tell.
        """
        store = self._store
        return store.lock_waits(from_s=from_s) if isinstance(store, KnowsLockWaits) else ()

    # --- conflicts ----------------------------------------------------------------------------

    def conflict_count(self) -> int:
        """Return how many rows were changed at both nodes of an edge; 0 where none is kept."""
        store = self._store
        return store.conflict_count() if isinstance(store, KeepsConflicts) else 0

    def conflicts(self, *, since_us: int = 0, most: int) -> Sequence[NotedConflict]:
        """Return the last `most` conflicts since a time, oldest first."""
        store = self._store
        if not isinstance(store, KeepsConflicts):
            return ()
        return store.conflicts(since_us=since_us, most=most)

    def conflicts_of_tables(self, *, since_us: int = 0) -> Sequence[ConflictsOfTable]:
        """Return how many conflicts of each table there were since a time, by the node kept."""
        store = self._store
        if not isinstance(store, KeepsConflicts):
            return ()
        return store.conflicts_of_tables(since_us=since_us)

    def edge(self) -> str:
        """Return as which edge of a topology the pipeline was last run, as text; empty for none."""
        store = self._store
        return store.edge() if isinstance(store, KeepsEdge) else ""

    def keep_edge(self, text: str) -> None:
        """Keep as which edge of a topology the pipeline is run, unless that is kept already."""
        store = self._store
        if isinstance(store, KeepsEdge) and store.edge() != text:
            store.keep_edge(text, by=self._by)

    # --- plan and splits ----------------------------------------------------------------------

    def plan_id(self) -> str:
        """Return the id of the plan whose splits are in the ledger, empty for none."""
        return self._store.read(Part.OWNER).plan_id

    def start_plan(self, plan_id: str) -> None:
        """Make a plan current, unless it is; this deletes older plans' splits and stream."""
        self._commit(lambda state, by: decisions.start_plan(state, by, plan_id))

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits."""
        return self._store.finished_ids()

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits and reports, except the ids in `but`."""
        return self._store.reports(but=but)

    # --- stream -------------------------------------------------------------------------------

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None before the hand-off.

        With several writer slots its start is the smallest slot's position.
        """
        return self._store.read(Part.SLOTS).stream

    def counts(self) -> StreamCounts:
        """Return how much the stream applied since the hand-off, and how old its last change is."""
        return self._store.counts()

    def table_changes(self) -> Mapping[TableId, TableChangeCount]:
        """Return the counts of changes of each source table that has any."""
        return self._store.changed_tables()

    def last_changes(self) -> Mapping[TableId, LogPosition]:
        """Return the position of each table's last change, or of its hand-off."""
        found = self._store.changed_tables(handed_off=True)
        return {table: count.position for table, count in found.items()}

    def store_stream(self, stream: StreamSplit, begun: Sequence[SchemaChange] = ()) -> None:
        """Store the stream split at hand-off; refused if the ledger's stream is further already.

        The schema changes that are `begun` with it are stored in its transaction, and what was read
        of its unread tables is forgotten.
        """
        if self._is_handed_off_as(stream):
            return  # without reading the reports, which may be many
        self._commit(
            lambda state, by: decisions.hand_off(state, by, stream, begun),
            _STREAM | Part.REPORTS | (Part.CHANGES if begun else Part.OWNER),
        )

    def _is_handed_off_as(self, stream: StreamSplit) -> bool:
        """Tell whether the stream is stored already; an older owner is refused."""
        found = self._store.read(Part.OWNER | Part.SLOTS)
        decisions.require_owner(found, self._by)
        return found.stream == stream

    def change_tables(
        self,
        *,
        added: Mapping[TableId, LogPosition] = _NO_TABLES,
        removed: Collection[TableId] = (),
        read: Collection[TableId] = (),
    ) -> StreamSplit:
        """Add tables to the stream, each from a position on, or remove others, at once.

        Added tables are unread until they are passed as `read`. A table that is there already stays
        as it is, so doing this again is harmless.
        """
        return self._commit(
            lambda state, by: decisions.change_tables(
                state, by, added=added, removed=removed, read=read
            ),
            _STREAM,
        ).required_stream()

    def go_on_from(self, position: LogPosition, begun: Collection[TableId]) -> StreamSplit:
        """Set the stream to a position, even an earlier one, from which some tables begin anew.

        For a source whose history is another one from there on. The other tables count as applied
        through that position, and no further; isolated tables stay isolated unless they are in
        `begun`.
        """
        return self._commit(
            lambda state, by: decisions.set_position(state, by, position, begun),
            _STREAM,
        ).required_stream()

    def keep_stop(self, stop: LogPosition | None, stop_by: str = "") -> StreamSplit:
        """Keep where the stream ends, and the file's words for that; None: it does not end."""
        return self._commit(
            lambda state, by: decisions.keep_stop(state, by, stop, stop_by), _STREAM
        ).required_stream()

    def pass_over(self, quiet: IdleRange) -> None:
        """Move every writer slot to the end of an idle range of the log, never back.

        The time of the last commit stays: the lag of the last change is worked out from it.
        """
        self._commit(
            lambda state, by: decisions.pass_over(state, by, quiet), Part.SLOTS, hold=Hold.LAST
        )

    # --- changes of definitions ---------------------------------------------------------------

    def open_changes(self) -> tuple[SchemaChange, ...]:
        """Return the schema changes that were begun and not ended, oldest first."""
        return known(self._store.read(Part.CHANGES).changes)

    def begin_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Store schema changes as begun, before anything is done about them; all or none."""
        self._commit(
            lambda state, by: decisions.begin_changes(state, by, changes),
            Part.CHANGES,
        )

    def end_change(self, change: SchemaChange) -> StreamSplit:
        """End a schema change: let the stream pass it, and store that it is done."""
        return self._commit(
            lambda state, by: decisions.end_change(state, by, change),
            _STREAM,
        ).required_stream()

    # --- isolated tables ----------------------------------------------------------------------

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that were taken out of the stream, each with its own position."""
        return known(self._store.read(Part.STOPPED).stopped)

    def stop_tables(
        self, tables: Collection[TableId], error: StoredError = NO_ERROR
    ) -> StreamSplit:
        """Take tables out of the stream at their positions, for an `error` or a person."""
        return self._commit(
            lambda state, by: decisions.stop(state, by, tables, error),
            Part.SLOTS,
        ).required_stream()

    def say_of_stopped(self, table: TableId, error: StoredError) -> None:
        """Store the error that keeps a stopped table stopped; empty: a person stopped it."""
        self._commit(
            lambda state, by: decisions.say_of_stopped(state, by, table, error),
            hold=Hold.LAST,
        )

    def rejoin(self, table: TableId) -> StreamSplit:
        """Put a stopped table back into the stream, whose position it has reached.

        One that has not come to the stream's position yet is a `SplitOutdatedError`.
        """
        return self._commit(
            lambda state, by: decisions.rejoin(state, by, table), _STREAM
        ).required_stream()

    def _commit(
        self,
        decide: _Decide,
        reads: Part = Part.OWNER,
        *,
        hold: Hold = Hold.FIRST,
        by: int | None = None,
    ) -> LedgerState:
        """Have the store decide and commit, on behalf of this generation or of one that comes."""
        owner = self._by if by is None else by
        return self._store.commit(Ask(owner, lambda state: decide(state, owner), reads, hold))
