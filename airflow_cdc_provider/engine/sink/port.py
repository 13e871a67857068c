"""What the engine and the steps ask of a sink.

A sink is opened for one pipeline and one generation. Every commit checks the generation in its
own transaction and raises `FencedError` when a newer owner has taken over (law 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.columns.verify_port import VerifySide
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.jobspec import ApplyMode, SourceOptions
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_drift import TableDrift
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.ledger.ledger import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.changes import ChangeBatch
    from airflow_cdc_provider.columns.rows import SplitRows


WHOLE_TABLE = (KeyRange(),)


@dataclass(frozen=True, slots=True)
class Owner:
    """The writer at a sink: a pipeline under one generation."""

    pipeline: PipelineName
    generation: int


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """What a sink committed of one batch."""

    end: LogPosition
    changes: int
    transactions: int
    committed_us: int
    """The original commit time of the last source transaction; 0 if there was none."""


class SplitSink(Protocol):
    """Publishes finished splits at the sink."""

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Replace the sink's rows in the split's range by `rows`, and store the report.

        One transaction: the split is there whole, with its report, or not at all (law 4).
        """

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A split's rows at the stream's position, to be joined there."""

    rows: SplitRows
    touched: pa.RecordBatch | None = None
    """Keys of which the sink gives up what it has; `rows` holds those that are there now.

    Those that the log has changed since the read, if nobody here can tell which are the split's
    own; they may lie outside of it. And those that were listed for the read.
    """


@dataclass(frozen=True, slots=True)
class JoinedSplit:
    """A split that was read again and whose rows are at the sink, at the stream's position."""

    split: SnapshotSplit
    rows: int
    position: LogPosition
    """Where the stream was then: from there on it goes on with these rows, too."""
    left: int = 0
    """Rows that differ and were left alone: the sink's node has changed them, and on an edge the
    source did not know of that yet."""


class JoinSink(Protocol):
    """Replaces rows of splits that are read again, in step with the running stream.

    The stream waits for as long as one split's transaction takes, and no reader ever sees an
    older state of a row. A kill at any point leaves nothing to repair.
    """

    def begin(self, request: str, tables: Collection[TableId]) -> int:
        """Begin or continue a request on these tables; return the epoch for its joins.

        From then on no rows join under an older epoch of the request; rows that did have joined.
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
        """Replace the sink's rows in the split's range by its rows at the stream's position.

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
        On an edge of a topology rows stay as they are that the sink's node has changed and the
        source did not know of; a `SinkBusyError` if it changes them all the time.
        """

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys that the sink has in a split; `SplitTooBigError` if they are too many."""

    def freed_keys(self, request: str, table: TableId) -> pa.Table:
        """Return the keys of rows that a request's joins deleted to free a unique value.

        Their own ranges may have joined since, or may be still to come.
        """

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits of a request that have joined, of all its tables."""

    def forget(self, request: str) -> None:
        """Delete the ledger's rows of a request that is done."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""


class ChangeSink(Protocol):
    """Applies changes at the sink, in source order."""

    quiet: IdleRange | None
    """Log behind what is committed that was passed over: the next batch may begin at its end."""

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed: where to go on, and each table's progress."""

    def apply(self, batch: ChangeBatch) -> AppliedBatch | None:
        """Apply one batch and store its end position in the same transaction (law 7).

        Changes that a split's snapshot already holds, and those up to the committed position,
        are left out. None when the batch has no end: the transaction stays open for the rest.
        A sink may commit nothing of a batch that holds nothing for it, and make it `quiet`.
        """

    def close(self) -> None:
        """Close the connections; an open transaction is rolled back."""


Copied = tuple[TableId, TableId]
"""A source table, and the sink table that its rows go to."""


@runtime_checkable
class KeepsValues(Protocol):
    """A builder of tables whose rows stay as they were written, whatever their definition is."""

    def rewritten(self, change_of: Mapping[str, tuple[ColumnType, ColumnType]]) -> str:
        """Return why rows of before would be read wrongly now, empty if they would not.

        `change_of` has the old and the new type of each changed column, by its name now.
        """


@dataclass(frozen=True, slots=True)
class TargetConflict:
    """A reason why this pipeline must not write to a table of the sink now."""

    table: TableId
    pipeline: str
    """Who owns it; empty if nobody does, and it holds rows."""
    text: str
    remedy: str
    is_shared: bool = False
    """Several tables of the source may go there: only rows of theirs would be replaced."""


