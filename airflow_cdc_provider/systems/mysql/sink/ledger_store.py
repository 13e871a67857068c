"""The ledger's store in a MySQL-protocol sink: rows that are written with the rows they speak of.

**Fencing.** One row a pipeline holds the generation that may commit. Every transaction that
writes rows ends with `claim_commit`: it reads that row FOR SHARE, in its own transaction, as its
last statement before COMMIT. A new owner moves the generation on by an exclusive update. So the
update waits for commits that have passed their check, and a writer that checks later finds the
new generation and rolls back. It does not matter how long ago a writer began: a zombie may have
written rows, but they are never committed. Checking at the end, not at the beginning, keeps the
new owner from waiting for a long transaction; moving the generation also ends the sessions of older
ones (see `writers`), whose row locks would otherwise stand in the way.

**Order of locks.** The rows of writers come first, the generation's row last, as in each writer's
own transaction: slots in their order, then stopped tables. Whoever changes the ledger waits for a
batch that is under way, and neither undoes the other.

**Stream progress.** A row a slot holds the position, and names the stream split, which can be
large: see `stored_splits`. A split is stored at hand-off and again only when half of its tables, or
the last ones, have become consistent; what lies between follows from it and the position
(`StreamSplit.passed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from airflow_cdc_provider.core.conflicts import ConflictsOfTable, NotedConflict
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.core.many_records import gc_paused
from airflow_cdc_provider.core.splits import split_id
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.engine.ledger.decisions import require_owner
from airflow_cdc_provider.engine.ledger.records import GenerationMoved, Records
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part
from airflow_cdc_provider.engine.ledger.store import Ask, Hold
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink import conflict_rows, ledger, writers
from airflow_cdc_provider.systems.mysql.sink.change_counts import read_changes
from airflow_cdc_provider.systems.mysql.sink.ledger_records import RecordWriter
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import (
    LEDGER,
    NOW_US,
    create_ledger,
    pipeline_is,
)
from airflow_cdc_provider.systems.mysql.sink.lock_waits import lock_waits
from airflow_cdc_provider.systems.mysql.sink.schema_change_rows import open_changes
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import slot_rows
from airflow_cdc_provider.systems.mysql.sink.stopped_rows import stopped_tables

_WRITERS = Part.SLOTS | Part.STOPPED
"""What writers lock before they hold the generation."""


class MySqlLedgerStore:
    """One pipeline's ledger in a MySQL-protocol sink, over a session of its own."""

    def __init__(self, session: SinkSession, owner: Owner) -> None:
        self._session = session
        self._owner = owner
        self._mine = pipeline_is(owner.pipeline)
        create_ledger(session)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def lock_waits(self, *, from_s: int) -> Sequence[LockWait]:
        """Return the owner's writers that have waited for a table's lock for so many seconds."""
        return lock_waits(self._session, self._owner, from_s=from_s)

    def conflict_count(self) -> int:
        """Return how many conflicts of the pipeline are kept."""
        return conflict_rows.count(self._session, self._owner)

    def conflicts(self, *, since_us: int, most: int) -> Sequence[NotedConflict]:
        """Return the last `most` of the pipeline's conflicts since a time, oldest first."""
        return conflict_rows.read(self._session, self._owner, since_us=since_us, most=most)

    def conflicts_of_tables(self, *, since_us: int) -> Sequence[ConflictsOfTable]:
        """Return how many conflicts of each table there were since a time, by the node kept."""
        return conflict_rows.of_tables(self._session, self._owner, since_us=since_us)

    def edge(self) -> str:
        """Return as which edge of a topology the pipeline was last run, as text; empty for none."""
        rows = self._session.rows(f"SELECT edge FROM {LEDGER}.pipeline WHERE {self._mine}")
        return str(rows[0][0] or "") if rows else ""

    def keep_edge(self, text: str, *, by: int) -> None:
        """Keep as which edge the pipeline is run; `FencedError` if `by` may not commit."""
        owner = replace(self._owner, generation=by)

        def keep() -> None:
            self._session.execute(
                f"UPDATE {LEDGER}.pipeline SET edge = {text_literal(text)} WHERE {self._mine}"
            )
            ledger.claim_commit(self._session, owner)

        self._session.transaction(keep)

    def read(self, parts: Part) -> LedgerState:
        """Return these parts as last committed; nothing is locked."""
        if Part.OWNER in parts:
            state = ledger.read_owner(self._session, self._owner)
        else:
            state = LedgerState(ledger.place_of(self._session, self._owner))
        return self._with_parts(state, parts)

    def commit(self, ask: Ask) -> LedgerState:
        """Lock the generation, read what the decision needs, decide and write, at once."""
        owner = Owner(self._owner.pipeline, ask.by)
        state, records = self._session.transaction(lambda: self._commit(ask, owner))
        if any(isinstance(record, GenerationMoved) for record in records):
            self._owner = owner
            writers.end_older(self._session, owner)
        return state

    def _commit(self, ask: Ask, owner: Owner) -> tuple[LedgerState, Records]:
        """Decide and write within a transaction; return the state after it, and the records."""
        if ask.hold is Hold.ARRIVAL:
            self._session.execute(
                f"INSERT IGNORE INTO {LEDGER}.pipeline (pipeline) "
                f"VALUES ({literal(str(owner.pipeline))})"
            )
        parts = ask.reads
        if ask.hold is Hold.ARRIVAL:
            state = ledger.read_owner(self._session, owner, lock="FOR UPDATE")
        else:
            state = ledger.read_owner(self._session, owner)
            require_owner(state, ask.by)  # before it waits for the writers of a newer one
            state = self._with_parts(state, parts & _WRITERS, lock="FOR UPDATE")
            parts &= ~_WRITERS
        if ask.hold is Hold.FIRST:
            held = ledger.read_owner(self._session, owner, lock="FOR UPDATE")
            require_owner(held, ask.by)
            state = replace(state, generation=held.generation, plan_id=held.plan_id)
        state = self._with_parts(state, parts)
        records = ask.decide(state)
        writer = RecordWriter(self._session, owner, state)
        for record in records:
            writer.write(record)
        if records and ask.hold is not Hold.ARRIVAL:
            ledger.claim_commit(self._session, owner)
        return state.with_records(records), records

    def _with_parts(self, state: LedgerState, parts: Part, *, lock: str = "") -> LedgerState:
        """Return the state with these parts read; `lock` is a clause that locks writers' rows."""
        session, owner = self._session, self._owner
        if Part.SLOTS in parts:
            state = replace(state, slots=tuple(slot_rows(session, owner, lock=lock)))
        if Part.STOPPED in parts:
            state = replace(state, stopped=stopped_tables(session, owner, lock=lock))
        if Part.CHANGES in parts:
            state = replace(state, changes=open_changes(session, owner.pipeline))
        if Part.REPORTS in parts:
            state = replace(state, reports=tuple(self.reports()))
        return state

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits."""
        rows = self._session.rows(
            f"SELECT table_name, number FROM {LEDGER}.finished_split WHERE {self._mine}"
        )
        return {split_id(*row) for row in rows}

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits and reports, except the ids in `but`."""
        rows = self._session.rows(
            f"SELECT split, report, table_name, number FROM {LEDGER}.finished_split "
            f"WHERE {self._mine} ORDER BY table_name, number"
        )
        with gc_paused():
            return [ledger.report_of(row) for row in rows if split_id(*row[2:]) not in but]

    def counts(self) -> StreamCounts:
        """Return how much the stream applied since the hand-off, and how old its last change is.

        Each writer slot counts every change of a batch, so the largest is the number.
        """
        found = self._session.rows(
            "SELECT MAX(batch), MAX(changes), MAX(transactions), MAX(source_committed_us), "
            f"{NOW_US} FROM {LEDGER}.stream WHERE {self._mine}"
        )
        batches, changes, transactions, source_us, now_us = (int(str(n or 0)) for n in found[0])
        age_us = max(0, now_us - source_us) if source_us else None
        return StreamCounts(batches, changes, transactions, age_us)

    def changed_tables(self, *, handed_off: bool = False) -> Mapping[TableId, TableChangeCount]:
        """Return how much each table was changed; `handed_off` adds those that were not since."""
        return read_changes(self._session, self._owner, handed_off=handed_off)
