"""What a ledger holds at one moment: all that its rules decide from, and nothing else.

A store reads those parts that a decision needs, in one transaction with what it then writes. A part
that was not read is None, and asking for it is an error of the program, never an empty part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TypeVar, assert_never

from airflow_cdc_provider.core.errors import SnapshotRequiredError
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.known_log import NONE_APART, TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stream_split import StreamSplit, smallest
from airflow_cdc_provider.engine.ledger.records import (
    ApartKept,
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    GenerationMoved,
    PlanBegun,
    PositionSet,
    Record,
    SlotMoved,
    SlotsRewritten,
    SplitPublished,
    StoppedForgotten,
    StoppedMoved,
    StoppedSaid,
    StreamStored,
    TablesOwned,
    TableStopped,
)

Known = TypeVar("Known")


class Part(Flag):
    """The parts of a ledger; each is read only where it is needed."""

    OWNER = auto()
    """The generation that may commit, and the plan."""
    REPORTS = auto()
    """The finished splits: there may be 100,000."""
    SLOTS = auto()
    """The stream, as its writer slots have it."""
    STOPPED = auto()
    CHANGES = auto()


@dataclass(frozen=True, slots=True)
class Place:
    """Whose ledger it is and where, in the words of its errors."""

    pipeline: PipelineName
    where: str
    book: str = "ledger"
    """Where a newer owner finds what is committed."""
    undone: str = "its transaction is rolled back"
    """What becomes of that which an older owner has written."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One writer slot of the stream: its position, and the stream split stored with it.

    What the stream has passed since the split was stored follows from the position.
    """

    position: LogPosition
    stored: StreamSplit
    apart: TablesApart = NONE_APART
    """Tables that are not where the stream is; kept up where the edge back asks."""

    @property
    def stream(self) -> StreamSplit:
        """Return the stream split at the slot's position."""
        return self.stored.passed(self.position)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """A pipeline's ledger: who may commit, and what is committed. None: it was not read."""

    place: Place
    generation: int = 0
    """The one that may commit; 0 for a pipeline that the ledger does not know."""
    plan_id: str = ""
    """The plan whose splits and stream these are."""
    reports: tuple[Report, ...] | None = None
    slots: tuple[Slot, ...] | None = None
    """None of them before the hand-off."""
    stopped: tuple[StoppedTable, ...] | None = None
    changes: tuple[SchemaChange, ...] | None = None
    """Schema changes that were begun and are not ended, oldest first."""
    owned: frozenset[TableId] | None = None
    """Tables that were handed off to the stream, for a store that keeps them beside its slots."""

    @property
    def stream(self) -> StreamSplit | None:
        """Return the stream at the smallest position of its slots, None before the hand-off."""
        return stream_of_slots(known(self.slots))

    def required_slots(self) -> tuple[Slot, ...]:
        """Return the stream's writer slots; before the hand-off there are none: an error."""
        slots = known(self.slots)
        if not slots:
            raise no_stream(self.place)
        return slots

    def required_stream(self) -> StreamSplit:
        """Return the stream; before the hand-off there is none, which is an error."""
        stream = stream_of_slots(self.required_slots())
        if stream is None:
            raise no_stream(self.place)
        return stream

    def stopped_table(self, table: TableId) -> StoppedTable | None:
        """Return an isolated table, None if it is not isolated."""
        return next((each for each in known(self.stopped) if each.table == table), None)

    def owns(self, table: TableId) -> bool:
        """Tell whether a table was handed off to the stream, isolated or not."""
        if self.owned is not None:
            return table in self.owned
        stream = self.stream
        in_stream = stream is not None and stream.progress_of(table) is not None
        return in_stream or self.stopped_table(table) is not None

    def with_records(self, records: Iterable[Record]) -> LedgerState:
        """Return the state after these records, applied in their order."""
        state = self
        for record in records:
            state = state.with_record(record)
        return state

    def with_record(self, record: Record) -> LedgerState:
        """Return the state after one record; parts that were not read stay unread."""
        match record:
            case GenerationMoved(generation):
                return replace(self, generation=generation)
            case PlanBegun(plan_id):
                return LedgerState(self.place, self.generation, plan_id, (), (), (), ())
            case SplitPublished():
                return self._with_reports(record)
            case TablesOwned(tables):
                state = self._with_reports(record)
                return state if state.owned is None else replace(state, owned=tables)
            case StreamStored() | SlotsRewritten() | PositionSet() | SlotMoved() | ApartKept():
                return self._with_slots(record)
            case ChangeBegun() | ChangeEnded():
                return self._with_changes(record)
            case TableStopped() | StoppedMoved() | StoppedSaid() | StoppedForgotten():
                return self._with_stopped(record)
            case ChangesCounted():
                return self  # counts decide nothing
            case _:
                assert_never(record)

    def _with_reports(self, record: SplitPublished | TablesOwned) -> LedgerState:
        """Return the state with a split added, or without the splits that are of no use."""
        if self.reports is None:
            return self
        match record:
            case SplitPublished(split, report):
                others = [each for each in self.reports if each[0].split_id != split.split_id]
                ordered = sorted((*others, (split, report)), key=_by_number)
                return replace(self, reports=tuple(ordered))
            case TablesOwned(tables, unread):
                kept = (
                    each
                    for each in self.reports
                    if each[0].table in tables and each[0].table not in unread
                )
                return replace(self, reports=tuple(kept))
            case _:
                assert_never(record)

    def _with_slots(
        self, record: StreamStored | SlotsRewritten | PositionSet | SlotMoved | ApartKept
    ) -> LedgerState:
        """Return the state with other writer slots."""
        if isinstance(record, StreamStored):
            return replace(self, slots=(Slot(record.stream.start, record.stream),))
        slots = known(self.slots)
        match record:
            case SlotsRewritten(stored):
                pairs = zip(slots, stored, strict=True)
                slots = tuple(replace(slot, stored=split) for slot, split in pairs)
            case PositionSet(position):
                slots = tuple(replace(slot, position=position) for slot in slots)
            case SlotMoved(number, position):
                moved = replace(slots[number], position=position)
                slots = (*slots[:number], moved, *slots[number + 1 :])
            case ApartKept(apart):
                slots = tuple(replace(slot, apart=apart) for slot in slots)
            case _:
                assert_never(record)
        return replace(self, slots=slots)

    def _with_changes(self, record: ChangeBegun | ChangeEnded) -> LedgerState:
        """Return the state with a schema change begun or ended."""
        if self.changes is None:
            return self
        match record:
            case ChangeBegun(change):
                return replace(self, changes=(*self.changes, change))
            case ChangeEnded(table):
                left = (each for each in self.changes if each.table != table)
                return replace(self, changes=tuple(left))
            case _:
                assert_never(record)

    def _with_stopped(
        self, record: TableStopped | StoppedMoved | StoppedSaid | StoppedForgotten
    ) -> LedgerState:
        """Return the state with an isolated table more or less, or with one of them changed."""
        if self.stopped is None:
            return self
        by_table = {each.table: each for each in self.stopped}
        match record:
            case TableStopped(stream, error):
                added = StoppedTable(stream, error, 0)
                by_table[added.table] = added
            case StoppedMoved(stream):
                table = stream.tables[0].table
                by_table[table] = replace(by_table[table], stream=stream)
            case StoppedSaid(table, error) if table in by_table:
                by_table[table] = replace(by_table[table], error=error)
            case StoppedForgotten(table):
                by_table.pop(table, None)
            case StoppedSaid():
                pass  # it has come back meanwhile
            case _:
                assert_never(record)
        return replace(self, stopped=tuple(by_table[table] for table in sorted(by_table)))


