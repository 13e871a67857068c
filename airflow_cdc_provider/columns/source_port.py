"""What the engine and the steps ask of a source.

A `Source` is a server's place and account, and holds no connection, so it travels to executors as
it is. What it opens has connections of its own and is closed by who asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from airflow_cdc_provider.columns.verify_port import VerifySide
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.history import AppliedThrough, SharedHistory
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.name_patterns import NamePattern
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import RowFilter
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.splits import (
    Chosen,
    Condition,
    KeyList,
    SnapshotSplit,
    SplitReport,
)
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_starts import Beginning, StreamStart
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.core.table_facts import TableFacts
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks
from airflow_cdc_provider.core.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.changes import ChangeBatch, TableChanges
    from airflow_cdc_provider.columns.rows import SplitRows
    from airflow_cdc_provider.core.windows import Clock


class Pattern(Protocol):
    """Picks tables by database and name."""

    @property
    def is_exact(self) -> bool:
        """Tell whether it picks one table only."""

    @property
    def database(self) -> NamePattern: ...

    def matches(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the pattern picks `table`."""


class Boundaries(Protocol):
    """Finds a table's split boundaries over one open connection."""

    def __call__(self, schema: TableSchema, start: Key | None) -> Iterator[Key]: ...


class Cuts(Protocol):
    """Finds values that cut an interval of a column into parts, over one open connection."""

    def __call__(self, schema: TableSchema, chosen: Chosen) -> Iterator[KeyPart] | None:
        """Yield the values at which an interval is cut, in order; None if no index would find them.

        A condition has none, and is None unless an index finds its rows and they are few.
        """


class SplitReader(Protocol):
    """Reads whole splits over its own connections."""

    def read(
        self, split: SnapshotSplit, listed: pa.RecordBatch | None = None
    ) -> tuple[SplitRows, SplitReport]:
        """Read a split's rows and report; `listed` has the keys of a split that lists its keys."""

    def changes(
        self, split: SnapshotSplit, report: SplitReport, up_to: LogPosition
    ) -> Iterator[TableChanges]:
        """Yield the table's changes since the split was settled, up to a later position.

        It was settled at the report's H if it was backfilled, else at its L; all keys of the table
        come, in log order. May be asked again, for the same place or a later one. Where the split
        has to be read again, because a statement changed the table, the log cannot be read up to
        there, or there is too much of it, the error is a `RetryableError`.
        """

    def close(self) -> None: ...


class TailReader(Protocol):
    """Reads the log from its position on."""

    @property
    def position(self) -> LogPosition: ...

    def read_up_to(self, end: LogPosition, *, batch_s: float) -> Iterator[ChangeBatch]:
        """Yield the changes up to `end`, a position that this server returned."""

    def follow(self, *, batch_s: float, wait_s: float) -> Iterator[ChangeBatch | None]:
        """Yield changes as they arrive, for ever; None every `wait_s` seconds without one.

        `batch_s` is as long as reading one batch may take where more comes all the time.
        """

    def close(self) -> None: ...


class LogEnd(Protocol):
    """Returns positions at the end of the log, over one session on one server."""

    def now(self) -> LogPosition:
        """Return the position at the end of the log: everything committed so far is before it."""

    def seen(self) -> LogPosition:
        """Return a position that covers all that a read would see now, to begin a table at.

        What is read of the table later has all up to there.
        """

    def next_end(
        self, start: LogPosition, *, bound: LogPosition | None, batch_bytes: int
    ) -> NextEnd:
        """Return where a micro-batch from `start` ends; `start` itself if no log is to be read.

        `bound` ends a bounded run; `batch_bytes` of log is what a micro-batch holds at most,
        as far as the server lets it be cut.
        """

    def bytes_behind(self, start: LogPosition) -> int | None:
        """Return how many bytes of log there are from `start` on; None if that is not known."""

    def close(self) -> None: ...


@runtime_checkable
class KnowsReach(Protocol):
    """An end of log that also knows how far back the log reaches."""

    def reach(self, start: LogPosition) -> LogReach:
        """Return how much log the server keeps, and how much of that is before `start`."""


