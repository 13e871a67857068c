"""What the engine and the steps ask of a sink.

A sink is opened for one pipeline and one generation. Every commit checks the generation in its
own transaction and raises `FencedError` when a newer owner has taken over (law 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.columns.verify_port import VerifySide
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_counts import NO_ROWS, RowCounts
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_drift import TableDrift

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.changes import ChangeBatch
    from airflow_cdc_provider.columns.rows import SplitRows


WHOLE_TABLE = (KeyRange(),)
NO_TABLES: Mapping[TableId, LogPosition] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes: a pipeline under one generation."""

    pipeline: PipelineName
    generation: int


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """What a sink committed."""

    end: LogPosition
    changes: int
    transactions: int
    committed_us: int
    """The original commit time of the last source transaction; 0 if there was none."""


class SplitSink(Protocol):
    """Takes finished splits."""

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Replace all the sink holds in the split's range by `rows`, and store the report.

        One transaction: the split is there whole, with its report, or not at all (law 4).
        """

    def close(self) -> None:
        """Let go of the connection; a transaction that is open is rolled back."""


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A split's rows as the table has them at the position where they join the stream."""

    rows: SplitRows
    touched: pa.RecordBatch | None = None
    """Keys of which the sink gives up what it has; `rows` holds those that are there now.

    Those that the log has changed since the read, if nobody here can tell which are the split's
    own; they may lie outside of it. And those that were listed for the read.
    """


@dataclass(frozen=True, slots=True)
class JoinedSplit:
    """A split that was read again and has joined the stream."""

    split: SnapshotSplit
    rows: int
    position: LogPosition
    """Where the stream was then: from there on it goes on with these rows, too."""


class JoinSink(Protocol):
    """Takes splits that are read again while the stream flows.

    The stream is held up for as long as one split's transaction takes, and nobody ever sees an
    older state of a row. A kill at any point leaves nothing to repair.
    """

    def begin(self, request: str, tables: Collection[TableId]) -> int:
        """Begin a request on these tables, or go on with it; returns the epoch of its joins.

        From then on nothing joins under an older epoch of it; what did has joined.
        """

    def join(
        self,
        request: str,
        split: SnapshotSplit,
        report: SplitReport,
        rows_at: Callable[[LogPosition], JoinedRows],
        *,
        epoch: int,
        within: Sequence[KeyRange] = WHOLE_TABLE,
    ) -> LogPosition | None:
        """Replace all the sink holds in the split's range by its rows at the stream's position.

        Of an interval each row that was read takes the place of the one with its key, and of keys
        that were listed each is given up: nothing is deleted because of its values at the sink.
        Returns that position; None if the rows cannot join yet, and nothing was done: the table is
        not the stream's or not at its consistent point, the stream has not passed the report's H,
        or its writers are at different places. Then wait for the stream, and ask again.
        `rows_at` is called with the stream held up, maybe more than once, and never with an
        earlier position than before. A split that this request has joined already is left alone;
        another range under its number is a `SplitOutdatedError`, and an `epoch` that is not the
        request's last one a `StateMovedError`.
        `within` are the ranges that the request reads again: a row there that holds a unique value
        of the split's is deleted, for it will be read again or has been found wrong;
        `freed_keys` names it.
        """

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys that the sink holds of a split; too many are a `SplitTooBigError`."""

    def freed_keys(self, request: str, table: TableId) -> pa.Table:
        """Return the keys of a table's rows that joins of a request took away for their values.

        Their own ranges may have joined since, or may be still to come.
        """

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits that have joined for a request, of all its tables."""

    def forget(self, request: str) -> None:
        """Drop what is remembered of a request that is done."""

    def close(self) -> None:
        """Let go of the connection; a transaction that is open is rolled back."""


class ChangeSink(Protocol):
    """Takes changes in source order."""

    quiet: IdleRange | None
    """Log behind what is committed that was passed over: the next batch may begin at its end."""

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed: where to go on, and each table's progress."""

    def apply(self, batch: ChangeBatch) -> AppliedBatch | None:
        """Apply one batch and store its end in the same transaction (law 7).

        Changes that a split's snapshot already holds, and those up to the committed position,
        are left out. None when the batch has no end: the transaction stays open for the rest.
        A sink may commit nothing of a batch that holds nothing for it, and make it `quiet`.
        """

    def close(self) -> None:
        """Let go of the connections; a transaction that is open is rolled back."""


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """What the stream has committed since the hand-off."""

    batches: int = 0
    changes: int = 0
    transactions: int = 0
    lag_us: int | None = None
    """Age of the last source commit when it was committed here; None before the first."""


