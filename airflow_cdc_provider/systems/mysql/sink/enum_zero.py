"""Which rows hold index 0 of an ENUM, the value that is no member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column


def enums_of(columns: Iterable[Column]) -> list[Column]:
    """Return the columns that are ENUMs."""
    return [column for column in columns if column.type.name == "enum"]


def enum_zeros_of(rows: pa.RecordBatch, columns: Iterable[Column]) -> set[tuple[str, int]]:
    """Return column and row (counted from 1) of each ENUM value of index 0, which is no member."""
    return {
        (column.name, int(number) + 1)
        for column in enums_of(columns)
        for number in np.flatnonzero(_is_none(rows, column))
    }


def without_no_members(
    batches: Iterable[pa.RecordBatch], columns: Sequence[Column], apart: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows without an ENUM value of index 0, and put those with one into `apart`."""
    enums = enums_of(columns)
    if not enums:
        yield from batches
        return
    for batch in batches:
        found = _holds_none(batch, enums)
        if not found.any():
            yield batch
            continue
        apart.append(batch.filter(mask_of(found)))
        if not found.all():
            yield batch.filter(mask_of(~found))


def living_last(plan: TablePlan, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return rows to be upserted in the parts that are written one after the other.

    A key whose case alone changed is several marked rows and perhaps a living one, which the sink
    may take for one row: the last of them is it. Rows with index 0 of an ENUM are written behind
    the others of their part, so a part ends where others follow them, and the marked ones come
    first.
    """
    flag, enums = plan.shape.deleted_flag, enums_of(plan.target.copied_columns)
    if not flag or not enums:
        return [rows]
    is_marked = as_numpy(rows.column(flag)) == 1
    marked = rows.filter(mask_of(is_marked))
    found = _holds_none(marked, enums)
    ends = [*(np.flatnonzero(found[:-1] & ~found[1:]) + 1).tolist(), marked.num_rows]
    parts = [marked.slice(at, end - at) for at, end in pairwise([0, *ends])]
    return [part for part in (*parts, rows.filter(mask_of(~is_marked))) if part.num_rows]


def _holds_none(rows: pa.RecordBatch, enums: Sequence[Column]) -> BoolArray:
    """Return which rows hold index 0 in one of these ENUM columns, as a mask."""
    found: BoolArray = np.zeros(rows.num_rows, np.bool_)
    for column in enums:
        found |= _is_none(rows, column)
    return found


def _is_none(rows: pa.RecordBatch, column: Column) -> BoolArray:
    """Return which rows hold index 0 in an ENUM column, as a mask."""
    same = pc.equal(rows.column(column.name), column.type.no_member)
    return as_numpy(pc.fill_null(same, fill_value=False))