@dataclass(frozen=True, slots=True)
class NextEnd:
    """Where a micro-batch ends, and where a bounded run does."""

    end: LogPosition
    bound: LogPosition | None
    """The bound as it holds from now on: another server's log has another place for it."""


class Catalogue(Protocol):
    """Lists a source's tables and their definitions, over one connection."""

    @property
    def identity(self) -> str:
        """The server's own id, which no other server has."""

    @property
    def names_fold_case(self) -> bool:
        """Whether the server treats names that differ by case alone as the same."""

    def picked(
        self, include: Sequence[Pattern], exclude: Sequence[Pattern] = ()
    ) -> tuple[TableFacts, ...]:
        """Return the tables, of any kind, that the patterns pick."""

    def reserved_for(self, database: str) -> str:
        """Return what a database is reserved for, empty if its tables may be copied."""

    def schemas(self, tables: Sequence[TableId]) -> Mapping[TableId, TableSchema]:
        """Return the definitions of these tables; those that do not exist are left out."""


@dataclass(frozen=True, slots=True)
class SplitReading:
    """The settings of one reader of splits."""

    schemas: Mapping[TableId, TableSchema]
    reader: int
    """A number that no other reader of the pipeline has at the same time."""
    backfill: bool
    max_split_bytes: int
    options: SourceOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogReading:
    """The settings of a reader of the log."""

    schemas: Mapping[TableId, TableSchema]
    reader: int
    """A number that no other reader of the pipeline has at the same time; the stream's is 0."""
    max_batch_changes: int = 100_000
    options: SourceOptions = field(default_factory=dict)
    every_statement: bool = False
    """Batches end at each statement that names a table, harmless or not."""
    picks: TablePicks = NO_PICKS
    """Batches end at each statement by which a table comes that these pick."""
    facts: tuple[str, ...] = ()
    """What is to be told of each change besides, by Debezium's names."""
    origins: EdgeOrigins | None = None
    """Transactions that are left out by the marker they begin with. The log is read so as a stream
    alone: what is replayed onto rows that were read needs every transaction."""
    opposite: str = ""
    """The name in ledgers of the edge back, whose progress the batches tell; empty: not asked."""


@dataclass(frozen=True, slots=True)
class PreflightQuestion:
    """What preflight is to check of a source: tables, patterns, options and connections."""

    plans: Sequence[TablePlan]
    picked: Sequence[TableFacts] = ()
    """The tables that the patterns pick, of whatever kind."""
    patterns: Sequence[Pattern] = ()
    options: SourceOptions = field(default_factory=dict)
    readers: int = 0
    """How many read at the same time."""
    is_snapshot_done: bool = False
    """Whether all that is left is to follow the log."""
    is_new: bool = False
    """Whether no reader that the source has now can be its own."""
    facts: Sequence[str] = ()
    """What the sink writes of each change beside its rows: `SinkAbilities.facts`."""
    needs_keys: str = ""
    """Why no table without a key is copied; empty if such tables are."""
    needs_defaults: bool = True
    """Whether the sink's columns have the defaults that the source's have."""
    instead_of_keys: str = ""
    """What else than a key lets the sink have such tables; empty if nothing does."""
    is_planned: bool = False
    """Whether its tables are in a plan already, by the definitions of then."""
    finds_rows: bool = True
    """Whether the sink looks for the rows that changes are of: without a key, among all."""


@dataclass(frozen=True, slots=True)
class SourceLook:
    """What preflight found at the source."""

    findings: tuple[Finding, ...]
    facts: object = None
    """For a sink that knows this kind of source: what the two are compared by."""


@dataclass(frozen=True, slots=True)
class SourceAbilities:
    """What a kind of source can do and needs; the engine never asks for the source's name."""

    holds_log: bool = False
    """It keeps its log for a reader only where it was asked to: see `LogHold`."""


class LogHold(Protocol):
    """Makes a source keep its log for a pipeline, if it would otherwise delete it.

    It belongs to the pipeline's name, and stays until it is released, whoever opened it.
    """

    def secure(self) -> None:
        """Have the log kept from now on, before anything is read; again is harmless."""

    def advance(self, needed: LogPosition) -> None:
        """Let go of the log before `needed`, but for readers that have begun before it."""

    def release(self) -> None:
        """Have no log kept any more; harmless where none is."""

    def close(self) -> None: ...