@dataclass(frozen=True, slots=True)
class TableChangeCount:
    """How much of one table the sink has changed since its plan began.

    A batch that a crash has put to its writers again may count twice, and none is left out.
    """

    changes: int
    """Row changes of the stream, rows that joined it, and changes of the table's definition."""
    position: LogPosition
    """Where in the log the last of them was, or is about to be, committed."""
    rows: RowCounts = NO_ROWS
    """Row changes of the stream alone, before they were merged."""
    changed_us: int = field(default=0, compare=False)
    """When the last of them was committed at the source, or joined; 0 before the first."""


class SinkLedger(Protocol):
    """The truth about what is committed in the sink."""

    def take_over(self, generation: int) -> None:
        """Make `generation` the only one that may commit; a smaller one is `FencedError`."""

    def generation(self) -> int:
        """Return the generation that may commit, 0 for a pipeline never seen."""

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits; reading reports takes longer."""

    def reports(
        self, *, but: AbstractSet[str] = frozenset()
    ) -> Sequence[tuple[SnapshotSplit, SplitReport]]:
        """Return every finished split of the current plan with its report, `but` those of ids."""

    def start_plan(self, plan_id: str) -> None:
        """Forget the finished splits and the stream of older plans, once, for this plan."""

    def plan_id(self) -> str:
        """Return the plan whose splits are in the ledger, empty for none."""

    def store_stream(self, stream: StreamSplit, begun: Sequence[SchemaChange] = ()) -> None:
        """Store the stream split at hand-off; refused if the ledger already streams further.

        The changes of definitions that are `begun` with it are remembered in its transaction, and
        what was read of its unread tables is forgotten.
        """

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None before the hand-off."""

    def change_tables(
        self,
        *,
        added: Mapping[TableId, LogPosition] = NO_TABLES,
        removed: Collection[TableId] = (),
        read: Collection[TableId] = (),
    ) -> StreamSplit:
        """Let the stream own more tables, each from a position on, or fewer, in one transaction.

        Added tables count as not read until they are told `read`. A table that is there already
        stays as it is, so doing this again is harmless.
        """

    def go_on_from(self, position: LogPosition, begun: Collection[TableId]) -> StreamSplit:
        """Put the stream at a position, also before its own, and let tables begin anew there.

        For a source whose history is another one from there on. The other tables are applied
        through that position, and no further; tables that the stream leaves alone stay so unless
        they begin anew.
        """

    def open_changes(self) -> tuple[SchemaChange, ...]:
        """Return the changes of definitions that were begun and not brought to their end."""

    def begin_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Remember changes of definitions, before anything is done about them."""

    def end_change(self, change: SchemaChange) -> StreamSplit:
        """Let the stream go on behind a change that was made; returns the stream."""

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that the stream leaves alone, in order."""

    def stop_tables(
        self, tables: Collection[TableId], error: StoredError = NO_ERROR, /
    ) -> StreamSplit:
        """Take tables out of the stream where they stand; an `error` stopped them, or a person."""

    def say_of_stopped(self, table: TableId, error: StoredError, /) -> None:
        """Note what keeps a table from coming back; empty: a person wants it so."""

    def rejoin(self, table: TableId) -> StreamSplit:
        """Give a table back to the stream that it has come up with; returns the stream.

        One that has not come to the stream's position yet is a `SplitOutdatedError`.
        """

    def counts(self) -> StreamCounts:
        """Return what the stream has committed since the hand-off."""

    def table_changes(self) -> Mapping[TableId, TableChangeCount]:
        """Return how much of each source table was changed; those without a change are left out."""

    def last_changes(self) -> Mapping[TableId, LogPosition]:
        """Return the position of each table's last change, or of its hand-off if it has none since.

        A table of which neither is known is left out.
        """

    def pass_over(self, quiet: IdleRange) -> None:
        """Move the stream over log that holds nothing for the sink; never back."""

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class TargetConflict:
    """A table of the sink that this pipeline must not write to as things are."""

    table: TableId
    pipeline: str
    """Who owns it; empty if nobody does, and it holds rows."""
    text: str
    remedy: str


class Targets(Protocol):
    """Which of the sink's tables this pipeline owns."""

    def plan_id(self) -> str:
        """Return the plan whose splits are in the ledger, empty for none; nothing is created."""

    def changing(self) -> frozenset[TableId]:
        """Return the source's tables whose change was begun at the sink and not ended."""

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that the stream leaves alone; nothing is created."""

    def routes(self) -> tuple[tuple[TableId, TableId], ...]:
        """Return what this pipeline copies where, by its claims; nothing is created."""

    def conflicts(
        self, plans: Sequence[TablePlan], *, known: Collection[TableId] = ()
    ) -> tuple[TargetConflict, ...]:
        """Return what stands against writing to the plans' tables; nothing is created or locked.

        `known` are tables whose rows are known to be this pipeline's.
        """

    def claim(
        self,
        plans: Sequence[TablePlan],
        *,
        known: Collection[TableId] = (),
        replace_rows: bool = False,
    ) -> tuple[TableId, ...]:
        """Own the plans' tables, all or none; return those taken with rows of others."""

    def release(self, *, keep: Sequence[TablePlan] = ()) -> None:
        """Give back all tables but those of `keep`; their rows stay."""

    def rows(self, table: TableId) -> int | None:
        """Count a table's rows; None if there is no such table."""

    def drop(self, tables: Collection[TableId]) -> None:
        """Drop tables that this pipeline owns, with their rows, or refuse them."""

    def close(self) -> None:
        """Let go of the connection."""


