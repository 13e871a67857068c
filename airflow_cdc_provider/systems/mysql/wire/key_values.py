"""One row's key in canonical form, out of its columns: for bounds and messages."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.value_text import value_text


def key_at(rows: pa.RecordBatch | pa.Table, row: int, columns: Sequence[Column]) -> Key:
    """Return one row's key in canonical form; `columns` are the key's, in index order."""
    return tuple(_part(rows.column(column.name), row, column) for column in columns)


def _part(values: pa.Array | pa.ChunkedArray, row: int, column: Column) -> KeyPart:
    """Return one column of a row's key in canonical form; NULL is an error."""
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
