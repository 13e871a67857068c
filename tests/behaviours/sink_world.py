"""What the sink behaviours stand on: one table of each shape, and a sink under a generation.

There is no source server: rows, positions and changes are made here, so that each behaviour can
say exactly what the source is to have done.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.columns.sink_port import Owner, SinkSettings
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema, UniqueKey
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema, arrow_schemas
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from tests.servers.given import SqlServer

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
INT = mysql_type("int")
TEXT = mysql_type("varchar", length=200, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
Row = tuple[Any, ...]
Change = tuple[Op, Row | None, Row | None]


def at(offset: int) -> MySqlPosition:
    """A place in the source's log."""
    return MySqlPosition(SERVER, BinlogPosition(1, offset))


def insert(*row: Any) -> Change:
    return Op.INSERT, None, row


def update(before: Row, after: Row) -> Change:
    return Op.UPDATE, before, after


def delete(*row: Any) -> Change:
    return Op.DELETE, row, None


@dataclass
class SinkWorld:
    """One sink server, a database on it, and a pipeline of its own."""

    server: SqlServer
    database: str
    local_files: bool = True
    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1
    pipeline: PipelineName = field(
        default_factory=lambda: PipelineName(f"p_{secrets.token_hex(6)}")
    )
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        text = "VARCHAR(200) CHARACTER SET utf8mb4"
        self.server.execute(
            f"CREATE TABLE `{self.database}`.orders (id INT PRIMARY KEY, name {text})"
        )
        self.server.execute(
            f"CREATE TABLE `{self.database}`.seats "
            "(id INT PRIMARY KEY, seat INT NOT NULL, UNIQUE KEY seat (seat))"
        )
        self.orders = self._plan("orders", Column("id", INT, nullable=False), Column("name", TEXT))
        self.seats = self._plan(
            "seats",
            Column("id", INT, nullable=False),
            Column("seat", INT, nullable=False),
            unique_keys=(UniqueKey("seat", ("seat",)),),
        )
        self.sink = self.under(1)
        self.ledger = self.opened(self.sink.open_ledger())
        self.ledger.take_over(1)

    def _plan(
        self, name: str, *columns: Column, unique_keys: tuple[UniqueKey, ...] = ()
    ) -> TablePlan:
        schema = TableSchema(TableId("shop", name), columns, ("id",), (0,), unique_keys)
        return TablePlan(schema, TableId(self.database, name), 0)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.parse(self.server.dsn())

    def under(self, generation: int, **options: Any) -> MySqlSink:
        """The sink as an owner of this generation sees it."""
        settings: dict[str, Any] = {
            "local_files": self.local_files,
            "apply": self.apply,
            "writers": self.writers,
        }
        settings |= options
        return MySqlSink(
            self.endpoint,
            Owner(self.pipeline, generation),
            (self.orders, self.seats),
            SinkSettings(**settings),
        )

    def opened(self, thing: Any) -> Any:
        """Close it with the world."""
        self.stack.callback(thing.close)
        return thing

    def splits(self, generation: int = 1) -> Any:
        return self.opened(self.under(generation).open_splits())

    def changes(self, generation: int = 1, **options: Any) -> Any:
        return self.opened(self.under(generation, **options).open_changes(self.columns))

    @property
    def columns(self) -> dict[TableId, pa.Schema]:
        """The columns that changes of each table have."""
        return arrow_schemas(plan.schema for plan in (self.orders, self.seats))

    def held(self, table: str = "orders") -> list[Row]:
        """What the sink holds now."""
        return self.server.execute(f"SELECT * FROM `{self.database}`.{table} ORDER BY 1")

    def put(self, *rows: Row, table: str = "orders") -> None:
        """Write rows into the sink behind the pipeline's back."""
        for row in rows:
            marks = ", ".join(["%s"] * len(row))
            self.server.execute(f"INSERT INTO `{self.database}`.{table} VALUES ({marks})", row)

    # --- splits -------------------------------------------------------------------------------

    def split(
        self,
        number: int = 0,
        start: int | None = None,
        end: int | None = None,
        *,
        of: str = "orders",
    ) -> SnapshotSplit:
        plan = getattr(self, of)
        keys = KeyRange(None if start is None else (start,), None if end is None else (end,))
        return SnapshotSplit(
            plan.schema.table, number, plan.schema.primary_key, plan.schema.key_kinds, keys
        )

    def rows(self, *rows: Row, of: str = "orders") -> ArrowRows:
        schema = arrow_schema(getattr(self, of).schema.copied_columns)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return ArrowRows(pa.Table.from_arrays(arrays, schema=schema))

    def report(
        self, split: SnapshotSplit, rows: ArrowRows, *, high: int = 100, attempt: int = 1
    ) -> SplitReport:
        return SplitReport(split.split_id, at(high), at(high), rows.rows, rows.bytes, "f", attempt)

    def publish(self, sink: Any, split: SnapshotSplit, *rows: Row, high: int = 100) -> SplitReport:
        held = self.rows(*rows, of=split.table.table)
        report = self.report(split, held, high=high)
        sink.publish(split, held, report)
        return report

    # --- stream -------------------------------------------------------------------------------

    def hand_off(self, *tables: str, high: int = 100) -> StreamSplit:
        """Publish each table as it is in the sink, as one split, and hand off."""
        finished = []
        splits = self.splits()
        for name in tables or ("orders", "seats"):
            split = self.split(of=name)
            report = self.publish(splits, split, *self.held(name), high=high)
            finished.append(FinishedSplit.of(split, report, backfilled=True))
        stream = hand_off(finished)
        self.ledger.store_stream(stream)
        return stream

    def batch(
        self,
        *transactions: Sequence[Change],
        start: int = 100,
        end: int | None = -1,
        table: str = "orders",
        barrier: Statement | None = None,
    ) -> ChangeBatch:
        """Transactions of one table, ten bytes of log each; `end` None makes it a part."""
        points = tuple(
            MySqlPoint(
                SERVER,
                None,
                BinlogPosition(1, start + 10 * i),
                BinlogPosition(1, start + 10 * i + 10),
                7,
            )
            for i in range(len(transactions))
        )
        last = start + 10 * len(transactions) if end == -1 else end
        changes = self.changes_of(table, transactions)
        return ChangeBatch(
            at(start), None if last is None else at(last), points, (changes,), barrier
        )

    def changes_of(self, table: str, transactions: Sequence[Sequence[Change]]) -> TableChanges:
        plan = getattr(self, table)
        schema = arrow_schema(plan.schema.columns)
        flat = [(i, change) for i, changes in enumerate(transactions) for change in changes]
        count = itertools.count()
        return TableChanges(
            plan.schema.table,
            pa.array([i for i, _ in flat], pa.int32()),
            pa.array([next(count) for _ in flat], pa.int64()),
            pa.array([int(op) for _, (op, _, _) in flat], pa.int8()),
            _image([before for _, (_, before, _) in flat], schema),
            _image([after for _, (_, _, after) in flat], schema),
        )


def _image(rows: Sequence[Row | None], schema: pa.Schema) -> pa.RecordBatch:
    absent = (None,) * len(schema)
    columns = list(zip(*(row or absent for row in rows), strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def worlds(world: SinkWorld) -> Iterator[SinkWorld]:
    """Give a world to a fixture and close all it opened."""
    with world.stack:
        yield world
