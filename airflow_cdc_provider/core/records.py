"""What the state store remembers of a pipeline; times are microseconds since the epoch, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    RefusedError,
    UnsupportedTableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_filters import Literal, RowFilter, with_values
from airflow_cdc_provider.core.splits import (
    Chosen,
    Condition,
    Interval,
    KeyList,
    SnapshotSplit,
)
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.table_schema import TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, OutputColumn, TableShape


@dataclass(frozen=True, slots=True)
class PipelineState:
    """One pipeline's state: what is wanted, its phase, and who owns it."""

    name: PipelineName
    wanted: Wanted
    phase: Phase
    generation: int
    """Grows with each new owner; 0 before the first."""
    plan_id: str = ""
    owner: str = ""
    lease_until_us: int = 0
    error: StoredError = NO_ERROR
    updated_us: int = 0


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table of a plan: its definitions at both ends, and its estimated rows."""

    schema: TableSchema
    """As the source has it: what is read."""
    target: TableSchema
    """As the sink has it, made by `Sink.target_of`: what is written."""
    estimated_rows: int
    """The server's own estimate: shown as such, and nothing that must be right rests on it."""
    shape: TableShape = SAME_SHAPE
    """How rows and changes of the one become those of the other."""
    estimated_bytes: int = 0
    """The server's own estimate of what its rows take; 0 if it is not known."""

    @classmethod
    def alike(cls, schema: TableSchema, sink_table: TableId, estimated_rows: int) -> TablePlan:
        """Return the plan of a table that differs at the sink in its name at most."""
        return cls(schema, replace(schema, table=sink_table), estimated_rows)

    @property
    def sink_table(self) -> TableId:
        return self.target.table

    @property
    def written(self) -> TableSchema:
        """The sink's definition under the source's name, by which its keys refer to others."""
        return replace(self.target, table=self.schema.table)

    @property
    def shard(self) -> OutputColumn | None:
        """Return the constant column by which its rows are told from those of other tables.

        None: the sink's table holds this table alone.
        """
        return self.shape.shard_column

    @property
    def where(self) -> RowFilter | None:
        """Return which rows are copied, by values as rows are read; None: all.

        An ENUM's value that is no member is written as `''`, and is read as another text.
        """
        if self.shape.where is None:
            return None
        types = {column.name: column.type for column in self.schema.columns}

        def as_read(name: str, value: Literal) -> Literal:
            kind = types[name]
            is_none = kind.kind is TypeKind.ENUM and not value and value not in kind.members
            return kind.no_member if is_none else value

        return with_values(self.shape.where, as_read)

    @property
    def is_one_split(self) -> bool:
        """Tell whether all rows are read together, and take the place of the sink's together.

        No range of the source's key finds rows at the sink: the table has no key, or the sink has
        hashes of it.
        """
        return not self.schema.has_key or self.shape.hashes_key_of(self.schema)

    def require_cuttable(self) -> None:
        """Refuse to cut a split of the table, which is too big, if it cannot be cut."""
        if self.is_one_split:
            why = "the sink has hashes of its key" if self.schema.has_key else "it has no key"
            raise UnsupportedTableError(
                f"{why}, so its rows are read together",
                where=f"table {self.schema.table}",
                risk="none: nothing of the split was published",
                remedy="raise snapshot.max_split_mb, if readers have that much memory"
                + ("" if self.schema.has_key else ", or give it a key"),
            )

    def split_at_sink(self, split: SnapshotSplit) -> SnapshotSplit:
        """Return a split by the names that its columns have at the sink.

        `RefusedError` if rows are chosen by what the sink does not have.
        """
        if self.shape.is_identity:
            return split
        if self.is_one_split and (split.keys != KeyRange() or not split.is_whole_range):
            raise self._not_chosen("it has hashes of their keys")
        names = dict(
            zip(self.schema.primary_key, self.shape.source_key_of(self.schema), strict=True)
        )
        return replace(
            split,
            key_columns=tuple(names[name] for name in split.key_columns),
            chosen=self.chosen_at_sink(split.chosen),
        )

    def chosen_at_sink(self, chosen: Chosen | None) -> Chosen | None:
        """Return a choice of rows by the names that its columns have at the sink.

        `RefusedError` if it is by what the sink does not have.
        """
        if chosen is None or self.shape.is_identity:
            return chosen
        if isinstance(chosen, Condition):
            raise self._not_chosen("a condition is in the source's words")
        names = self.shape.names_of(self.schema)
        columns = chosen.columns if isinstance(chosen, KeyList) else (chosen.column,)
        if lost := [name for name in columns if name not in names]:
            raise self._not_chosen(f"it does not have the values of {', '.join(lost)}")
        if isinstance(chosen, Interval):
            return replace(chosen, column=names[chosen.column])
        return replace(chosen, columns=tuple(names[name] for name in columns))

    def _not_chosen(self, why: str) -> RefusedError:
        """Return the error for rows that cannot be chosen at the sink as they are at the source."""
        return RefusedError(
            f"rows of {self.sink_table} cannot be chosen by that: {why}",
            where=f"request for {self.schema.table}",
            risk=NOTHING_CHANGED,
            remedy="`resync` the whole table"
            if self.is_one_split
            else "`resync` ranges of its key, or the whole table",
        )


