"""The tables of the model's nodes, and their rows and changes in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.few_changes import FewChange, FewTable, FewTables, rows_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import Chosen, Interval, KeyList, SnapshotSplit
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

ITEMS, RATES = TableId("shop", "items"), TableId("shop", "rates")
TABLES = (ITEMS, RATES)
COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
"""The key, the column that settles conflicts where one does, and what no two writes have alike."""
Row = tuple[int, int | None, int]
SHARED = 10
SHARED_KEYS = (10, 11, 12)
ALL_KEYS = (0, 1, 2, 3, *SHARED_KEYS)
"""Those below `SHARED` are of one node each."""


def _plan(table: TableId) -> TablePlan:
    columns = (
        Column("id", mysql_type("bigint"), nullable=False),
        Column("at", mysql_type("bigint")),
        Column("n", mysql_type("bigint"), nullable=False),
    )
    return TablePlan.alike(TableSchema(table, columns, ("id",), (0,)), table, 0)


PLANS = {table: _plan(table) for table in TABLES}


@dataclass(frozen=True, slots=True)
class Change:
    """One row before and after a change, None where there is none."""

    table: TableId
    before: Row | None
    after: Row | None

    @property
    def keys(self) -> set[int]:
        return {row[0] for row in (self.before, self.after) if row is not None}

    @property
    def few(self) -> FewChange:
        if self.before is None:
            return FewChange(int(Op.INSERT), None, self.after)
        op = Op.DELETE if self.after is None else Op.UPDATE
        return FewChange(int(op), self.before, self.after)


def tables_of(changes: Sequence[tuple[int, Change]], *, few: bool) -> Sequence[TableChanges]:
    """Return changes by table, each with its transaction's index, in log order."""
    by_table = {
        table: [(place, *each) for place, each in enumerate(changes) if each[1].table == table]
        for table in TABLES
    }
    kept = {table: found for table, found in by_table.items() if found}

    def columns() -> tuple[TableChanges, ...]:
        return tuple(_columns(table, found) for table, found in kept.items())

    if not few or not kept:
        return columns()
    return FewTables(
        tuple(
            FewTable(table, COLUMNS, [each.few for _, _, each in found], [at for _, at, _ in found])
            for table, found in kept.items()
        ),
        columns,
    )


def _columns(table: TableId, changes: Sequence[tuple[int, int, Change]]) -> TableChanges:
    return TableChanges(
        table,
        pa.array([transaction for _, transaction, _ in changes], pa.int32()),
        pa.array([place for place, _, _ in changes], pa.int64()),
        pa.array([change.few.op for _, _, change in changes], pa.int8()),
        rows_of([change.before for _, _, change in changes], COLUMNS),
        rows_of([change.after for _, _, change in changes], COLUMNS),
    )


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    """Return rows as columns."""
    return rows_of(list(rows), COLUMNS)


def keys_of(keys: Iterable[int]) -> pa.RecordBatch:
    """Return keys as columns."""
    return pa.record_batch({"id": pa.array(keys, pa.int64())})


def from_columns(rows: pa.RecordBatch | pa.Table) -> list[Row]:
    """Return rows as the nodes have them."""
    return [(row["id"], row["at"], row["n"]) for row in rows.to_pylist()]


@dataclass(frozen=True)
class Scope:
    """Which rows of a table are read again; None is open on that side."""

    table: int = 0
    start: int | None = None
    end: int | None = None
    kind: str = "range"
    """Of keys; or an interval of the column `at`; or all keys in the range are listed."""

    def split(self, number: int) -> SnapshotSplit:
        """Return the split; a listed one has its keys in what is chosen."""
        start = None if self.start is None else (self.start,)
        end = None if self.end is None else (self.end,)
        keys = KeyRange(start, end)
        chosen: Chosen | None = None
        if self.kind == "interval":
            keys, chosen = KeyRange(), Interval("at", self.start or 0, self.end)
        elif self.kind == "listed":
            listed = tuple((key,) for key in ALL_KEYS if keys.contains((key,)))
            keys, chosen = KeyRange(), KeyList(("id",), listed)
        return SnapshotSplit(
            TABLES[self.table],
            number,
            ("id",),
            (KeyKind.INTEGER,),
            keys,
            chosen,
            listed=self.kind == "listed",
        )


def listed_of(split: SnapshotSplit) -> pa.RecordBatch | None:
    """Return the keys that a split lists, None if it lists none."""
    if not isinstance(split.chosen, KeyList):
        return None
    return keys_of([int(key[0]) for key in split.chosen.keys])


def is_in(split: SnapshotSplit, row: Row) -> bool:
    """Tell whether a split has a row, by its key or its values."""
    match split.chosen:
        case Interval() as interval:
            return row[1] is not None and interval.values.contains((row[1],))
        case KeyList(_, keys):
            return (row[0],) in keys
        case _:
            return split.keys.contains((row[0],))
