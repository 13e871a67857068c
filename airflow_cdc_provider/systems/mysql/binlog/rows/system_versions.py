"""MariaDB's system-versioned tables: only the rows that are current count.

Such a table keeps its past: an update logs the new row as an UPDATE and the old one as an INSERT
with the same key and a ROW END in the past; a delete is an UPDATE that sets ROW END. A reader that
takes these for what they are called ends with history rows in place of current ones. So a row
counts while its ROW END is the end of time, and a change is judged by its two sides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy, numbers_of
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

_END_OF_TIME_US = (2_147_483_647_999_999, 4_294_967_295_999_999)
"""2038-01-19, and 2106-02-07 from MariaDB 11.5 on."""
_PERIOD = re.compile(
    r"PERIOD\s+FOR\s+SYSTEM_TIME\s*\(\s*`?\w+`?\s*,\s*`?(?P<end>\w+)`?", re.IGNORECASE
)
_VERSIONED = re.compile(r"WITH\s+SYSTEM\s+VERSIONING", re.IGNORECASE)
_IMPLICIT = ("row_start", "row_end")
"""The columns the server adds where there is no PERIOD clause; its catalogue hides them."""


def row_end_place(
    columns: Sequence[Column], primary_key: Sequence[int], schema: TableSchema | None
) -> int | None:
    """Return the index of a system-versioned table's ROW END column, None if it is not versioned.

    The log does not say it; only the table's definition does. Where that is not known, a table
    that looks like one is refused: to take it for the other kind would lose rows.
    """
    names = [column.name for column in columns]
    if schema is not None:
        stated = _PERIOD.search(schema.create_statement)
        if stated is not None:
            return names.index(stated["end"])
        return len(names) - 1 if _VERSIONED.search(schema.create_statement) else None
    if any(columns[index].type == _ROW_END for index in primary_key):
        raise UnsupportedTableError(
            "a table has a TIMESTAMP(6) in its primary key, as system-versioned tables have",
            risk="rows of its past could take the place of current ones",
            remedy="give the decoder the table's definition, which tells whether it is versioned",
        )
    return None


_ROW_END = mysql_type("timestamp", fraction=6)


def hidden_columns(columns: Sequence[Column], schema: TableSchema | None) -> int:
    """Return how many columns at the end, of a versioned table, the catalogue hides."""
    if schema is None or _PERIOD.search(schema.create_statement):
        return 0
    names = tuple(column.name for column in columns[-2:])
    return 2 if _VERSIONED.search(schema.create_statement) and names == _IMPLICIT else 0


def current_changes(
    op: IntArray, before: pa.RecordBatch, after: pa.RecordBatch, row_end: int
) -> tuple[BoolArray, IntArray, pa.RecordBatch]:
    """Return which changes are of current rows, their operations, and the after rows."""
    was, becomes = _is_current(before, row_end), _is_current(after, row_end)
    gone = (op == Op.UPDATE) & was & ~becomes
    kinds = np.where(gone, Op.DELETE, op)
    kept = np.where(kinds == Op.DELETE, was, becomes)
    if gone.any():
        after = after.take(as_arrow(np.arange(len(op)), gone, pa.int64()))
    return kept, kinds, after


def _is_current(rows: pa.RecordBatch, row_end: int) -> BoolArray:
    """Tell which rows are current: their ROW END is the end of time."""
    instants = rows.column(row_end).cast(pa.int64())
    found = pc.is_in(instants, value_set=numbers_of(_END_OF_TIME_US))
    current: BoolArray = as_numpy(found)
    return current
