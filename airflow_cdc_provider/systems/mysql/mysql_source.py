"""MySQL and MariaDB as a source: what the engine asks, answered over connections opened here.

What reads rows or the log is imported where it is opened: it brings Arrow, which whoever only looks
at the server does without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.source_port import (
    LOOK_AT_TABLES,
    Boundaries,
    Cuts,
    LogHold,
    LogReading,
    NoHold,
    Pattern,
    PreflightQuestion,
    SourceAbilities,
    SourceLook,
    SplitReading,
)
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.history import AppliedThrough, SharedHistory, held_by_stream
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_filters import RowFilter
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.splits import Chosen, Condition, KeyList, SnapshotSplit
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_starts import Beginning, StreamStart
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.core.table_facts import TableFacts
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.windows import Clock
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.dialect.column_types import ZeroDates
from airflow_cdc_provider.systems.mysql.dialect.conditions import condition_of
from airflow_cdc_provider.systems.mysql.dialect.create_statement import without_counter
from airflow_cdc_provider.systems.mysql.dialect.definition_changes import (
    difference,
    needed_columns,
    other_defaults,
)
from airflow_cdc_provider.systems.mysql.dialect.definition_steps import definition_after_first
from airflow_cdc_provider.systems.mysql.dialect.key_text import clock_of, key_list, key_of, value_of
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import require_as_printed
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition, own
from airflow_cdc_provider.systems.mysql.preflight.preflight import source_look
from airflow_cdc_provider.systems.mysql.server.capabilities import (
    Capabilities,
    WatermarkMode,
    read_capabilities,
)
from airflow_cdc_provider.systems.mysql.server.catalogue import picked_tables, reserved_for
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.source.gtid_history import taken_over
from airflow_cdc_provider.systems.mysql.source.key_bounds import boundaries, split_middle
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from airflow_cdc_provider.systems.mysql.source.log_start import check_start
from airflow_cdc_provider.systems.mysql.source.server_load import MySqlLagLook, MySqlLoadLook
from airflow_cdc_provider.systems.mysql.source.shared_history import shared_history
from airflow_cdc_provider.systems.mysql.source.value_cuts import value_cuts

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection
    from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
    from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
    from airflow_cdc_provider.systems.mysql.verify.verify_side import MySqlVerifySide

_LOOK_WITHIN_S = 60.0
"""A server that does not answer for so long is asked again over another connection."""
_BATCH_LOG_BYTES = 32 * 1024 * 1024
"""Log behind one batch of changes: what the reader and the writer each hold of it, decoded."""


@dataclass(frozen=True, slots=True)
class MySqlCatalogue:
    """The tables of one MySQL or MariaDB server, over one connection."""

    connection: ServerConnection
    capabilities: Capabilities
    keys: NamedKeys = NO_NAMED_KEYS

    @property
    def identity(self) -> str:
        """Return the server's own id, which no other server has."""
        return self.capabilities.server_uuid

    @property
    def names_fold_case(self) -> bool:
        """Tell whether the server compares names without regard to case."""
        return self.capabilities.names_fold_case

    def picked(
        self, include: Sequence[Pattern], exclude: Sequence[Pattern] = ()
    ) -> tuple[TableFacts, ...]:
        """Return the tables that the include patterns pick and the exclude patterns do not."""
        return picked_tables(self.connection, self.capabilities, include, exclude)

    def reserved_for(self, database: str) -> str:
        """Return what a database is reserved for, empty if its tables may be copied."""
        return reserved_for(database, fold=self.names_fold_case)

    def schemas(self, tables: Sequence[TableId]) -> Mapping[TableId, TableSchema]:
        """Return the definitions of these tables, with the text of SHOW CREATE TABLE."""
        return read_schemas(self.connection, tables, keys=self.keys)