class NoHold:
    """The hold of a source that keeps its log by settings of its own."""

    def secure(self) -> None:
        """Do nothing."""

    def advance(self, needed: LogPosition) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


LOOK_AT_TABLES = "a look at the tables"
"""What a catalogue is opened for, unless it is said."""


class Source(Protocol):
    """A server whose tables are read, and its log."""

    @property
    def abilities(self) -> SourceAbilities:
        """What this kind of source can do and needs."""

    def hold(self, pipeline: PipelineName) -> LogHold:
        """Open the pipeline's hold on the log."""

    def connect(self, *, purpose: str) -> Any:
        """Open a connection of the system's own driver; the caller closes it."""

    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> AbstractContextManager[Catalogue]:
        """Open the catalogue; `purpose` is named in errors."""

    def preflight(self, question: PreflightQuestion) -> SourceLook:
        """Check settings, privileges and tables; what cannot be checked is a finding too."""

    def require_history(self, read: LogPosition, held: Sequence[AppliedThrough]) -> str:
        """Require that the server's history has what was read, and what the sink has.

        It may be another server than the one that was read. Returns a message about that, empty if
        it is the same server.
        """

    def require_same_log(
        self, read: LogPosition, held: Sequence[AppliedThrough], captured: Collection[TableId]
    ) -> str:
        """Require the history, and that the log is the one that was read (law 10).

        Another server must have nothing before it that changed captured tables and was not read.
        """

    def connections_a_reader(self, *, backfill: bool) -> int:
        """Return how many connections one snapshot reader uses."""

    def most_readers(self, options: SourceOptions) -> int:
        """Return how many readers of a pipeline may read its log at once, the stream's included."""

    def boundaries(self, split_rows: int) -> AbstractContextManager[Boundaries]:
        """Open the finder of split boundaries."""

    def value_cuts(self, split_rows: int) -> AbstractContextManager[Cuts]:
        """Open the finder of values that cut an interval of a column."""

    def middle_of(self, split: SnapshotSplit) -> Key:
        """Return a key in the middle of a split's rows."""

    def split_reader(self, reading: SplitReading) -> SplitReader:
        """Open a snapshot reader."""

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> TailReader:
        """Open the reader of the log at a committed stream's position."""

    def change_columns(self, reading: LogReading) -> Mapping[TableId, pa.Schema]:
        """Return the columns of each table's changes, in the value model."""

    def log_end(self, *, purpose: str) -> LogEnd:
        """Open a session that returns positions at the log's end."""


@runtime_checkable
class ReadsText(Protocol):
    """A source of whose tables a person may name values, keys and conditions."""

    def value_of(self, schema: TableSchema, column: str, text: str) -> KeyPart:
        """Parse a column's value as a person writes it, for a column that code can compare.

        A `ValueError` says what is wrong with it.
        """

    def clock_of(self, schema: TableSchema, column: str) -> Clock | None:
        """Return how a column keeps time; None if it has no times."""

    def key_of(self, schema: TableSchema, texts: Sequence[str]) -> Key:
        """Parse a table's key, or its first columns, as a person writes it.

        A `ValueError` says what is wrong with it.
        """

    def condition_of(self, schema: TableSchema, text: str) -> Condition:
        """Parse a condition on a table's rows as a person writes it, without asking the server.

        It says the same of the same row each time. A `ValueError` says what is wrong with it.
        """

    def require_as_printed(self, schema: TableSchema, where: RowFilter) -> None:
        """Refuse a value of a filter that the server prints otherwise: it is equal to no row.

        A `ValueError` says how it is printed.
        """

    def key_list(self, schema: TableSchema, keys: Sequence[Key]) -> KeyList | None:
        """Return a choice of rows by their keys, as verify reports them; it uses the key's index.

        None where such a key does not say its value to the server.
        """


