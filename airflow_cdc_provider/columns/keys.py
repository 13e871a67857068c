"""Between key columns in Arrow and `core.keys.Key`, one key at a time or a few.

Only for single keys: bounds, messages, rows that are compared one by one. Many keys stay columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, binaries_of, texts_of
from airflow_cdc_provider.core.keys import Key, KeyPart
from airflow_cdc_provider.core.table_schema import Column, TableSchema


def key_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Return the primary key's columns in index order."""
    return tuple(schema.column(name) for name in schema.primary_key)


def key_column(parts: Sequence[KeyPart], kind: pa.DataType) -> pa.Array:
    """Return values of a key's column as an Arrow array of the column's type."""
    if pa.types.is_date32(kind) or pa.types.is_floating(kind):
        return texts_of(cast("Sequence[str]", parts)).cast(kind)
    if pa.types.is_timestamp(kind):
        return texts_of(cast("Sequence[str]", parts)).cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_duration(kind):
        raise ValueError("keys over TIME are never compared, so they have no bounds")
    if pa.types.is_integer(kind):
        nulls = np.array([part is None for part in parts], np.bool_)
        numbers = np.array([part or 0 for part in parts], kind.to_pandas_dtype())
        return as_arrow(numbers, nulls if nulls.any() else None, kind)
    if pa.types.is_string(kind):
        return texts_of(cast("Sequence[str]", parts))
    if pa.types.is_binary(kind):
        return binaries_of(cast("Sequence[bytes]", parts))
    return pa.array(parts, kind)


def keys_of(columns: Sequence[pa.Array]) -> list[Key]:
    """Return the keys of some rows; numbers with a floating point as their digits."""
    return list(zip(*map(_parts_of, columns), strict=True))


def _parts_of(values: pa.Array) -> list[KeyPart]:
    """Return one column's values in keys."""
    parts = values.to_pylist()
    if pa.types.is_floating(values.type):
        return [repr(part + 0.0) for part in parts]  # -0.0 and 0.0 are one key
    return cast("list[KeyPart]", parts)
