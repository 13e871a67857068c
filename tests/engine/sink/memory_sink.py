"""A sink in memory whose transactions hold rows and ledger: all that `engine.sink` asks of one.

What a transaction is to do is noted down, and done at once when it commits, or not at all. So
nothing waits for a lock: what a session has read must still be so when it commits, or its
transaction is undone and tried again, as after a deadlock.

A fuse counts what a sink is asked for, and ends its session when it has burnt down: in front of
that act, or behind a commit whose answer is then lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.conflicts import Conflict, Values
from airflow_cdc_provider.core.errors import SinkBusyError, SinkUnreachableError
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_counts import NO_ROWS, RowCounts
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.decisions import require_owner
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.ledger.records import (
    ChangesCounted,
    PlanBegun,
    Record,
    SlotsRewritten,
    SplitPublished,
    TableStopped,
)
from airflow_cdc_provider.engine.ledger.state import (
    LedgerState,
    Part,
    Place,
    Slot,
    known,
    no_stream,
)
from airflow_cdc_provider.engine.ledger.store import Ask, Hold
from airflow_cdc_provider.engine.sink.change_sink import SlotChangeSink
from airflow_cdc_provider.engine.sink.join_sink import RowDiff, StreamJoinSink
from airflow_cdc_provider.engine.sink.port import JoinedSplit, Owner, SinkAbilities
from airflow_cdc_provider.engine.sink.row_identity import Weights
from airflow_cdc_provider.engine.sink.selection import CapturedTables, Selection, TableBatch
from airflow_cdc_provider.engine.sink.session import Result
from airflow_cdc_provider.engine.sink.slot_store import LookAtOthers, SlotOutcome, SlotRow
from airflow_cdc_provider.engine.sink.slots import collapsed, part_of
from airflow_cdc_provider.engine.sink.split_sink import RangeSplitSink

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
TRIES = 50
NOTHING_APPLIED = StreamCounts()
ABILITIES = SinkAbilities(
    transactional=True,
    upserts=True,
    needs_exact_filter=False,
    takes_native_chunks=False,
    verifiable=False,
    joins=True,
    isolates_tables=True,
)


@dataclass(frozen=True)
class Content:
    """All that is committed. Nothing in it is changed: a commit makes another one."""

    state: LedgerState
    rows: Mapping[TableId, Mapping[Any, Row]]
    """Of each table of the sink its rows by their key."""
    joined: Mapping[tuple[str, TableId, int], tuple[JoinedSplit, tuple[pa.Table, ...]]]
    epochs: Mapping[tuple[str, TableId], int]
    counts: Mapping[TableId, TableChangeCount]
    stream: StreamCounts = NOTHING_APPLIED


@dataclass
class Memory:
    """What all sessions share."""

    pipeline: PipelineName
    content: Content = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)
    before_commit: Callable[[], object] | None = None
    """What somebody else does just before the next transaction commits."""

    def __post_init__(self) -> None:
        state = LedgerState(Place(self.pipeline, "memory"), 0, "", (), (), (), ())
        self.content = Content(state, {}, {}, {}, {})


Act = Callable[[Content], Content]


@dataclass
class Session:
    """One connection: what its open transaction is to do, and what must be so for it."""

    memory: Memory
    fuse: int | None = None
    """How many more acts it lives for."""
    _acts: list[Act] = field(default_factory=list)
    _is_open: bool = False
    _is_lost: bool = False
    _is_marked: bool = False
    where: str = "memory"

    @property
    def content(self) -> Content:
        self.step()
        return self.memory.content

    def step(self) -> None:
        """Burn the fuse."""
        if self.fuse is not None:
            self.fuse -= 1
        if self._is_lost or self.fuse == 0:
            self._is_lost = True
            raise SinkUnreachableError("the session was ended", "memory", "none", "nothing")

    def note(self, act: Act) -> None:
        """Do it when the transaction commits."""
        self.step()
        self._acts.append(act)

    def mark(self) -> None:
        """The open transaction is marked; no row was changed in it."""
        assert self._is_open, "no transaction is open"
        self.step()
        self._is_marked = True

    def change_rows(self, act: Act) -> None:
        """Change rows when the transaction commits, which has to be marked by now."""
        assert self._is_marked, "a row is changed in a transaction without a marker"
        self.note(act)

    def expect(self, what: Callable[[Content], object]) -> None:
        """What is so now must be so when the transaction commits."""
        found = what(self.memory.content)

        def check(content: Content) -> Content:
            if what(content) != found:
                raise SinkBusyError("another session was first", "memory", "none", "nothing")
            return content

        self.note(check)

    def begin(self) -> None:
        self.step()
        assert not self._is_open, "a transaction is open already"
        self._is_open = True

    def commit(self) -> None:
        assert self._is_open
        self.step()
        overtake, self.memory.before_commit = self.memory.before_commit, None
        if overtake is not None:
            overtake()
        with self.memory.lock:
            content = self.memory.content
            for act in self._acts:
                content = act(content)
            self.memory.content = content
        self.rollback()
        self.step()  # the answer

    def rollback(self) -> None:
        self._acts, self._is_open, self._is_marked = [], False, False

    def transaction(self, work: Callable[[], Result]) -> Result:
        for attempt in range(TRIES):
            try:
                self.begin()
                result = work()
                self.commit()
                return result
            except SinkBusyError:
                if attempt + 1 == TRIES:
                    raise
            finally:
                self.rollback()
        raise AssertionError

    def close(self) -> None:
        self.rollback()
        self._is_lost = True

    def require_owner(self, by: int) -> None:
        """Only this generation may commit; looked at now, and at the commit."""
        require_owner(self.content.state, by)

        def check(content: Content) -> Content:
            require_owner(content.state, by)
            return content

        self.note(check)


@dataclass
class MemoryLedgerStore:
    """The ledger's store."""

    session: Session

    def read(self, parts: Part) -> LedgerState:
        return _only(self.session.content.state, parts)

    def commit(self, ask: Ask) -> LedgerState:
        with self.session.memory.lock:
            state = self.session.content.state
            if ask.hold is not Hold.ARRIVAL:
                require_owner(state, ask.by)
            records = ask.decide(_only(state, ask.reads))
            if records and ask.hold is not Hold.ARRIVAL:
                require_owner(self.session.content.state, ask.by)
            self.session.begin()
            for record in records:
                self.session.note(partial(_with_record, record))
            self.session.commit()
            return _only(self.session.memory.content.state, ask.reads)

    def finished_ids(self) -> AbstractSet[str]:
        return {split.split_id for split, _ in known(self.session.content.state.reports)}

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        reports = known(self.session.content.state.reports)
        return [each for each in reports if each[0].split_id not in but]

    def counts(self) -> StreamCounts:
        stream = self.session.content.stream  # whose age is from the beginning of time
        if stream.age_us is None:
            return stream
        return replace(stream, age_us=time.time_ns() // 1000 - stream.age_us)

    def changed_tables(self, *, handed_off: bool = False) -> Mapping[TableId, TableChangeCount]:
        found = self.session.content.counts
        return {table: each for table, each in found.items() if handed_off or each.changes}

    def close(self) -> None:
        self.session.close()


def _only(state: LedgerState, parts: Part) -> LedgerState:
    """The parts that were asked for."""
    return replace(
        state,
        reports=state.reports if Part.REPORTS in parts else None,
        slots=state.slots if Part.SLOTS in parts else None,
        stopped=state.stopped if Part.STOPPED in parts else None,
        changes=state.changes if Part.CHANGES in parts else None,
    )


def _with_record(record: Record, content: Content) -> Content:
    state = content.state.with_record(record)
    content = replace(content, state=state)
    if isinstance(record, TableStopped):
        stopped = [replace(each, since_us=each.since_us or 1) for each in known(state.stopped)]
        return replace(content, state=replace(state, stopped=tuple(stopped)))
    if isinstance(record, PlanBegun):
        return replace(content, joined={}, epochs={}, counts={}, stream=StreamCounts())
    if isinstance(record, ChangesCounted):
        for table, count in record.tables.items():
            content = counted(content, table, count, NO_ROWS, record.position)
    return content


def counted(
    content: Content,
    table: TableId,
    count: int,
    rows: RowCounts,
    position: LogPosition,
    changed_us: int = 0,
) -> Content:
    before = content.counts.get(table, TableChangeCount(0, position))
    after = TableChangeCount(
        before.changes + count,
        position,
        before.rows + rows,
        max(before.changed_us, changed_us),
    )
    return replace(content, counts={**content.counts, table: after})


@dataclass
class MemoryRows:
    """Rows of tables, in a session's transaction."""

    session: Session
    plans: Mapping[TableId, TablePlan]

    def plan_of(self, table: TableId) -> TablePlan:
        return self.plans[table]

    def require_as_planned(self, table: TableId) -> None:
        """Nobody else changes a table."""
        self.session.step()

    def in_range(self, split: SnapshotSplit) -> list[Row]:
        rows = self.session.content.rows.get(self.plans[split.table].sink_table, {})
        return [row for key, row in rows.items() if split.keys.contains(key)]

    def take_away(self, table: TableId, keys: pa.RecordBatch, stamp: RowStamp) -> None:
        self.delete_keys(table, keys)

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        self._change(
            split.table,
            lambda held: {k: row for k, row in held.items() if not split.keys.contains(k)},
        )

    def delete_keys(self, table: TableId, keys: pa.RecordBatch) -> None:
        names = self.plans[table].target.primary_key
        gone = set(zip(*(keys.column(name).to_pylist() for name in names), strict=True))
        self._change(table, lambda rows: {k: row for k, row in rows.items() if k not in gone})

    def insert(self, table: TableId, rows: pa.RecordBatch) -> None:
        new, plan = self._keyed(table, [rows]), self.plans[table]

        def inserted(held: Mapping[Any, Row]) -> Mapping[Any, Row]:
            assert not held.keys() & new.keys(), "a row meets an old one"
            found = {**held, **new}
            for unique in plan.target.unique_keys:
                place = [column.name for column in plan.target.columns].index(unique.name)
                values = [row[place] for row in found.values()]
                assert len(values) == len(set(values)), f"two rows have one {unique.name}"
            return found

        self._change(table, inserted)

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        for batch in rows.batches():
            self.insert(split.table, batch)
        return rows.rows

    def difference(self, split: SnapshotSplit, wanted: SplitRows) -> RowDiff | None:
        """Cannot tell: all is written."""
        self.session.step()
        return None

    def free_unique_values(self, *_: object, **__: object) -> Sequence[pa.Table]:
        raise AssertionError("no row is refused here")

    def keys_in(self, split: SnapshotSplit, most: int) -> pa.Table:
        raise NotImplementedError

    def no_keys(self, table: TableId) -> pa.Table:
        raise NotImplementedError

    def _keyed(self, table: TableId, batches: Sequence[pa.RecordBatch]) -> dict[Any, Row]:
        names = self.plans[table].target.primary_key
        found = {}
        for batch in batches:
            for row in batch.to_pylist():
                found[tuple(row[name] for name in names)] = tuple(row.values())
        return found

    def _change(
        self, table: TableId, change: Callable[[Mapping[Any, Row]], Mapping[Any, Row]]
    ) -> None:
        name = self.plans[table].sink_table

        def act(content: Content) -> Content:
            rows = change(content.rows.get(name, {}))
            return replace(content, rows={**content.rows, name: rows})

        self.session.change_rows(act)


@dataclass
class MemorySlotStore:
    """One writer slot."""

    session: Session
    rows: MemoryRows
    by: int
    slot: int
    slots: int

    def locked_row(self) -> SlotRow:
        self.session.require_owner(self.by)
        state = self.session.content.state
        slots = known(state.slots)
        if self.slot >= len(slots):
            raise no_stream(state.place)
        self.session.expect(lambda content: known(content.state.slots)[self.slot : self.slot + 1])
        return SlotRow(slots[self.slot].position, "", slots[self.slot].stored)

    def mark(self, origins: frozenset[str]) -> None:
        self.session.mark()

    def write(self, work: TableBatch) -> None:
        for table in work.tables:
            mine = part_of(table, self.slot, self.slots)
            name = table.plan.schema.table
            key = list(table.plan.target.primary_key)
            if len(mine.merged):
                self.rows.delete_keys(name, mine.merged.deletes)
                self.rows.delete_keys(name, mine.merged.upserts.select(key))
                self.rows.insert(name, mine.merged.upserts)

    def move(self, outcome: SlotOutcome, anew: StreamSplit | None) -> None:
        def moved(content: Content) -> Content:
            slots = list(known(content.state.slots))
            slots[self.slot] = Slot(outcome.end, anew or slots[self.slot].stored)
            content = replace(content, state=replace(content.state, slots=tuple(slots)))
            if self.slot:
                return content
            for table, counts in outcome.changes_of.items():
                content = counted(
                    content, table, counts.total, counts, outcome.end, outcome.committed_us
                )
            now = content.stream
            stream = StreamCounts(
                now.batches + 1,
                now.changes + outcome.changes,
                now.transactions + outcome.transactions,
                outcome.committed_us or now.age_us,
            )
            return replace(content, stream=stream)

        self.session.note(moved)
        self.session.require_owner(self.by)

    def set_savepoint(self) -> None:
        raise NotImplementedError("it has no guard")

    def undo_to_savepoint(self) -> None:
        raise NotImplementedError("it has no guard")

    def note_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        raise NotImplementedError("it has no guard")

    def text_weights(self) -> Weights:
        raise NotImplementedError("it has no guard")

    def beaten(self, table: TableId, node: str) -> Sequence[tuple[Values, str]]:
        raise NotImplementedError("it has no guard")

    def commit_at_once(
        self,
        selection: Selection,
        row: SlotRow,
        end: LogPosition,
        *,
        look: LookAtOthers | None = None,
    ) -> None:
        """Has no such way."""


class MemoryChangeStore:
    """The slots of a stream."""

    def __init__(self, sink: MemorySink, slots: int) -> None:
        plans = tuple(sink.plans.values())
        self.slots = []
        for slot in range(slots):
            session = sink.session()
            rows = MemoryRows(session, sink.plans)
            self.slots.append(MemorySlotStore(session, rows, sink.owner.generation, slot, slots))
        with sink.memory.lock:
            content = sink.memory.content
            before = known(content.state.slots)
            if len(before) not in {0, slots}:
                stream = collapsed(before, plans)
                now = (Slot(stream.start, stream),) * slots
                state = replace(content.state, slots=now)
                sink.memory.content = replace(content, state=state)

    def stream(self) -> StreamSplit | None:
        return self.slots[0].session.content.state.stream

    def close(self) -> None:
        for slot in self.slots:
            slot.session.close()


@dataclass
class MemorySplitStore:
    """The splits."""

    session: Session
    rows: MemoryRows
    by: int

    def alone(self, split: SnapshotSplit) -> AbstractContextManager[None]:
        return nullcontext()

    def holds_nothing(self, split: SnapshotSplit) -> bool:
        return not self.rows.in_range(split)

    def state_of(self, split: SnapshotSplit, *, hold: bool = False) -> LedgerState:
        if hold:
            self.session.require_owner(self.by)
            self.session.expect(lambda content: content.state.owns(split.table))
        return self.session.content.state

    def require_as_planned(self, table: TableId) -> None:
        self.rows.require_as_planned(table)

    @contextmanager
    def marked(self) -> Iterator[None]:
        self.session.mark()
        yield

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        self.rows.clear_range(split, rows, stamp)

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        return self.rows.write(split, rows, again=again)

    def store(self, state: LedgerState, record: SplitPublished) -> None:
        self.session.note(partial(_with_record, record))

    def close(self) -> None:
        self.session.close()


@dataclass
class MemoryJoinLedger:
    """The joins."""

    session: Session
    by: int

    def begin_epoch(self, request: str, tables: Collection[TableId]) -> int:
        self.session.expect(lambda content: content.epochs)
        before = self.session.content.epochs
        epoch = 1 + max((each for (name, _), each in before.items() if name == request), default=0)
        new = {(request, table): epoch for table in tables}
        self.session.note(lambda content: replace(content, epochs={**content.epochs, **new}))
        return epoch

    def held_epoch(self, request: str, table: TableId) -> int:
        def epoch(content: Content) -> int:
            return content.epochs.get((request, table), 0)

        if self.session._is_open:
            self.session.expect(epoch)
        return epoch(self.session.content)

    def knew(self) -> KnownLog | None:
        return None

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        found = self.session.content.joined
        return tuple(found[place][0] for place in sorted(found) if place[0] == request)

    def joined_as(self, request: str, split: SnapshotSplit) -> JoinedSplit | None:
        found = self.session.content.joined.get((request, split.table, split.number))
        return None if found is None else found[0]

    def freed_keys(self, request: str, table: TableId) -> Iterator[pa.Table]:
        for place, (_, freed) in self.session.content.joined.items():
            if place[:2] == (request, table):
                yield from freed

    def forget(self, request: str) -> None:
        def act(content: Content) -> Content:
            joined = {place: each for place, each in content.joined.items() if place[0] != request}
            epochs = {place: each for place, each in content.epochs.items() if place[0] != request}
            return replace(content, joined=joined, epochs=epochs)

        self.session.note(act)

    def slots(self, *, hold: bool = False) -> Sequence[Slot]:
        if hold:
            self.session.require_owner(self.by)
            self.session.expect(lambda content: content.state.slots)
        return known(self.session.content.state.slots)

    def owns(self, table: TableId) -> bool:
        return self.session.content.state.owns(table)

    def store_joined(self, request: str, joined: JoinedSplit, freed: Sequence[pa.Table]) -> None:
        split = joined.split
        place = (request, split.table, split.number)

        def act(content: Content) -> Content:
            kept = {**content.joined, place: (joined, tuple(freed))}
            content = replace(content, joined=kept)
            count = max(joined.rows, 1)
            return counted(content, split.table, count, NO_ROWS, joined.position)

        self.session.note(act)

    def store_read(self, table: TableId, slots: Sequence[Slot]) -> None:
        read = SlotsRewritten(tuple(slot.stream.read({table}) for slot in slots))
        self.session.note(partial(_with_record, read))

    def claim(self) -> None:
        self.session.require_owner(self.by)


class MemoryJoinStore:
    """One session for joins."""

    def __init__(self, session: Session, plans: Mapping[TableId, TablePlan], by: int) -> None:
        self.session = session
        self.ledger = MemoryJoinLedger(session, by)
        self.rows = MemoryRows(session, plans)

    def mark(self) -> None:
        self.session.mark()

    def text_weights(self) -> Weights:
        raise NotImplementedError

    def close(self) -> None:
        self.session.close()


@dataclass
class MemorySink:
    """The sink, as an owner sees it."""

    memory: Memory
    owner: Owner
    plans: Mapping[TableId, TablePlan]
    writers: int = 1
    fuse: int | None = None
    """Of each session that is opened from now on."""
    abilities: SinkAbilities = ABILITIES

    def session(self) -> Session:
        return Session(self.memory, self.fuse)

    def open_ledger(self) -> Ledger:
        return Ledger(MemoryLedgerStore(self.session()), self.owner.generation)

    def open_splits(self) -> RangeSplitSink:
        session = self.session()
        rows = MemoryRows(session, self.plans)
        return RangeSplitSink(MemorySplitStore(session, rows, self.owner.generation), self.owner)

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> SlotChangeSink:
        captured = CapturedTables(tuple(self.plans.values()), columns)
        return SlotChangeSink(MemoryChangeStore(self, self.writers), captured)

    def open_joins(self, *, reader: int = 0) -> StreamJoinSink:
        return StreamJoinSink(MemoryJoinStore(self.session(), self.plans, self.owner.generation))