def known(part: Known | None) -> Known:
    """Return a part of a ledger's state; one that was not read is an error of the program."""
    if part is None:
        raise ValueError("this part of the ledger was not read")
    return part


def stream_of_slots(slots: Sequence[Slot]) -> StreamSplit | None:
    """Return the stream split at the smallest position of the slots, None if there are no slots."""
    if not slots:
        return None
    position = smallest(slot.position for slot in slots)
    # any slot's stored split will do: what it has passed, the smallest position decides anew
    stored = max((slot.stored for slot in slots), key=lambda split: len(split.inconsistent))
    if position == stored.start:
        return replace(stored, start=position)  # what was read of the log since may be known better
    return stored.passed(position)


def stored_anew(stored: StreamSplit, end: LogPosition) -> StreamSplit | None:
    """Return the stream split to store with a slot that moves to `end`; None to leave it.

    It is stored anew when half of its tables, or the last ones, have become consistent: of 2,000
    tables with many ranges each that takes seconds, and it follows from the position.
    """
    left = sum(progress.is_inconsistent_at(end) for progress in stored.tables)
    before = len(stored.inconsistent)
    return stored.passed(end) if left < before and 2 * left <= before else None


def no_stream(place: Place) -> SnapshotRequiredError:
    """Return the error of a stream that was never handed off."""
    return SnapshotRequiredError(
        f"the ledger holds no stream of {place.pipeline}",
        where=place.where,
        risk="where to go on in the log is not known",
        remedy="take the snapshot and hand off first",
    )


def _by_number(report: Report) -> tuple[TableId, int]:
    """Return the key by which finished splits are in order."""
    return report[0].table, report[0].number
