"""What the engine and the steps ask of a source.

A `Source` is a server's place and account, and holds no connection, so it travels to executors as
it is. What it opens has connections of its own and is closed by who asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_cdc_provider.columns.verify_port import VerifySide
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.history import AppliedThrough, SharedHistory
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
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
from airflow_cdc_provider.core.table_facts import TableFacts
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks
from airflow_cdc_provider.core.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.changes import ChangeBatch, TableChanges
    from airflow_cdc_provider.columns.rows import SplitRows
    from airflow_cdc_provider.core.windows import Clock


class Pattern(Protocol):
    """Picks tables by name: two names, each with any number of `*`."""

    @property
    def database(self) -> str: ...

    @property
    def table(self) -> str: ...

    def matches(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the pattern picks `table`."""


class Boundaries(Protocol):
    """Finds a table's split boundaries over a connection that it holds."""

    def __call__(self, schema: TableSchema, start: Key | None) -> Iterator[Key]: ...


class Cuts(Protocol):
    """Finds values that cut an interval, over a connection that it holds."""

    def __call__(self, schema: TableSchema, chosen: Chosen) -> Iterator[KeyPart] | None:
        """Yield them in order; None if no index of the column would find them.

        A condition has none, and is None unless an index finds its rows and they are few.
        """


class SplitReader(Protocol):
    """Reads whole splits over connections that it keeps."""

    def read(
        self, split: SnapshotSplit, listed: pa.RecordBatch | None = None
    ) -> tuple[SplitRows, SplitReport]:
        """Read a split; `listed` are the keys of one whose rows are named one by one."""

    def changes(
        self, split: SnapshotSplit, report: SplitReport, up_to: LogPosition
    ) -> Iterator[TableChanges]:
        """Yield the changes of the split's table after it was settled, up to a later boundary.

        It was settled at the report's H if it was backfilled, else at its L; all keys of the table
        come, in log order. May be asked again, for the same place or a later one. Where the split
        has to be read again, because a statement changed the table, the log cannot be read up to
        there, or there is too much of it, the error is a `RetryableError`.
        """

    def close(self) -> None: ...


class TailReader(Protocol):
    """Reads the log on from where it is."""

    @property
    def position(self) -> LogPosition: ...

    def read_up_to(self, end: LogPosition, *, batch_s: float) -> Iterator[ChangeBatch]:
        """Yield the changes up to `end`, a boundary that this server told."""

    def follow(self, *, batch_s: float, wait_s: float) -> Iterator[ChangeBatch | None]:
        """Yield the changes as soon as the server has them, for ever; None every `wait_s` if none.

        `batch_s` is as long as reading one batch may take where more comes all the time.
        """

    def close(self) -> None: ...


class LogEnd(Protocol):
    """One session on a server; whoever it is then, it is the same server until `close`."""

    def now(self) -> LogPosition:
        """Return the end of the log: a boundary that everything committed so far lies before."""

    def seen(self) -> LogPosition:
        """Return a place that all that can be seen now lies before, to be a table's beginning.

        What is read of the table later holds all up to there.
        """

    def next_end(
        self, start: LogPosition, *, bound: LogPosition | None, batch_bytes: int
    ) -> NextEnd:
        """Return where a micro-batch from `start` ends; `start` itself if nothing is to be read.

        `bound` ends a bounded run; `batch_bytes` of log is what a micro-batch holds at most,
        as far as the server lets it be cut.
        """

    def bytes_behind(self, start: LogPosition) -> int | None:
        """Return how much log there is from `start` on; None if this server cannot tell."""

    def close(self) -> None: ...


@runtime_checkable
class KnowsReach(Protocol):
    """A log's end that can also tell how far the log reaches back."""

    def reach(self, start: LogPosition) -> LogReach:
        """Return what the server keeps of its log, and how much of that lies before `start`."""


@dataclass(frozen=True, slots=True)
class NextEnd:
    """Where a micro-batch ends."""

    end: LogPosition
    bound: LogPosition | None
    """The bound as it holds from now on: another server's log has another place for it."""


class Catalogue(Protocol):
    """A source's tables, over one connection."""

    @property
    def identity(self) -> str:
        """The server's own name for itself, which no other server has."""

    @property
    def names_fold_case(self) -> bool:
        """Whether two names that differ by case alone are one."""

    def picked(
        self, include: Sequence[Pattern], exclude: Sequence[Pattern] = ()
    ) -> tuple[TableFacts, ...]:
        """Return the tables, of whatever kind, that the patterns pick."""

    def reserved_for(self, database: str) -> str:
        """Return what a database is reserved for, empty if its tables may be copied."""

    def schemas(self, tables: Sequence[TableId]) -> Mapping[TableId, TableSchema]:
        """Return the definitions of these tables; those that do not exist are left out."""


@dataclass(frozen=True, slots=True)
class SplitReading:
    """How one reader reads splits."""

    schemas: Mapping[TableId, TableSchema]
    reader_id: int
    """An id at the source that no other reader of its log has."""
    backfill: bool
    max_split_bytes: int
    zero_dates: str