class TableBuilder(Protocol):
    """Makes the sink's tables."""

    def require_fit(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables there are that cannot hold the source's rows; changes nothing."""

    def require_creatable(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables that cannot be made here, whatever is there now; changes nothing."""

    def missing(self, plans: Sequence[TablePlan]) -> tuple[TableId, ...]:
        """Return the sink's tables of these plans that are not there; changes nothing."""

    def create_missing(self, plans: Sequence[TablePlan]) -> Mapping[TableId, bool]:
        """Create databases and tables that do not exist; returns which were created.

        Secondary unique and foreign keys are left for `finish`.
        """

    def drifted(self, plans: Sequence[TablePlan]) -> tuple[TableDrift, ...]:
        """Return the tables that may alter or refuse rows by now: somebody has changed them.

        Those of `require_fit`, those that are gone, and those where more happens than is written.
        """

    def columns(self, plan: TablePlan) -> frozenset[str]:
        """Return the columns that the sink's table has, in lower case; none without a table."""

    def change(self, change: SchemaChange) -> None:
        """Make a change of the source's at the sink; making it twice is harmless.

        Only the owner may: an older generation is `FencedError`.
        """

    def finish(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        """Add secondary unique and foreign keys; only after the consistent point.

        Returns remarks for people: rows that break a key, which was added all the same.
        """

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class SinkAbilities:
    """What a kind of sink can do: the engine asks, and never for the sink's name."""

    transactional: bool
    """Rows, position and report are committed together, in the sink itself."""
    upserts: bool
    """A change that is applied twice leaves what it left the first time (law 6)."""
    needs_exact_filter: bool
    """Sinks that append: what cannot be filtered exactly is refused."""
    takes_native_chunks: bool
    """It may take the source's own bytes, where both speak the same protocol."""
    verifiable: bool
    """What it holds can be compared with the source."""
    joins: bool
    """Rows can be read again while the stream flows."""
    changes_tables: bool = False
    """Its tables can be changed as the source's are, while the stream flows."""
    isolates_tables: bool = False
    """One table can be left alone while the others flow, and come back."""
    facts: tuple[str, ...] = ()
    """What of Debezium's `source` it writes with each change."""

    @property
    def begins_tables_again(self) -> bool:
        """Tell whether a table can be changed, and read again beside the stream."""
        return self.joins and self.changes_tables


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink is written to."""

    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1
    """Parallel writers of `ApplyMode.MERGED`."""
    zero_dates: str = "fail"
    local_files: bool = True
    """Files of the client's may be loaded where the sink allows it."""


class Sink(Protocol):
    """One pipeline's sink under one generation.

    It holds no connection, so it travels to executors as it is. Each part it opens has a
    connection of its own and is closed by who asked for it.
    """

    @property
    def abilities(self) -> SinkAbilities:
        """What this kind of sink can do."""

    @property
    def owner(self) -> Owner:
        """Who writes."""

    def identity(self) -> str:
        """Ask the sink who it is: a name that no other has."""

    def reserved_for(self, database: str) -> str:
        """Return what a database of the sink's is reserved for, empty if it may hold copies."""

    def preflight(self, plans: Sequence[TablePlan], source: SourceLook) -> tuple[Finding, ...]:
        """Look at settings, privileges, room and tables; changes nothing."""

    def open_side(self) -> VerifySide:
        """Open the sink's side of a comparison; refused where `abilities` say it has none."""

    def open_ledger(self) -> SinkLedger:
        """Open the ledger."""

    def open_targets(self) -> Targets:
        """Open what tells whose the tables are."""

    def open_tables(self) -> TableBuilder:
        """Open what makes the tables."""

    def open_splits(self) -> SplitSink:
        """Open what publishes splits."""

    def open_joins(self) -> JoinSink:
        """Open what takes splits that are read again; refused where `abilities` say so."""

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> ChangeSink:
        """Open what applies changes; `columns` are those that the changes of each table have."""

    def open_stopped(self, table: TableId, columns: Mapping[TableId, pa.Schema], /) -> ChangeSink:
        """Open what brings one table further that the stream leaves alone.

        Its `stream` is that of the table; refused where `abilities` say so.
        """