@dataclass(frozen=True, slots=True)
class MySqlSource:
    """A source that is a MySQL or MariaDB server."""

    endpoint: Endpoint
    keys: NamedKeys = NO_NAMED_KEYS
    """The unique keys that a pipeline file names for its tables."""

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def abilities(self) -> SourceAbilities:
        """Return what a MySQL source can do and needs."""
        return SourceAbilities()

    def hold(self, pipeline: PipelineName) -> LogHold:  # noqa: ARG002 - one server, one retention
        """Return a hold that does nothing: a server keeps its log as long as it is set to."""
        return NoHold()

    def connect(self, *, purpose: str) -> ServerConnection:
        return connect(self.endpoint, purpose=purpose)

    @contextmanager
    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> Iterator[MySqlCatalogue]:
        """Open the server's catalogue within the block."""
        with closing(connect(self.endpoint, purpose=purpose)) as connection:
            yield MySqlCatalogue(connection, read_capabilities(connection), self.keys)

    def preflight(self, question: PreflightQuestion) -> SourceLook:
        """Return the preflight findings and facts of the source and its tables."""
        return source_look(self.endpoint, question)

    def require_history(self, read: LogPosition, held: Sequence[AppliedThrough]) -> str:
        """Refuse the server if it lacks transactions read, or held in the sink.

        Return a remark on a server that took over from the one that was read.
        """
        with closing(connect(self.endpoint, purpose="position")) as connection:
            capabilities = read_capabilities(connection)
            check_start(connection, capabilities, own(read), held=held)
            return taken_over(connection, capabilities, _positions(read, held))

    def require_same_log(
        self, read: LogPosition, held: Sequence[AppliedThrough], captured: Collection[TableId]
    ) -> str:
        """Refuse the server if its log is not the one read before, or has errant transactions.

        Return a remark on a server that took over from the one that was read.
        """
        from airflow_cdc_provider.systems.mysql.source.errant_transactions import require_no_errant  # noqa: PLC0415
        from airflow_cdc_provider.systems.mysql.source.log_fingerprint import (  # noqa: PLC0415
            require_known,
        )

        require_known(self.endpoint, own(read), held)
        ours = _positions(read, held)
        with closing(connect(self.endpoint, purpose="identity")) as connection:
            capabilities = read_capabilities(connection)
            require_no_errant(self.endpoint, connection, capabilities.server_uuid, ours, captured)
            return taken_over(connection, capabilities, ours)

    def shared_history(self, read: LogPosition, others: Sequence[LogPosition]) -> SharedHistory:
        """Return the part of `read` that this server has too, and which of `others` it has."""
        with closing(connect(self.endpoint, purpose="history")) as connection:
            capabilities = read_capabilities(connection)
            return shared_history(connection, capabilities, own(read), list(map(own, others)))

    def connections_a_reader(self, *, backfill: bool) -> int:
        """Return how many connections a snapshot reader needs: one, or two if it reads the log."""
        if not backfill:
            return 1
        with closing(connect(self.endpoint, purpose="snapshot")) as connection:
            modes = read_capabilities(connection).watermark_modes
        return 1 if modes[:1] == (WatermarkMode.CONSISTENT_SNAPSHOT,) else 2

    def most_readers(self, options: SourceOptions) -> int:
        """Return how many server ids there are: each reader of the log has one of its own."""
        return len(MySqlOptions.of(options).server_ids)

    @contextmanager
    def boundaries(self, split_rows: int) -> Iterator[Boundaries]:
        """Give, within the block, the function that finds the boundaries of a table's splits."""
        with closing(connect(self.endpoint, purpose="planning splits")) as connection:

            def find(schema: TableSchema, start: Key | None) -> Iterator[Key]:
                return boundaries(connection, schema, split_rows, start)

            yield find

    @contextmanager
    def value_cuts(self, split_rows: int) -> Iterator[Cuts]:
        """Give, within the block, the function that cuts chosen rows by a column's values."""
        with closing(connect(self.endpoint, purpose="planning splits")) as connection:

            def find(schema: TableSchema, chosen: Chosen) -> Iterator[KeyPart] | None:
                return value_cuts(connection, schema.table, chosen, split_rows)

            yield find

    def value_of(self, schema: TableSchema, column: str, text: str) -> KeyPart:
        """Parse a text as a value of a column; `ValueError` says what is wrong with it."""
        return value_of(schema.column(column), text)

    def clock_of(self, schema: TableSchema, column: str) -> Clock | None:
        """Return how a column tells time; None if it does not."""
        return clock_of(schema.column(column))

    def key_of(self, schema: TableSchema, texts: Sequence[str]) -> Key:
        """Parse texts as a key of the table, or as its first parts."""
        return key_of(schema, texts)

    def condition_of(self, schema: TableSchema, text: str) -> Condition:
        """Parse a person's condition on a table's rows; `ValueError` says what is wrong with it."""
        return condition_of(schema, text)

    def require_as_printed(self, schema: TableSchema, where: RowFilter) -> None:
        """Refuse a UUID or address of a filter that MariaDB prints otherwise."""
        require_as_printed(schema, where)

    def key_list(self, schema: TableSchema, keys: Sequence[Key]) -> KeyList | None:
        """Return a list of the keys that verify printed; None if it cannot find their rows."""
        return key_list(schema, keys)

    def middle_of(self, split: SnapshotSplit) -> Key:
        """Return a key inside the split, with about half of the split's rows before it."""
        with closing(connect(self.endpoint, purpose="cutting a split")) as connection:
            return split_middle(connection, split, self.keys)

    def split_reader(self, reading: SplitReading) -> SnapshotReader:
        """Return a reader of the source's splits."""
        from airflow_cdc_provider.systems.mysql.source.snapshot_reader import (  # noqa: PLC0415
            SnapshotReader,
        )

        options = MySqlOptions.of(reading.options)
        return SnapshotReader(
            self.endpoint,
            reading.schemas,
            server_id=options.server_id(reading.reader),
            backfill=reading.backfill,
            max_split_bytes=reading.max_split_bytes,
            zero_dates=options.zero_dates,
        )

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> LogReader:
        """Return a reader of the source's log that starts at the stream's position."""
        from airflow_cdc_provider.systems.mysql.source.log_reader import (  # noqa: PLC0415
            LogReader,
        )

        options = MySqlOptions.of(reading.options)
        return LogReader(
            self.endpoint,
            server_id=options.server_id(reading.reader),
            start=own(stream.start),
            held=held_by_stream(stream),
            captured=frozenset(reading.schemas),
            limits=BatchLimits(changes=reading.max_batch_changes, bytes=_BATCH_LOG_BYTES),
            zero_dates=options.zero_dates,
            schemas=reading.schemas.get,
            every_statement=reading.every_statement,
            picks=reading.picks,
            facts=reading.facts,
            origins=reading.origins,
            opposite=reading.opposite,
        )

    def look_at_log(
        self, at: str, position: LogPosition | None, *, count: int, values: bool
    ) -> LogView:
        """Return the log's events around `at` or a position, described for people to read."""
        from airflow_cdc_provider.systems.mysql.source.log_view import (  # noqa: PLC0415
            look_at_log,
        )

        around = None if position is None else own(position)
        return look_at_log(self.endpoint, at, around, count=count, values=values)

    def stop_place(
        self,
        stop: StreamStop,
        reached: LogPosition,
        end: LogPosition,
        *,
        is_start: bool = False,
    ) -> MySqlPosition | None:
        """Return where a stream ends for good, None if the log does not have the place yet."""
        from airflow_cdc_provider.systems.mysql.source.stop_places import (  # noqa: PLC0415
            stop_place,
        )

        return stop_place(self.endpoint, stop, own(reached), own(end), is_start=is_start)

    def require_stop(self, stop: StreamStop) -> None:
        """Refuse a position or a GTID set that is none of this server's family."""
        from airflow_cdc_provider.systems.mysql.source.stop_places import (  # noqa: PLC0415
            require_stop,
        )

        with closing(connect(self.endpoint, purpose="stop of the stream")) as connection:
            require_stop(stop, read_capabilities(connection))

    def start_place(self, start: StreamStart) -> Beginning:
        """Return where in the server's log a stream without a snapshot starts."""
        from airflow_cdc_provider.systems.mysql.source.start_places import (  # noqa: PLC0415
            start_place,
        )

        return start_place(self.endpoint, start)

    def is_same(self, one: TableSchema, other: TableSchema) -> bool:
        """Tell whether two definitions of a table are the same, whatever their AUTO_INCREMENT."""
        texts = {without_counter(each.create_statement) for each in (one, other)}
        return one.fingerprint == other.fingerprint and len(texts) == 1

    def difference(
        self,
        old: TableSchema,
        new: TableSchema,
        statements: Sequence[StatementEffect],
        *,
        keeps_columns: bool = False,
    ) -> Difference:
        """Return what statements changed between two definitions of a table."""
        if any(each.cascades for each in statements) and self._logs_cascades():
            statements = [replace(each, cascades=False) for each in statements]
        return difference(old, new, statements, keeps_columns=keeps_columns)

    def _logs_cascades(self) -> bool:
        """Tell whether the server logs the rows that a foreign key changes by itself."""
        with closing(connect(self.endpoint, purpose=LOOK_AT_TABLES)) as connection:
            return read_capabilities(connection).logs_cascades

    def after_first(
        self, old: TableSchema, new: TableSchema, statements: Sequence[StatementEffect]
    ) -> TableSchema | None:
        """Return a table's definition after the first of several statements; None if unclear."""
        return definition_after_first(old, new, statements)

    def needed(self, schema: TableSchema, names: Collection[str]) -> Collection[str]:
        """Return those of some columns that each new row has to name: they have no default."""
        return needed_columns(schema, names)

    def other_defaults(
        self, one: TableSchema, other: TableSchema, names: Collection[str]
    ) -> Collection[str]:
        """Return those of some columns that have another constant default in one of two tables."""
        return other_defaults(one, other, names)

    def change_columns(self, reading: LogReading) -> Mapping[TableId, pa.Schema]:
        """Return the Arrow schema of each table's changes."""
        from airflow_cdc_provider.systems.mysql.dialect.value_model import (  # noqa: PLC0415
            arrow_schemas,
        )

        return arrow_schemas(reading.schemas.values(), MySqlOptions.of(reading.options).zero_dates)

    def open_side(self, options: SourceOptions | None = None) -> MySqlVerifySide:
        """Open the source's side of a verification."""
        from airflow_cdc_provider.systems.mysql.verify.verify_side import (  # noqa: PLC0415
            MySqlVerifySide,
        )

        connection = connect(self.endpoint, purpose="verify")
        nulls = options is not None and MySqlOptions.of(options).zero_dates is ZeroDates.NULL
        return MySqlVerifySide(connection, Role.SOURCE, nulls, self.keys)

    def load_look(self, *, most_own: int) -> MySqlLoadLook:
        """Open a connection that tells how many threads of others run at the source."""
        return MySqlLoadLook(self._connect_to_look(), most_own)

    def lag_look(self) -> MySqlLagLook:
        """Open a connection that tells how far this server is behind the one it replicates."""
        return MySqlLagLook(self._connect_to_look())

    def _connect_to_look(self) -> ServerConnection:
        """Open a connection that is given up soon if the server does not answer."""
        return connect(self.endpoint, purpose="throttle", read_timeout_s=_LOOK_WITHIN_S)

    def log_end(self, *, purpose: str) -> MySqlLogEnd:
        """Open a connection to query the end of the source's log."""
        return MySqlLogEnd(self.endpoint, purpose=purpose)


def _positions(read: LogPosition, held: Sequence[AppliedThrough]) -> list[MySqlPosition]:
    """Return the position that was read, and those held in the sink, as MySQL's."""
    return [own(read), *(own(each.position) for each in held)]