class Targets(Protocol):
    """Claims: which of the sink's tables this pipeline owns."""

    def plan_id(self) -> str:
        """Return the plan whose splits are in the ledger, empty for none; creates nothing."""

    def changing(self) -> frozenset[TableId]:
        """Return the source's tables that have a schema change begun and not finished."""

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that are isolated from the stream; creates nothing."""

    def routes(self) -> tuple[tuple[TableId, TableId], ...]:
        """Return which source table is copied to which sink table, by claims; creates nothing."""

    def sharers(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        """Return the other pipelines that write the plans' sink tables: edges of one topology may.

        Creates and locks nothing.
        """

    def conflicts(
        self, plans: Sequence[TablePlan], *, known: Collection[Copied] = ()
    ) -> tuple[TargetConflict, ...]:
        """Return why the plans' sink tables must not be written to.

        One that several plans share is there once, or once a shard whose rows are in it. `known`
        are the tables whose rows at the sink are known to be this pipeline's: all rows of
        the sink table, or where it is shared those of the source table. Creates and locks nothing.
        """

    def claim(
        self,
        plans: Sequence[TablePlan],
        *,
        known: Collection[Copied] = (),
        replace_rows: bool = False,
    ) -> tuple[TableId, ...]:
        """Claim the plans' sink tables, all or none; return those that had others' rows in them.

        Several plans may share one.
        """

    def release(self, *, keep: Sequence[TablePlan] = ()) -> None:
        """Give up the claims of all tables but those of `keep`; their rows stay."""

    def rows(self, table: TableId) -> int | None:
        """Count a table's rows; None if there is no such table."""

    def drop(self, tables: Collection[TableId]) -> None:
        """Drop tables that this pipeline owns, with their rows; refuse any other."""

    def close(self) -> None:
        """Close the connection."""


