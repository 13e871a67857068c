"""Law 3: replay the log of (L, H] onto the rows of a split, so that they are the table at H.

Every change whose key falls into the split's range is applied by primary key, in log order. A
change of key is a delete of the old key and an insert of the new one, each judged by its own
range: a row that moves in is inserted, one that moves out is gone. An insert of a key that is
there overwrites it, and a delete of a key that is not there does nothing, because the rows were
read somewhere between L and H and may hold any of these changes already.

Only the last change of a key matters (`merge`), so the replay is a merge, a filter by range, and
an anti-join of the rows by key. Keys are of comparable kinds: equal values are equal keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.columns.row_keys import in_range, key_codes
from airflow_cdc_provider.core.errors import SchemaMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.table_schema import TableSchema


def replay(
    rows: pa.Table, changes: Iterable[TableChanges], schema: TableSchema, keys: KeyRange
) -> pa.Table:
    """Return the rows of a split at H, from its rows and its table's changes in (L, H].

    `changes` are all of (L, H] in log order; those outside the range are left out here.
    """
    run = [as_read(each, rows.schema, schema.table) for each in changes if len(each)]
    if not run:
        return rows
    key = schema.primary_key
    merged = merge(run, key)
    upserts = merged.upserts
    inside = in_range([upserts.column(name) for name in key], keys)
    if not inside.all():
        upserts = upserts.filter(mask_of(inside))
    stays = staying(rows, [merged.deletes, upserts], key)
    read, batches = rows.schema, rows.to_batches()
    del rows, run, merged  # what is copied below must not be held twice
    kept = list(_filtered(batches, stays))
    if upserts.num_rows:
        kept.append(upserts)
    return pa.Table.from_batches(kept, read)


def as_read(changes: TableChanges, read: pa.Schema, table: TableId) -> TableChanges:
    """Reduce changes to the columns that the split was read with.

    `SchemaMovedError` if a column is gone or has another type: the table has another definition.
    """
    for side in (changes.before, changes.after):
        for field in read:
            at = side.schema.get_field_index(field.name)
            if at < 0 or side.schema.field(at).type != field.type:
                raise SchemaMovedError(
                    f"the log has another definition of column {field.name}",
                    where=f"table {table}",
                    risk="none: the rows read so far are dropped",
                    remedy="the split is read again under the new definition",
                )
    before, after = (
        pa.RecordBatch.from_arrays([side.column(name) for name in read.names], schema=read)
        for side in (changes.before, changes.after)
    )
    return TableChanges(
        changes.table, changes.transaction, changes.ordinal, changes.op, before, after
    )


def _filtered(batches: list[pa.RecordBatch], stays: BoolArray) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each batch that stay; `batches` is emptied on the way to free memory."""
    at = 0
    batches.reverse()
    while batches:
        batch = batches.pop()
        mine = stays[at : at + batch.num_rows]
        at += batch.num_rows
        if mine.all():
            yield batch
        elif mine.any():
            yield batch.filter(mask_of(mine))


def staying(rows: pa.Table, gone: Sequence[pa.RecordBatch], key: Sequence[str]) -> BoolArray:
    """Return a mask of the rows whose key is in none of `gone`."""
    if rows.num_rows == 0:
        return np.ones(0, np.bool_)
    groups = [[rows.column(name).combine_chunks() for name in key]]
    groups += [[batch.column(name) for name in key] for batch in gone]
    codes = key_codes(groups)
    is_gone = np.zeros(codes.count, np.bool_)
    for group in codes.groups[1:]:
        is_gone[group] = True
    return ~is_gone[codes.groups[0]]
