"""What the sink behaviours stand on: one table of each shape, and a sink under a generation.

There is no source server: rows, positions and changes are made here, so that each behaviour can
say exactly what the source is to have done. What only a system knows is asked of its own world: how
it makes a table, what it holds, how its sink is opened.
"""

from __future__ import annotations

import itertools
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.positions import TransactionPoint
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import (
    Column,
    ColumnType,
    TableSchema,
    TypeKind,
    UniqueKey,
)
from airflow_cdc_provider.engine.sink.port import Sink
from tests.behaviours.source_log import at, point

Row = tuple[Any, ...]
Change = tuple[Op, Row | None, Row | None]
ARROW = {TypeKind.INTEGER: pa.int32(), TypeKind.TEXT: pa.string()}


def insert(*row: Any) -> Change:
    return Op.INSERT, None, row


def update(before: Row, after: Row) -> Change:
    return Op.UPDATE, before, after


def delete(*row: Any) -> Change:
    return Op.DELETE, row, None


def altering(table: str, place: TransactionPoint) -> Statement:
    """A statement that changes a table's definition."""
    effect = StatementEffect(StatementKind.ALTER, (TableId("shop", table),))
    return Statement("shop", f"ALTER TABLE {table} ADD COLUMN c INT", place, effect)


@dataclass(kw_only=True)
class SinkWorld(ABC):
    """A sink and a pipeline of its own; each system says how its tables are made and looked at."""

    types: ClassVar[Mapping[TypeKind, ColumnType]] = {
        TypeKind.INTEGER: ColumnType("whole number", TypeKind.INTEGER, KeyKind.INTEGER),
        TypeKind.TEXT: ColumnType("text", TypeKind.TEXT, KeyKind.TEXT),
    }
    """The columns of the tables, as the source is to have stated them."""

    database = "shop"
    generation: int = 1
    pipeline: PipelineName = field(
        default_factory=lambda: PipelineName(f"p_{secrets.token_hex(6)}")
    )
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        number, text = self.types[TypeKind.INTEGER], self.types[TypeKind.TEXT]
        key = Column("id", number, nullable=False)
        self.orders = self._plan("orders", key, Column("name", text))
        self.seats = self._plan(
            "seats",
            key,
            Column("seat", number, nullable=False),
            unique_keys=(UniqueKey("seat", ("seat",)),),
        )
        self.make_tables()
        self.sink = self.under(self.generation)
        self.ledger = self.opened(self.sink.open_ledger())
        self.ledger.take_over(self.generation)

    @abstractmethod
    def make_tables(self) -> None:
        """Make `orders` and `seats`, empty: texts of up to 200 characters, seats unique."""

    @abstractmethod
    def under(self, generation: int, **options: Any) -> Sink:
        """The sink as an owner of this generation sees it."""

    @abstractmethod
    def held(self, table: str = "orders") -> list[Row]:
        """What the sink holds now, by key."""

    def _plan(
        self, name: str, *columns: Column, unique_keys: tuple[UniqueKey, ...] = ()
    ) -> TablePlan:
        schema = TableSchema(TableId("shop", name), columns, ("id",), (0,), unique_keys)
        return TablePlan.alike(schema, TableId(self.database, name), 0)

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
        return {plan.schema.table: arrow(plan.schema) for plan in (self.orders, self.seats)}

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
        schema = arrow(getattr(self, of).schema)
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

    def hand_off(self, *tables: str, high: int = 100, **rows: Sequence[Row]) -> StreamSplit:
        """Publish each table, with these rows or as it is, as one split, and hand off."""
        finished = []
        splits = self.splits()
        for name in tables or ("orders", "seats"):
            split = self.split(of=name)
            report = self.publish(splits, split, *rows.get(name, self.held(name)), high=high)
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
        points = tuple(point(start + 10 * i, start + 10 * i + 10) for i in range(len(transactions)))
        last = start + 10 * len(transactions) if end == -1 else end
        changes = self.changes_of(table, transactions)
        return ChangeBatch(
            at(start), None if last is None else at(last), points, (changes,), barrier
        )

    def changes_of(self, table: str, transactions: Sequence[Sequence[Change]]) -> TableChanges:
        plan = getattr(self, table)
        schema = arrow(plan.schema)
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


def arrow(schema: TableSchema) -> pa.Schema:
    """The columns that a table's rows have in the value model."""
    return pa.schema([(column.name, ARROW[column.type.kind]) for column in schema.columns])


World = TypeVar("World", bound=SinkWorld)


def worlds(world: World) -> Iterator[World]:
    """Give a world to a fixture and close all it opened."""
    with world.stack:
        yield world