@dataclass(frozen=True, slots=True)
class PlanOrigin:
    """What a plan was made from: source, sink, patterns and options."""

    source: str
    """The source's identity: its `server_uuid`, or what stands for it."""
    sink: str
    tables: tuple[str, ...]
    """The file's patterns."""
    exclude: tuple[str, ...] = ()
    names_fold_case: bool = False
    """The source compares names without regard to case."""
    zero_dates: str = "fail"
    backfill: bool = True
    topology: str = ""
    """The edge of a topology that the pipeline is, as JSON; empty: none."""


@dataclass(frozen=True, slots=True)
class TableState:
    """One table's progress: phase, and counts of its splits and rows."""

    plan: TablePlan
    phase: TablePhase
    splits_planned: int = 0
    planning_done: bool = False
    """False while the planner still looks for boundaries: more splits may come."""
    splits_finished: int = 0
    rows: int = 0
    bytes: int = 0
    error: StoredError = NO_ERROR
    changed_us: int = field(default=0, compare=False)
    """When its definition or where it stands last changed."""

    @property
    def table(self) -> TableId:
        return self.plan.schema.table


@dataclass(frozen=True, slots=True)
class SplitState:
    """One split's status and attempts."""

    split: SnapshotSplit
    status: SplitStatus
    attempt: int = 0
    started_us: int = 0
    finished_us: int = 0
    error: StoredError = NO_ERROR


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream's progress as its driver last stored it; the ledger may be ahead of it."""

    position: LogPosition
    """Applied and committed in the sink."""
    source_end: LogPosition | None = None
    """The end of the source's log when last asked."""
    batch: int = 0
    changes: int = 0
    """Row changes applied since the stream's first start."""
    transactions: int = 0
    lag_us: int | None = None
    """Age of the last applied commit when it was committed at the sink, or for how long the stream
    stands before log that waits; None before the first, 0 when nothing is waiting."""
    heartbeat_us: int = 0
    inconsistent: tuple[TableId, ...] = ()
    """Tables whose consistent point has not passed."""
    generation: int = field(default=0, compare=False)
    """Under which this was told; whoever tells it is known by its own."""


class NoteKind(StrEnum):
    """The kinds of note on a pipeline; each note replaces the last one of its kind."""

    LOG_REACH = "log_reach"
    """How far the source's log reaches back; see `LogReach`."""
    PREFLIGHT = "preflight"
    """What preflight found last."""
    LAST_TRY = "last_try"
    """What the last try to begin ended with, and at which step; None where one got past it."""
    OVERRIDES = "overrides"
    """What persons decided against refusals: who, when, why, and what is read again for it."""
    OUTAGES = "outages"
    """What keeps a job from going forward, and the process that is at it; see `Outage`."""
    ENDING = "ending"
    """The generation that is about to end, whatever is wanted by now, and whether that was wanted:
    else its process was asked to end."""
    TRY_AGAIN = "try_again"
    """The generation whose failure a person wants the next run to set aside."""
    VERIFIED = "verified"
    """What comparing found last of each table: when it began, and whether rows differed."""
    SEED = "seed"
    """Where the log of an edge's sink ended before the edge copied its rows there."""
    KNOWN = "known"
    """What the source of an edge that was seeded knew of its sink's log at first."""
    PUBLISHED = "published"
    """When a sink's tables, which follow its log of files, had all that was committed to it."""
    CONFLICTS = "conflicts"
    """How many rows were changed at both nodes of an edge, and settled."""
    RULES = "rules"
    """Rules for conflicts that a run is about to take for both edges of a pair; empty: none."""
    ENDED = "ended"
    """Where a stream has ended for good, and by which words of the file; empty: it goes on."""
    STARTED = "started"
    """Where a stream began without a snapshot, and the file's words for it; empty: it did not."""
    THROTTLE = "throttle"
    """What a person wants of the throttle, in place of what the file says; see `ThrottleWish`."""
    THROTTLED = "throttled"
    """The limits under which the owner hands out splits now, and why it hands out none; empty
    while it reads none."""
    CHOSEN = "chosen"
    """The columns of each table that is filtered or copied in part, also of those that are gone."""
    SALTS = "salts"
    """Proofs of the salts that the owner has, by their names."""
    NOTIFICATIONS = "notifications"
    """Which problems receivers were notified of, or are to be, and which of them are over."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note on a pipeline as JSON, and the time it was written."""

    at_us: int
    form: Mapping[str, Any]


OUTAGE_OVER = "over, after"
"""How the event begins that tells of an outage's end."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An error that keeps a job from progress until it is over, such as a server away."""

    error: CdcError
    since_us: int
    tries: int = 0
    """How often it was tried again; 0 where nothing is tried but an answer is waited for."""
    next_us: int = 0
    """When it is tried next, 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class AnnouncedTable:
    """What was last announced of a table: its count of changes, and where."""

    table: TableId
    changes: int
    """The ledger's count of the table's changes then."""
    since: int | None
    """The count they knew of before; None if they knew none."""
    position: LogPosition
    told_by: str
    """Who told it, such as one run of a DAG."""


@dataclass(frozen=True, slots=True)
class PipelineEvent:
    """An event in a pipeline's history: time, level and text."""

    at_us: int
    level: str
    """info, warning or error."""
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A pipeline's lag, changes and rows read in a span of seconds; None is not known."""

    at_us: int
    """When these seconds began."""
    step_s: int
    """How many they are."""
    lag_us: int | None
    """The greatest that was told."""
    changes: int | None
    """Row changes applied since the stream's first start, as last told."""
    rows: int = 0
    """Rows read in these seconds, by the snapshot and by requests."""
