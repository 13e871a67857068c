"""What a ledger can store: each decision is a few of these, committed together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import KnownLog, TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit


@dataclass(frozen=True, slots=True)
class GenerationMoved:
    """Another generation may commit from here on, and no other one."""

    generation: int


@dataclass(frozen=True, slots=True)
class PlanBegun:
    """A plan begins: splits, stream, isolated tables and schema changes of the last one go."""

    plan_id: str


@dataclass(frozen=True, slots=True)
class SplitPublished:
    """A split's rows are at the sink, as its report says."""

    split: SnapshotSplit
    report: SplitReport


@dataclass(frozen=True, slots=True)
class StreamStored:
    """A hand-off: one writer slot at the stream's start, in place of all there were."""

    stream: StreamSplit


@dataclass(frozen=True, slots=True)
class SlotsRewritten:
    """Each writer slot has another stream split, at the position where it was."""

    stored: tuple[StreamSplit, ...]


@dataclass(frozen=True, slots=True)
class PositionSet:
    """All writer slots are at one position, which may be an earlier one."""

    position: LogPosition


@dataclass(frozen=True, slots=True)
class SlotMoved:
    """A writer slot is at a later position of the log."""

    slot: int
    position: LogPosition
    knew: KnownLog | None = None
    """What an edge's source knew there of the sink's log; None: what it knew before."""


@dataclass(frozen=True, slots=True)
class TablesOwned:
    """The tables that the stream owns, isolated ones among them: no split of these is taken.

    The splits of all other tables go, because their changes are left out from here on, so nothing
    of them stays right. So do those of `unread` tables, which are read again.
    """

    tables: frozenset[TableId]
    unread: tuple[TableId, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangesCounted:
    """More changes of tables are applied, or their counts begin with 0, at a position."""

    tables: Mapping[TableId, int]
    position: LogPosition


@dataclass(frozen=True, slots=True)
class ChangeBegun:
    """A schema change is about to be made at the sink."""

    change: SchemaChange


@dataclass(frozen=True, slots=True)
class ChangeEnded:
    """The schema change of a table, if one was begun, is made or is not to be made any more."""

    table: TableId


@dataclass(frozen=True, slots=True)
class TableStopped:
    """A table is isolated, at the position of a stream split of its own."""

    stream: StreamSplit
    error: StoredError


@dataclass(frozen=True, slots=True)
class StoppedMoved:
    """An isolated table is at the position of another stream split of its own."""

    stream: StreamSplit


@dataclass(frozen=True, slots=True)
class StoppedSaid:
    """An error keeps an isolated table out of the stream; a person, if it is empty."""

    table: TableId
    error: StoredError


@dataclass(frozen=True, slots=True)
class StoppedForgotten:
    """A table is not isolated any more: it is the stream's again, or has left the pipeline."""

    table: TableId


@dataclass(frozen=True, slots=True)
class ApartKept:
    """Which tables are not where the stream is, for the edge back to know."""

    apart: TablesApart


Record = (
    GenerationMoved
    | PlanBegun
    | SplitPublished
    | StreamStored
    | SlotsRewritten
    | PositionSet
    | SlotMoved
    | ApartKept
    | TablesOwned
    | ChangesCounted
    | ChangeBegun
    | ChangeEnded
    | TableStopped
    | StoppedMoved
    | StoppedSaid
    | StoppedForgotten
)
Records = tuple[Record, ...]
