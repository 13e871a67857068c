"""The writer slots of a stream in a MySQL-protocol sink: sessions, and rows of the ledger.

When the number of slots changes, they all begin at the smallest position; tables that one slot
had to itself keep theirs as their own "applied through".

A table that the stream leaves alone has one slot to itself, in a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import NONE_APART
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.engine.sink.slots import collapsed
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import ledger, stopped_rows, writers
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, create_ledger, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.marker_rows import MarkerRows, create_marker
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.sink_tables import sink_tables
from airflow_cdc_provider.systems.mysql.sink.slot_rows import (
    insert_slot,
    keep_apart,
    read_stream,
    slot_rows,
)
from airflow_cdc_provider.systems.mysql.sink.slot_store import MySqlSlotStore, SlotPlace
from airflow_cdc_provider.systems.mysql.sink.stored_splits import (
    delete_unused_splits,
    needs_cleanup,
)
from airflow_cdc_provider.systems.mysql.sink.table_drift import require_as_planned


@dataclass(frozen=True, slots=True)
class StoppedSlot:
    """The table that the stream leaves alone, whose slot it is."""

    table: TableId
    is_ahead: bool = False
    """It is defined at the sink already as the log is going to say."""


class MySqlChangeStore:
    """The writer slots of one pipeline; each has its own session."""

    def __init__(
        self,
        open_session: Callable[[], SinkSession],
        owner: Owner,
        captured: CapturedTables,
        *,
        slots: int = 1,
        stopped: StoppedSlot | None = None,
        edge: Topology | None = None,
    ) -> None:
        self._owner = owner
        self._stopped = None if stopped is None else stopped.table
        plans = tuple(captured.plans.values())
        self._sessions: list[SinkSession] = []
        opened = False
        try:
            self._sessions = [open_session() for _ in range(slots)]
            create_ledger(self._sessions[0])
            create_marker(self._sessions[0], edge)
            require_only_edge(self._sessions[0], owner, edge)
            self._locks = [writers.register_writer(session, owner) for session in self._sessions]
            if stopped is None:
                spread_over(self._sessions[0], owner, plans, slots)
            if stopped is None or not stopped.is_ahead:
                require_as_planned(
                    self._sessions[0],
                    owner,
                    captured.followed,
                    known=plans,
                    is_edge=edge is not None,
                )
            tables = sink_tables(self._sessions[0], [plan.sink_table for plan in plans])
            marker = MarkerRows(edge)
            guarded = edge.name_in_ledger if edge is not None and edge.is_guarded else ""
            self.slots = [
                MySqlSlotStore(
                    session, owner, tables, SlotPlace(slot, slots, self._stopped, guarded), marker
                )
                for slot, session in enumerate(self._sessions)
            ]
            opened = True
        finally:
            if not opened:
                self._close_sessions()

    def close(self) -> None:
        """Close the writers' sessions; an open transaction is rolled back."""
        for session, lock in zip(self._sessions, self._locks, strict=True):
            writers.unregister_writer(session, lock)
        self._close_sessions()

    def _close_sessions(self) -> None:
        """Close all sessions."""
        for session in self._sessions:
            session.close()

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None if not stored."""
        if self._stopped is None:
            return read_stream(self._sessions[0], self._owner)
        found = stopped_rows.stopped_tables(self._sessions[0], self._owner)
        return next((each.stream for each in found if each.table == self._stopped), None)


def require_only_edge(session: SinkSession, owner: Owner, edge: Topology | None) -> None:
    """Refuse an edge whose name in the ledger another pipeline has: one would be taken for both."""
    if edge is None or not edge.is_guarded:
        return
    found = session.rows(
        f"SELECT DISTINCT pipeline FROM {LEDGER}.stream WHERE edge = "
        f"{literal(edge.name_in_ledger)} AND NOT {pipeline_is(owner.pipeline)}"
    )
    if found:
        raise RefusedError(
            f"pipeline {found[0][0]} is the edge from {edge.src_node} to {edge.dst_node} of a "
            f"topology {edge.name}, too",
            where=f"ledger of {owner.pipeline} on {session.where}",
            risk="what one of them brings would be taken for the other's, and conflicts would be "
            "overlooked; nothing was written",
            remedy=f"give one topology another name, and begin it anew, or `drop` {found[0][0]}",
        )


def spread_over(session: SinkSession, owner: Owner, plans: Sequence[TablePlan], slots: int) -> None:
    """Rewrite the ledger's writer slots to exactly `slots`, unless there are that many already."""
    mine = pipeline_is(owner.pipeline)

    def spread() -> None:
        ledger.check_generation(session, owner)
        rows = slot_rows(session, owner, lock="FOR UPDATE")
        ledger.check_generation(session, owner, lock="FOR UPDATE")
        if len(rows) in (0, slots):
            apart = rows[0].apart if rows else NONE_APART
            left = apart.passed(rows[0].position) if apart else apart
            if left != apart:
                keep_apart(session, owner, left)
            if needs_cleanup(session, owner):
                delete_unused_splits(session, owner)
            return
        stream = collapsed(rows, plans)
        session.execute(f"DELETE FROM {LEDGER}.stream WHERE {mine}")
        for slot in range(slots):
            insert_slot(session, owner, stream, slot=slot, slots=slots)
        delete_unused_splits(session, owner)

    session.transaction(spread)