@dataclass(frozen=True, slots=True)
class LogReading:
    """How the stream reads the log."""

    schemas: Mapping[TableId, TableSchema]
    reader_id: int
    max_batch_changes: int = 100_000
    zero_dates: str = "fail"
    every_statement: bool = False
    """Batches end at each statement that names a table, harmless or not."""
    picks: TablePicks = NO_PICKS
    """Batches end at each statement by which a table comes that these pick."""
    facts: tuple[str, ...] = ()
    """What is to be told of each change besides, by Debezium's names."""


@dataclass(frozen=True, slots=True)
class PreflightQuestion:
    """What a pipeline asks of its source."""

    plans: Sequence[TablePlan]
    picked: Sequence[TableFacts] = ()
    """The tables that the patterns pick, of whatever kind."""
    patterns: Sequence[Pattern] = ()
    reader_ids: range = range(0)
    readers: int = 0
    """How many read at the same time."""
    is_snapshot_done: bool = False
    """Whether all that is left is to follow the log."""
    is_new: bool = False
    """Whether no reader that has one of the ids can be its own."""
    facts: Sequence[str] = ()
    """What the sink writes of each change beside its rows: `SinkAbilities.facts`."""


@dataclass(frozen=True, slots=True)
class SourceLook:
    """What preflight saw of the source."""

    findings: tuple[Finding, ...]
    facts: object = None
    """For a sink that knows this kind of source: what the two are compared by."""


LOOK_AT_TABLES = "a look at the tables"
"""What a catalogue is opened for, unless it is said."""


class Source(Protocol):
    """A server that tables are read from, and its log."""

    def connect(self, *, purpose: str) -> Any:
        """Open a connection as the system's own driver has it; the caller closes it."""

    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> AbstractContextManager[Catalogue]:
        """Open the catalogue; `purpose` is named in errors."""

    def preflight(self, question: PreflightQuestion) -> SourceLook:
        """Look at settings, privileges and tables; what cannot be told is a finding too."""

    def require_history(self, read: LogPosition, held: Sequence[AppliedThrough]) -> str:
        """Require that the server that answers has what was read, and what the sink holds.

        It may be another server than the one that was read. Returns what is to be told of that;
        empty if it is the same.
        """

    def require_same_log(
        self, read: LogPosition, held: Sequence[AppliedThrough], captured: Collection[TableId]
    ) -> str:
        """Require the history, and that the log is the very one that was read (law 10).

        Another server must have nothing before it that changed captured tables and was not read.
        """

    def shared_history(self, read: LogPosition, others: Sequence[LogPosition]) -> SharedHistory:
        """Tell up to where the server that answers has what was read, where it lacks a part of it.

        And of other positions, whether it has all of each.
        """

    def connections_a_reader(self, *, backfill: bool) -> int:
        """Return how many connections one snapshot reader holds."""

    def boundaries(self, split_rows: int) -> AbstractContextManager[Boundaries]:
        """Open what finds split boundaries."""

    def value_cuts(self, split_rows: int) -> AbstractContextManager[Cuts]:
        """Open what cuts an interval of a column."""

    def value_of(self, schema: TableSchema, column: str, text: str) -> KeyPart:
        """Read a value of a column that can be compared in code, as a person writes it.

        A `ValueError` says what is wrong with it.
        """

    def clock_of(self, schema: TableSchema, column: str) -> Clock | None:
        """Say how a column tells time; None if it does not."""

    def key_of(self, schema: TableSchema, texts: Sequence[str]) -> Key:
        """Read a table's key, or its first parts, as a person writes them.

        A `ValueError` says what is wrong with it.
        """

    def condition_of(self, schema: TableSchema, text: str) -> Condition:
        """Read a condition on a table's rows, as a person writes it, without asking the server.

        It says the same of the same row each time. A `ValueError` says what is wrong with it.
        """

    def key_list(self, schema: TableSchema, keys: Sequence[Key]) -> KeyList | None:
        """Return what finds the rows of these keys, as verify names them, by the key's index.

        None where such a key does not say its value to the server.
        """

    def middle_of(self, split: SnapshotSplit) -> Key:
        """Return a key in the middle of a split."""

    def split_reader(self, reading: SplitReading) -> SplitReader:
        """Open a snapshot reader."""

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> TailReader:
        """Open the reader of the log where a committed stream goes on."""

    def look_at_log(
        self, at: str, position: LogPosition | None, *, count: int, values: bool
    ) -> LogView:
        """Return events around `at` if it is given, else around a position, else at the end."""

    def is_same(self, one: TableSchema, other: TableSchema) -> bool:
        """Tell whether two definitions of a table are one, defaults and expressions included."""

    def difference(
        self, old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
    ) -> Difference:
        """Return what statements of the log made of a table's definition, and of its rows."""

    def behind_first(
        self, old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
    ) -> TableSchema | None:
        """Return what a table was between the first of statements and the second.

        `new` is what it is behind all of them, and they are all that named it since it was `old`.
        None if that does not tell it for sure.
        """

    def change_columns(self, reading: LogReading) -> Mapping[TableId, pa.Schema]:
        """Return the columns that the changes of each table have, in the value model."""

    def open_side(self) -> VerifySide:
        """Open the source's side of a comparison."""

    def log_end(self, *, purpose: str) -> LogEnd:
        """Open what tells where the log ends."""
