"""What the engine asks of a sink for an edge, kept in a node of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.conflicts import Conflict, Values
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.markers import Marker
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.ledger.state import Slot
from airflow_cdc_provider.engine.sink.join_sink import RowDiff
from airflow_cdc_provider.engine.sink.port import JoinedSplit
from airflow_cdc_provider.engine.sink.selection import FewWork, Selection, TableBatch
from airflow_cdc_provider.engine.sink.slot_store import LookAtOthers, SlotOutcome, SlotRow
from tests.engine.nodes.node import EdgeLedger, NodeSession, StoppedRow
from tests.engine.nodes.rows import PLANS, Row, batch_of, from_columns, is_in, keys_of


class NoTexts:
    """No key of the model is a text."""

    def of(self, kind: ColumnType, texts: Sequence[str]) -> Sequence[bytes]:
        raise NotImplementedError


@dataclass(frozen=True)
class Writing:
    """How an edge writes rows."""

    upserts: bool = True
    """A row takes the place of the one with its key; else that is deleted first."""
    at_once: bool = True
    """Small batches are committed at once."""
    rewrites: bool = False
    """Rows that are read again are not compared with those that are there: all are written."""


class NodeSlotStore:
    """The one writer slot of an edge."""

    def __init__(
        self,
        session: NodeSession,
        edge: Topology,
        writing: Writing,
        stopped: TableId | None = None,
    ) -> None:
        self.session = session
        self._edge = edge
        self._writing = writing
        self._stopped = stopped
        self._ledger = session.node.ledgers[edge.name_in_ledger]

    def locked_row(self) -> SlotRow:
        self.session.step()
        ledger = self._ledger
        if self._stopped is not None:
            alone = ledger.stopped[self._stopped]
            return SlotRow(alone.stream.start, "", alone.stream, alone.knew)
        return SlotRow(ledger.position, "", ledger.stream, ledger.knew)

    def mark(self, origins: frozenset[str]) -> None:
        edge = self._edge
        self.session.mark([Marker(origin, edge.src_node, edge.dst_node) for origin in origins])

    def write(self, work: TableBatch) -> None:
        self.session.interrupts.happen("before write")
        for table in work.tables:
            deletes = table.merged.deletes.column("id").to_pylist()
            self._write(table.plan, deletes, from_columns(table.merged.upserts))
        self.session.interrupts.happen("after write")

    def _write(self, plan: TablePlan, deletes: Sequence[int], upserts: Sequence[Row]) -> None:
        table = plan.schema.table
        for key in deletes:
            self.session.put(table, key, None)
        if not self._writing.upserts:
            for row in upserts:
                self.session.put(table, row[0], None)
        for row in upserts:
            self.session.put(table, row[0], row)

    def move(self, outcome: SlotOutcome, anew: StreamSplit | None) -> None:
        ledger, session = self._ledger, self.session
        name = self._edge.name_in_ledger if self._edge.is_guarded else ""
        if self._stopped is not None:
            self._move_alone(ledger.stopped[self._stopped], outcome, self._stopped)
            return
        session.moved = (name, KnownLog(outcome.end, ledger.apart))

        def moved() -> None:
            ledger.position, ledger.knew = outcome.end, outcome.knew or ledger.knew
            ledger.stream = anew or ledger.stream
            ledger.is_named = bool(name)

        session.at_commit(moved)

    def _move_alone(self, alone: StoppedRow, outcome: SlotOutcome, table: TableId) -> None:
        """Move a table that the stream leaves alone, and say so in the stream's row."""
        ledger, session = self._ledger, self.session
        apart = ledger.apart.moved(table, outcome.end)
        session.moved = (self._edge.name_in_ledger, KnownLog(ledger.position, apart))

        def moved() -> None:
            alone.stream = replace(alone.stream, start=outcome.end).passed(outcome.end)
            alone.knew = outcome.knew or alone.knew
            ledger.apart = apart
            ledger.is_named = True

        session.at_commit(moved)

    def set_savepoint(self) -> None:
        self.session.step()
        self.session.set_savepoint()

    def undo_to_savepoint(self) -> None:
        self.session.step()
        self.session.undo_to_savepoint()

    def note_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        self.session.at_commit(lambda: self._ledger.conflicts.extend(conflicts))

    def text_weights(self) -> NoTexts:
        return NoTexts()

    def beaten(self, table: TableId, node: str) -> Sequence[tuple[Values, str]]:
        found = [
            each for each in self._ledger.conflicts if (each.table, each.kept) == (table, node)
        ]
        return [*{each.key["id"]: (each.key, each.sink.at) for each in found}.values()]

    def commit_at_once(
        self,
        selection: Selection,
        row: SlotRow,
        end: LogPosition,
        *,
        look: LookAtOthers | None = None,
    ) -> SlotOutcome | None:
        if not self._writing.at_once or self._stopped is not None:
            return None
        few = selection.few_work(row.position, row.stream)
        kept = few if few is None or look is None else look.without_lost(few)
        if few is not None and kept is not None:
            return self._committed(selection, (row, end), few, kept, look)
        work = selection.work(row.position, row.stream)
        written = work if look is None else look.without_lost(work)
        if written is None:
            return None
        return self._committed(selection, (row, end), work, written, look)

    def _committed(
        self,
        selection: Selection,
        place: tuple[SlotRow, LogPosition],
        work: TableBatch | FewWork,
        kept: TableBatch | FewWork,
        look: LookAtOthers | None,
    ) -> SlotOutcome | None:
        """Commit what is kept of a batch's work; None if nothing was."""
        row, end = place
        outcome = replace(SlotOutcome.of(row.position, work), end=end, knew=selection.knew)
        self.session.begin()
        try:
            if self._ledger.position != row.position:
                return None
            self.mark(selection.batch.origins)
            if isinstance(kept, FewWork):
                self.session.interrupts.happen("before write")
                for table in kept.tables:
                    deletes = [int(key[0] or 0) for key in table.merged.deletes]
                    self._write(table.plan, deletes, table.merged.upserts)  # type: ignore[arg-type]
                self.session.interrupts.happen("after write")
            else:
                self.write(kept)
            self.move(outcome, None)
            conflicts = None if look is None else look.conflicts()
            if look is not None and conflicts is None:
                return None
            self.note_conflicts(conflicts or ())
            self.session.commit()
            return outcome
        finally:
            self.session.rollback()


