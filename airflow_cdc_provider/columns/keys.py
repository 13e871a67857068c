"""Between key columns in Arrow and `core.keys.Key`, one key at a time or a few.

Only for single keys: bounds, messages. Many keys stay columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, binaries_of, texts_of
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_text import value_text


def key_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Return the primary key's columns in index order."""
    return tuple(schema.column(name) for name in schema.primary_key)


def key_at(rows: pa.RecordBatch | pa.Table, row: int, columns: Sequence[Column]) -> Key:
    """Return one row's key in canonical form; `columns` are the key's, in index order."""
    return tuple(_part(rows.column(column.name), row, column) for column in columns)


def _part(values: pa.Array | pa.ChunkedArray, row: int, column: Column) -> KeyPart:
    part = values.slice(row, 1)
    array = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
    if array.null_count:
        raise ValueError(f"key column {column.name} is NULL in row {row}")
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind):
        scalar: KeyPart = array[0].as_py()
        return scalar
    text: str = value_text(array, column.type)[0].as_py()
    return text


def key_column(parts: Sequence[KeyPart], kind: pa.DataType) -> pa.Array:
    """Return canonical key parts as an array of the value model."""
    if pa.types.is_date32(kind) or pa.types.is_floating(kind):
        return texts_of(cast("Sequence[str]", parts)).cast(kind)
    if pa.types.is_timestamp(kind):
        return texts_of(cast("Sequence[str]", parts)).cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_duration(kind):
        raise ValueError("keys over TIME are never compared, so they have no bounds")
    if pa.types.is_integer(kind) and None not in parts:
        return as_arrow(np.array(parts, kind.to_pandas_dtype()), None, kind)
    if pa.types.is_string(kind):
        return texts_of(cast("Sequence[str]", parts))
    if pa.types.is_binary(kind):
        return binaries_of(cast("Sequence[bytes]", parts))
    return pa.array(parts, kind)
