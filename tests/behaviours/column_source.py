"""A source of verify that has its rows in memory, as columns: another system than any sink's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_cdc_provider.columns.keys import keys_of
from airflow_cdc_provider.columns.verify_port import (
    BY_COLUMNS,
    ColumnsRead,
    KeyedRows,
    TablePair,
    TableSide,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.table_schema import TableSchema


@dataclass
class ColumnSource:
    """Tables as a source defines them, with their rows."""

    tables: dict[TableId, tuple[TableSchema, pa.Table]] = field(default_factory=dict)

    @property
    def digests(self) -> tuple[str, ...]:
        return (BY_COLUMNS,)

    @property
    def has_ranges(self) -> bool:
        return True

    def open_side(self, _options: SourceOptions | None = None) -> ColumnSource:
        return self

    def definition(self, table: TableId) -> TableSchema | None:
        return self.tables[table][0] if table in self.tables else None

    def table(self, pair: TablePair) -> TableSide:
        raise NotImplementedError("rows are compared by columns only")

    def columns_of(self, own: ColumnsRead, _other: ColumnsRead) -> ColumnTable:
        held = self.tables[own.table.table][1]
        batches = held.combine_chunks().to_batches()
        return ColumnTable(own, batches[0] if batches else empty(held.schema))

    def close(self) -> None:
        pass


@dataclass
class ColumnTable:
    """One table's rows, given in small batches; keys are plain, or whole numbers as text."""

    read: ColumnsRead
    held: pa.RecordBatch

    def rows(self, keys: KeyRange) -> Iterator[KeyedRows]:
        found = enumerate(keys_of([self.held.column(name) for name in self.read.key]))
        yield from self._given([at for at, key in found if keys.contains(key)])

    def rows_of(self, keys: Collection[Key]) -> Iterator[KeyedRows]:
        wanted = set(keys)
        found = enumerate(keys_of(self._keys(self.held)))
        yield from self._given([at for at, key in found if key in wanted])

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        every = keys_of([self.held.column(name) for name in self.read.key])
        inside = sorted(key for key in every if keys.contains(key))
        return inside[number] if number < len(inside) else None

    def _given(self, places: list[int]) -> Iterator[KeyedRows]:
        for at in range(0, len(places), 2):
            rows = self.held.take(pa.array(places[at : at + 2], pa.int64()))
            yield KeyedRows(rows.select(list(self.read.columns)), self._keys(rows))

    def _keys(self, rows: pa.RecordBatch) -> tuple[pa.Array, ...]:
        columns = [rows.column(name) for name in self.read.key]
        return tuple(c if self.read.plain_key else c.cast(pa.string()) for c in columns)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return no rows."""
    return pa.RecordBatch.from_pylist([], schema=schema)