class TableBuilder(Protocol):
    """Creates and changes the sink's tables."""

    def require_fit(self, plans: Sequence[TablePlan]) -> None:
        """Refuse existing sink tables that cannot take the source's rows; changes nothing."""

    def require_creatable(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables that this sink cannot create, even if they exist now; changes nothing."""

    def missing(self, plans: Sequence[TablePlan]) -> tuple[TableId, ...]:
        """Return the sink's tables of these plans that do not exist; changes nothing."""

    def create_missing(self, plans: Sequence[TablePlan]) -> Mapping[TableId, bool]:
        """Create databases and tables that do not exist; tell which were, by the sink's names.

        Secondary unique and foreign keys are left for `finish`.
        """

    def drifted(self, plans: Sequence[TablePlan]) -> tuple[TableDrift, ...]:
        """Return the sink's tables that were changed so that rows may be altered or refused.

        Those of `require_fit`, those that are gone, and those where more happens than is written.
        """

    def columns(self, plan: TablePlan) -> frozenset[str]:
        """Return the names of the sink table's columns in lower case; none without a table."""

    def change(self, change: SchemaChange) -> None:
        """Apply a schema change of the source to the sink's table; doing it twice is harmless.

        Only the owner may: an older generation is `FencedError`.
        """

    def finish(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        """Add secondary unique and foreign keys, which is possible after the consistent point only.

        Returns remarks for people: rows that break a key, which was added all the same.
        """

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class DeletesShards(Protocol):
    """A builder of tables that several tables of the source share."""

    def empty_columns(self, plan: TablePlan, names: Collection[str]) -> None:
        """Make columns NULL in all rows of a table; `names` are in lower case."""

    def delete_shard(self, plan: TablePlan) -> None:
        """Delete the rows of one shard from the sink's table; those of others stay.

        Only the owner may: an older generation is `FencedError`.
        """


@runtime_checkable
class TellsColumns(Protocol):
    """A sink whose tables have the columns of what is written to them, and no others."""

    def tell_columns(self, columns: Mapping[TableId, pa.Schema]) -> None:
        """Write down which columns tables have got by changes of definitions that have ended.

        `columns` are those of each table's changes now. It is cheap where there is nothing new.
        """


@runtime_checkable
class CommitsLater(Protocol):
    """A sink whose tables follow a log of files, by commits of their own.

    What the log holds is committed; a table shows it once it was published.
    """

    @property
    def commit_every_s(self) -> float:
        """The seconds from one commit of a table to the next."""

    def publish_tables(self) -> None:
        """Bring the tables that the stream owns to the end of the log; nothing is there twice.

        Anybody may, at any time: a table's own last commit says what it holds. `FencedError` if a
        newer generation writes it; `RetryableError` if the store or the catalog does not answer.
        """

    def has_unpublished(self) -> bool:
        """Tell whether a table lacks something that the log holds for it; commits nothing."""


@runtime_checkable
class HoldsChanges(Protocol):
    """A sink whose tables hold each change as a row."""

    def current_rows(self, plan: TablePlan) -> str:
        """Return the SQL query of a table's current rows."""


@dataclass(frozen=True, slots=True)
class SinkAbilities:
    """What a kind of sink can do; the engine never asks for the sink's name."""

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
    """Tables that are new, or begin again, can be read while the stream flows."""
    replaces_rows: bool = False
    """Rows that it has can be read again, and those that are read take their places."""
    knows_all_orders: bool = True
    """It finds rows by ranges of any key; else only of one whose order code knows."""
    changes_tables: bool = False
    """Its tables can be changed as the source's are, while the stream flows."""
    isolates_tables: bool = False
    """One table can be left alone while the others flow, and come back."""
    takes_tables_without_key: bool = False
    """It has rows that nothing but their content tells apart, each as often as the source."""
    has_column_types: bool = False
    """Its columns have types, and the pipeline file may name some of them."""
    has_defaults: bool = False
    """Its columns have the defaults that the source's have."""
    keeps_columns: bool = False
    """Its rows stay as written, and are read by the columns of now: values that a statement gives
    to all rows, or has under another name, are there only once the rows are written again."""
    marks_rows: bool = False
    """Its rows can be marked as deleted, and have columns of metadata."""
    split_bytes: int = 0
    """Splits become files, which are large enough from so many of the source's bytes on; 0: any."""
    lays_out_files: bool = False
    """Its tables are files that have partitions, and rows in an order that the file names."""
    shares_tables: bool = False
    """Several tables of the source can go to one of its tables, each with rows of its own."""
    mended_by_hand: bool = False
    """A person may change or drop one of its tables, and `reset` goes on with what is there."""
    facts: tuple[str, ...] = ()
    """What of Debezium's `source` it writes with each change."""

    @property
    def begins_tables_again(self) -> bool:
        """Tell whether a table's definition can change and its rows be read again in the stream."""
        return self.joins and self.changes_tables


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The settings with which a sink is written."""

    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1
    """Parallel writers of `ApplyMode.MERGED`."""
    source_options: SourceOptions = field(default_factory=dict, hash=False)
    """Of the source whose rows are written: some say how its values are."""
    edge: Topology | None = None
    """The edge of a topology that the pipeline is: its transactions are marked."""
    known: LogPosition | None = None
    """Of an edge whose conflicts are settled: what its source knew of the sink's log at first."""
    local_files: bool = True
    """Files of the client's may be loaded where the sink allows it."""


class Sink(Protocol):
    """A pipeline's sink, written under one generation.

    It holds no connection, so it travels to executors as it is. Each part it opens has a
    connection of its own and is closed by who asked for it.
    """

    @property
    def abilities(self) -> SinkAbilities:
        """What this kind of sink can do."""

    @property
    def owner(self) -> Owner:
        """The pipeline and generation that write."""

    def identity(self) -> str:
        """Query the sink for its identity: a name that no other sink has."""

    def target_of(self, schema: TableSchema, table: TableId, shape: TableShape) -> TableSchema:
        """Return the definition of the sink's table for a table of the source.

        `ValueError` names the column that cannot be had so.
        """

    def reserved_for(self, database: str) -> str:
        """Return what a database of the sink is reserved for, empty if copies may go there."""

    def preflight(self, plans: Sequence[TablePlan], source: SourceLook) -> tuple[Finding, ...]:
        """Check settings, privileges, space and tables of the sink; changes nothing."""

    def open_side(self) -> VerifySide:
        """Open the sink's side of a comparison; refused if `abilities` has none."""

    def open_ledger(self) -> Ledger:
        """Open the ledger."""

    def open_targets(self) -> Targets:
        """Open the claims of tables."""

    def open_tables(self) -> TableBuilder:
        """Open the part that creates and changes the sink's tables."""

    def open_splits(self) -> SplitSink:
        """Open the part that publishes splits."""

    def open_joins(self, *, reader: int = 0) -> JoinSink:
        """Open the part that joins splits that are read again; refused if `abilities` has none.

        `reader` is a number that nobody else who joins rows of this pipeline has at the time.
        """

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> ChangeSink:
        """Open the part that applies changes; `columns` are the columns of each table's changes."""

    def open_stopped(
        self, table: TableId, columns: Mapping[TableId, pa.Schema], /, *, is_ahead: bool = False
    ) -> ChangeSink:
        """Open the part that applies changes to one isolated table.

        Its `stream` is that of the table; refused where `abilities` say so. `is_ahead`: the sink's
        table is defined already as a statement to come defines the source's.
        """