class NodeChangeStore:
    """The writer slots of an edge's stream: one."""

    def __init__(
        self,
        session: NodeSession,
        edge: Topology,
        writing: Writing,
        stopped: TableId | None = None,
    ) -> None:
        self.slots = [NodeSlotStore(session, edge, writing, stopped)]
        self._ledger = session.node.ledgers[edge.name_in_ledger]
        self._stopped = stopped

    def stream(self) -> StreamSplit | None:
        if self._stopped is not None:
            return self._ledger.stopped[self._stopped].stream
        return self._ledger.stream.passed(self._ledger.position)

    def close(self) -> None:
        self.slots[0].session.close()


class NodeJoinLedger:
    """What an edge's ledger keeps of joins."""

    def __init__(self, session: NodeSession, ledger: EdgeLedger) -> None:
        self._session = session
        self._ledger = ledger

    def begin_epoch(self, request: str, tables: Collection[TableId]) -> int:
        epochs = self._ledger.epochs
        epoch = 1 + max((at for (name, _), at in epochs.items() if name == request), default=0)
        new = {(request, table): epoch for table in tables}
        self._session.at_commit(lambda: epochs.update(new))
        return epoch

    def held_epoch(self, request: str, table: TableId) -> int:
        self._session.step()
        return self._ledger.epochs.get((request, table), 0)

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        found = self._ledger.joined
        return tuple(found[place][0] for place in sorted(found) if place[0] == request)

    def joined_as(self, request: str, split: SnapshotSplit) -> JoinedSplit | None:
        self._session.step()
        found = self._ledger.joined.get((request, split.table, split.number))
        return None if found is None else found[0]

    def freed_keys(self, request: str, table: TableId) -> Iterator[pa.Table]:
        raise NotImplementedError

    def forget(self, request: str) -> None:
        raise NotImplementedError

    def slots(self, *, hold: bool = False) -> Sequence[Slot]:
        self._session.step()
        return [Slot(self._ledger.position, self._ledger.stream)]

    def knew(self) -> KnownLog | None:
        self._session.step()
        return self._ledger.knew

    def owns(self, table: TableId) -> bool:
        return table not in self._ledger.stopped

    def store_joined(self, request: str, joined: JoinedSplit, freed: Sequence[pa.Table]) -> None:
        place = (request, joined.split.table, joined.split.number)
        self._session.at_commit(lambda: self._ledger.joined.update({place: (joined, (*freed,))}))

    def store_read(self, table: TableId, slots: Sequence[Slot]) -> None:
        raise NotImplementedError

    def claim(self) -> None:
        self._session.step()