@runtime_checkable
class FollowsDefinitions(Protocol):
    """A source that tells how definitions of a table differ."""

    def is_same(self, one: TableSchema, other: TableSchema) -> bool:
        """Tell whether two definitions are the same, including defaults and expressions."""

    def difference(
        self,
        old: TableSchema,
        new: TableSchema,
        statements: Sequence[StatementEffect],
        *,
        keeps_columns: bool = False,
    ) -> Difference:
        """Return how two definitions differ, given the statements of the log between them.

        `keeps_columns`: rows that are at the sink stay in the columns they were written to.
        """

    def after_first(
        self, old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
    ) -> TableSchema | None:
        """Return the definition between the first and the second of several statements.

        `new` is the definition after all of them, and they are all that named the table since
        `old`. None if that does not say for sure.
        """

    def needed(self, schema: TableSchema, names: Collection[str]) -> Collection[str]:
        """Return those of some columns that each new row has to name: they have no default."""

    def other_defaults(
        self, one: TableSchema, other: TableSchema, names: Collection[str]
    ) -> Collection[str]:
        """Return those of some columns that have another constant default in one of two tables."""


@runtime_checkable
class ShowsLog(Protocol):
    """A source whose log a person may look at."""

    def look_at_log(
        self, at: str, position: LogPosition | None, *, count: int, values: bool
    ) -> LogView:
        """Return log events around the place `at`, else a position, else the log's end."""


@runtime_checkable
class FindsStops(Protocol):
    """A source that finds where in its log a stream is to end."""

    def stop_place(
        self,
        stop: StreamStop,
        reached: LogPosition,
        end: LogPosition,
        *,
        is_start: bool = False,
    ) -> LogPosition | None:
        """Return where a stream ends for good; None if the log up to `end` has no such place yet.

        `reached` is what the sink has rows of. An earlier place, and one that is no boundary
        between transactions, is a `RefusedError`. `is_start`: the stream begins there without a
        snapshot, so that log which is not kept any more is nothing to it.
        """

    def require_stop(self, stop: StreamStop) -> None:
        """Refuse a stop that is no place of this kind of source; its log is not looked at."""


@runtime_checkable
class FindsStarts(Protocol):
    """A source that finds where in its log a stream without a snapshot starts."""

    def start_place(self, start: StreamStart) -> Beginning:
        """Return where a stream starts: a boundary between transactions.

        Definitions of tables are to be read before. A `RefusedError` says why there is no such
        place, or not any more.
        """


@runtime_checkable
class SharesHistory(Protocol):
    """A source that tells how much of a history it has that another server has written."""

    def shared_history(self, read: LogPosition, others: Sequence[LogPosition]) -> SharedHistory:
        """Return how far the server's history and the one that was read are the same.

        `others` are positions of which it is returned whether the server has all of each.
        """


@runtime_checkable
class Verifies(Protocol):
    """A source whose tables can be compared with a sink's."""

    def open_side(self, options: SourceOptions | None = None) -> VerifySide:
        """Open the source's side of a comparison, of its values as these options have them."""


class LoadLook(Protocol):
    """Asks a source how busy it is, over one session."""

    def threads_running(self) -> int:
        """Return the threads that run at the server, without those of the pipeline's readers."""

    def close(self) -> None: ...


class LagLook(Protocol):
    """Asks a replica how far it is behind, over one session."""

    def lag_s(self) -> float:
        """Return the seconds that the replica is behind.

        `ReplicationStoppedError` if that is not known, because it does not replicate.
        """

    def close(self) -> None: ...


@runtime_checkable
class TellsLoad(Protocol):
    """A source that tells how busy it is, and how late its replicas are."""

    def load_look(self, *, most_own: int) -> LoadLook:
        """Open a session that tells the source's load.

        At most `most_own` threads of the session's account are the pipeline's.
        """

    def lag_look(self) -> LagLook:
        """Open a session that tells how far this server, a replica, is behind."""


Offered = TypeVar("Offered")


def offered(source: Source, port: type[Offered]) -> Offered:
    """Return the source as one that has a port which not every source has; else refuse."""
    if isinstance(source, port):
        return source
    what = (port.__doc__ or "").split("\n")[0].removesuffix(".").lower().removeprefix("a ")
    raise RefusedError(
        f"this is not a {what}",
        where=str(source),
        risk=NOTHING_CHANGED,
        remedy="leave out what needs it: not every kind of source has all",
    )
