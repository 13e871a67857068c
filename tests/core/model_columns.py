"""A model's rows and changes as columns, to ask the product what becomes of a split's rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.core.convergence_model import TABLE, Change, Rows

_COLUMNS = {
    KeyKind.INTEGER: pa.schema([("id", pa.int32()), ("value", pa.int32())]),
    KeyKind.TEXT: pa.schema([("id", pa.string()), ("value", pa.int32())]),
}


@cache
def schema_of(kind: KeyKind) -> TableSchema:
    """Return the model's table with a key of that kind."""
    name = {KeyKind.INTEGER: "int", KeyKind.TEXT: "varchar"}[kind]
    columns = (Column("id", mysql_type(name), nullable=False), Column("value", mysql_type("int")))
    return TableSchema(TABLE, columns, ("id",))


def to_columns(rows: Rows, kind: KeyKind) -> SplitRows:
    """Return rows as a split's."""
    return ArrowRows(pa.Table.from_batches([_batch(list(rows.items()), kind)]))


def from_columns(rows: SplitRows) -> Rows:
    """Return a split's rows as the model has them."""
    return {
        int(key): value
        for batch in rows.batches()
        for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    }


def keys_to_columns(keys: frozenset[int], kind: KeyKind) -> pa.RecordBatch:
    """Return keys as those of rows."""
    return _batch([(key, None) for key in sorted(keys)], kind).select(["id"])


def keys_from_columns(keys: pa.RecordBatch | None) -> set[int]:
    """Return keys as the model has them."""
    return set() if keys is None else {int(key) for key in keys.column(0).to_pylist()}


def changes_of(changes: Sequence[Change], kind: KeyKind) -> TableChanges:
    """Return changes in log order as columns."""
    ops = [
        Op.INSERT if each.before is None else Op.DELETE if each.after is None else Op.UPDATE
        for each in changes
    ]
    before, after = (
        _batch([(each.key if side is not None else None, side) for each, side in sides], kind)
        for sides in (
            [(each, each.before) for each in changes],
            [(each, each.after) for each in changes],
        )
    )
    return TableChanges(
        TABLE,
        pa.array([0] * len(ops), pa.int32()),
        pa.array(range(len(ops)), pa.int64()),
        pa.array(ops, pa.int8()),
        before,
        after,
    )


def _batch(rows: Sequence[tuple[int | None, int | None]], kind: KeyKind) -> pa.RecordBatch:
    columns = _COLUMNS[kind]
    keys: Sequence[int | str | None] = [key for key, _ in rows]
    if kind is KeyKind.TEXT:
        keys = [None if key is None else str(key) for key in keys]
    values = [value for _, value in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, columns.field("id").type), pa.array(values, pa.int32())], schema=columns
    )
