"""A pipeline of one table between two real servers, its stream in the test's hands."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.source_port import LogReading, SplitReading
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows
from airflow_cdc_provider.engine.sink.port import JoinedRows, JoinSink, Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from tests.servers.given import SqlServer
from tests.systems.mysql.splits import SERVER_ID, schema_of, split_of

OPTIONS = {"server_ids": [SERVER_ID, SERVER_ID + 999]}

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
REQUEST = "r1"
TEXTS = "id INT PRIMARY KEY, name VARCHAR(60)"


@dataclass
class JoinWorld:
    """Source and sink have the table `t`, made by one statement; `start` brings them together."""

    source_server: SqlServer
    sink_server: SqlServer
    database: str
    sink_database: str
    writers: int = 1
    local_files: bool = True
    readers: Iterator[int] = field(default_factory=lambda: count(2))
    stack: ExitStack = field(default_factory=ExitStack)
    pipeline: PipelineName = field(
        default_factory=lambda: PipelineName(f"p_{secrets.token_hex(6)}")
    )

    def make(self, columns: str, *rows: str) -> None:
        """Make the table on both sides, and put rows into the source's."""
        create = f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4"
        self.at_source(create, *(f"INSERT INTO t VALUES {values}" for values in rows))
        self.at_sink(create)
        schema = schema_of(self.source_server, TableId(self.database, "t"))
        self.plan = TablePlan.alike(schema, TableId(self.sink_database, "t"), 0)
        self.source = MySqlSource(Endpoint.parse(self.source_server.dsn()))
        self.schemas = {schema.table: schema}
        self.reading = SplitReading(self.schemas, 0, True, 1 << 24, OPTIONS)

    def start(self) -> None:
        """Copy the table, hand it to the stream, and bring it to its consistent point."""
        self.ledger = self.opened(self.sink().open_ledger())
        self.ledger.take_over(1)
        split = self.split()
        with closing(self.source.split_reader(self.reading)) as reader:
            rows, report = reader.read(split)
        with closing(self.sink().open_splits()) as splits:
            splits.publish(split, rows, report)
        finished = FinishedSplit.of(
            split, report, backfilled=split.is_backfilled(wanted=self.reading.backfill)
        )
        self.ledger.store_stream(hand_off([finished]))
        log = LogReading(self.schemas, 1, options=OPTIONS)
        self.log = self.opened(self.source.log_reader(self.ledger.stream(), log))
        self.changes = self.opened(self.sink().open_changes(self.source.change_columns(log)))
        self.advance()

    @property
    def server(self) -> SqlServer:
        """The sink's, as who kills its connections asks for it."""
        return self.sink_server

    # --- both sides ---------------------------------------------------------------------------

    def at_source(self, *statements: str) -> None:
        for statement in statements:
            self.source_server.execute(statement, database=self.database)

    def at_sink(self, *statements: str) -> None:
        for statement in statements:
            self.sink_server.execute(statement, database=self.sink_database)

    def held_at_source(self, where: str = "TRUE") -> list[Row]:
        sql = f"SELECT * FROM `{self.database}`.t WHERE {where}"
        return sorted(self.source_server.execute(sql), key=repr)

    def held(self, where: str = "TRUE") -> list[Row]:
        sql = f"SELECT * FROM `{self.sink_database}`.t WHERE {where}"
        return sorted(self.sink_server.execute(sql), key=repr)

    # --- the stream ---------------------------------------------------------------------------

    def end(self) -> LogPosition:
        with closing(self.source.log_end(purpose="test")) as log_end:
            return log_end.now()

    def batches(self, end: LogPosition | None = None) -> Iterator[ChangeBatch]:
        """Read the log on up to a place, its end if none is given."""
        return self.log.read_up_to(end or self.end(), batch_s=1.0)  # type: ignore[no-any-return]

    def advance(self, end: LogPosition | None = None) -> None:
        """Apply the log up to a place, its end if none is given."""
        for batch in self.batches(end):
            self.changes.apply(batch)
        if self.changes.quiet is not None:
            self.ledger.pass_over(self.changes.quiet)
            self.changes.quiet = None

    # --- reading again ------------------------------------------------------------------------

    def sink(self, generation: int = 1) -> MySqlSink:
        merged = self.writers > 1
        settings = SinkSettings(
            apply=ApplyMode.MERGED if merged else ApplyMode.TRANSACTIONS,
            writers=self.writers,
            local_files=self.local_files,
        )
        endpoint = Endpoint.parse(self.sink_server.dsn())
        return MySqlSink(endpoint, Owner(self.pipeline, generation), (self.plan,), settings)

    def split(
        self, start: Key | None = None, end: Key | None = None, number: int = 0
    ) -> SnapshotSplit:
        return split_of(self.plan.schema, start, end, number)

    def joins(self, generation: int = 1) -> Any:
        return self.opened(self.sink(generation).open_joins())

    def reader(self) -> Any:
        reading = replace(self.reading, reader=next(self.readers))
        return self.opened(self.source.split_reader(reading))

    def read(
        self,
        start: Key | None = None,
        end: Key | None = None,
        number: int = 0,
        *,
        reader: Any = None,
    ) -> Read:
        """Read a split as the request does; its reader stays."""
        reader = reader or self.reader()
        split = self.split(start, end, number)
        rows, report = reader.read(split)
        return Read(self, reader, split, rows, report)

    def opened(self, thing: Any) -> Any:
        self.stack.callback(thing.close)
        return thing


@dataclass
class Read:
    """A split that was read again."""

    world: JoinWorld
    reader: Any
    split: SnapshotSplit
    rows: SplitRows
    report: SplitReport
    listed: pa.RecordBatch | None = None
    asked: list[LogPosition] = field(default_factory=list)

    def rows_at(self, position: LogPosition) -> JoinedRows:
        self.asked.append(position)
        changes = self.reader.changes(self.split, self.report, position)
        schema = self.world.plan.schema
        return joined_rows(self.rows, changes, schema, self.split, listed=self.listed)

    def join(
        self, sink: JoinSink | None = None, *, within: KeyRange | None = None
    ) -> LogPosition | None:
        sink = sink or self.world.joins()
        return sink.join(
            REQUEST,
            self.split,
            self.report,
            self.rows_at,
            epoch=sink.begin(REQUEST, [self.split.table]),
            within=(within or KeyRange(),),
        )


def numbered(first: int, end: int, text: str = "v") -> str:
    """Write rows `(1, 'v1'), ...` for an INSERT."""
    return ", ".join(f"({number}, '{text}{number}')" for number in range(first, end))