class NodeJoinRows:
    """The rows that joins replace."""

    def __init__(self, session: NodeSession, writing: Writing) -> None:
        self._session = session
        self._writing = writing

    def plan_of(self, table: TableId) -> TablePlan:
        return PLANS[table]

    def require_as_planned(self, table: TableId) -> None:
        self._session.step()

    def _range(self, split: SnapshotSplit) -> dict[int, Row]:
        rows = self._session.node.rows[split.table]
        return {key: row for key, row in rows.items() if is_in(split, row)}

    def difference(self, split: SnapshotSplit, wanted: SplitRows) -> RowDiff | None:
        self._session.step()
        if self._writing.rewrites:
            return None
        held, rows = self._range(split), [*map(from_columns, wanted.batches())]
        new = {row[0]: row for found in rows for row in found}
        stale = [key for key, row in held.items() if new.get(key) != row]
        missing = [row for key, row in new.items() if held.get(key) != row]
        return RowDiff(keys_of(stale), batch_of(missing))

    def take_away(self, table: TableId, keys: pa.RecordBatch, stamp: RowStamp) -> None:
        self.delete_keys(table, keys)

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        for key in self._range(split):
            self._session.put(split.table, key, None)

    def delete_keys(self, table: TableId, keys: pa.RecordBatch) -> None:
        self._session.interrupts.happen("before write")
        for key in keys.column("id").to_pylist():
            self._session.put(table, key, None)

    def insert(self, table: TableId, rows: pa.RecordBatch) -> None:
        for row in from_columns(rows):
            assert self._session.held(table, row[0]) is None, "a row meets an old one"
            self._session.put(table, row[0], row)
        self._session.interrupts.happen("after write")

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        for batch in rows.batches():
            self.insert(split.table, batch)
        return rows.rows

    def free_unique_values(
        self,
        table: TableId,
        rows: SplitRows,
        *,
        within: Sequence[KeyRange],
        kept: Sequence[KeyRange],
    ) -> Sequence[pa.Table]:
        raise NotImplementedError

    def keys_in(self, split: SnapshotSplit, most: int) -> pa.Table:
        self._session.step()
        return pa.Table.from_batches([keys_of(sorted(self._range(split)))])

    def no_keys(self, table: TableId) -> pa.Table:
        return pa.Table.from_batches([keys_of([])])


class NodeJoinStore:
    """One session of an edge for its joins."""

    def __init__(self, session: NodeSession, edge: Topology, writing: Writing) -> None:
        self.session = session
        self.ledger = NodeJoinLedger(session, session.node.ledgers[edge.name_in_ledger])
        self.rows = NodeJoinRows(session, writing)
        self._edge = edge

    def mark(self) -> None:
        edge = self._edge
        self.session.mark([Marker(edge.src_node, edge.src_node, edge.dst_node)])

    def text_weights(self) -> NoTexts:
        return NoTexts()

    def close(self) -> None:
        self.session.close()
