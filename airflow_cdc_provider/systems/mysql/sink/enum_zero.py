"""Which rows hold index 0 of an ENUM, the value that is no member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of
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
        found = np.zeros(batch.num_rows, np.bool_)
        for column in enums:
            found |= _is_none(batch, column)
        if not found.any():
            yield batch
            continue
        apart.append(batch.filter(mask_of(found)))
        if not found.all():
            yield batch.filter(mask_of(~found))


def living_last(plan: TablePlan, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return rows to be upserted in the parts that are written one after the other.

    A key whose case alone changed is a marked row and a living one, which the sink may take for one
    row. Rows with index 0 of an ENUM are written behind the others, whatever their order, so there
    the marked ones are a part of their own.
    """
    flag = plan.shape.deleted_flag
    if not flag or not enums_of(plan.target.copied_columns):
        return [rows]
    marked = as_numpy(rows.column(flag)) == 1
    return [rows.filter(mask_of(some)) for some in (marked, ~marked) if some.any()]


def _is_none(
    rows: pa.RecordBatch, column: Column
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which rows hold index 0 in an ENUM column, as a mask."""
    same = pc.equal(rows.column(column.name), column.type.no_member)
    return as_numpy(pc.fill_null(same, fill_value=False))
