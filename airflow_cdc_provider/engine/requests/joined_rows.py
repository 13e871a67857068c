"""A split's rows at the stream's position: from the rows that were read and the log since. No I/O.

**Keys that can be compared** in code: the changes are replayed onto the rows, which then are the
table at that position (law 3).

**Keys that cannot**: nobody here can say whether a changed key lies in the split's range, nor which
two spellings are one key. But each change is a whole row, and its last one is what the source has
at that position, wherever it lies. So every key that the log has *touched* since L is written as
the log left it, in the range or out of it; the rows that were read stand for all others. A row that
was not touched is the same at L, when it was read, and now. `merge` says why spellings are no harm.

**No key at all**: the rows were read at exactly one place of the log, and the changes from there on
are added up (`columns.multiset`).

The same holds for rows that were read because a column of theirs lies in an interval, or because
their keys were listed, whatever the kind of the keys. A key that was listed is given up by the sink
like one that was touched: what the source has of it is among the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.backfill import as_read, replay, staying
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.columns.multiset import with_changes
from airflow_cdc_provider.columns.row_keys import in_range, key_codes
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.columns.shaping import shaped_keys, shaped_rows
from airflow_cdc_provider.core.keys import comparable
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import JoinedRows


def joined_rows(
    rows: SplitRows,
    changes: Iterable[TableChanges],
    schema: TableSchema,
    split: SnapshotSplit,
    *,
    listed: pa.RecordBatch | None = None,
) -> JoinedRows:
    """Return a split's rows at a position, from the rows read and the changes up to there.

    `changes` are the table's, from the read up to the position. `listed` are the keys whose rows
    were read, where these are the split's.
    """
    changes = list(changes)
    if not schema.has_key:
        return JoinedRows(_with_changes(rows, changes, schema))
    if not (split.is_whole_range and comparable(split.key_kinds)):
        return _as_the_log_left_it(rows, changes, schema, listed)
    if not any(_meets(each, schema, split) for each in changes):
        return JoinedRows(rows)  # in the source's own bytes, where they have come so
    return JoinedRows(ArrowRows(replay(_table(rows), changes, schema, split.keys)))


def shaped_join(joined: JoinedRows, plan: TablePlan, stamp: RowStamp) -> JoinedRows:
    """Return joined rows as the sink has them; the same object where nothing differs.

    `stamp` is what the metadata says of them.
    """
    if plan.shape.is_identity:
        return joined
    touched = None if joined.touched is None else shaped_keys(joined.touched, plan)
    return JoinedRows(shaped_rows(joined.rows, plan, stamp), touched)


def _with_changes(
    rows: SplitRows, changes: Sequence[TableChanges], schema: TableSchema
) -> SplitRows:
    """Return all rows of a table without a key behind the changes, which begin at their place."""
    run = [as_read(each, rows.schema, schema.table) for each in changes if len(each)]
    return ArrowRows(with_changes(_table(rows), run, schema.table)) if run else rows


def _meets(changes: TableChanges, schema: TableSchema, split: SnapshotSplit) -> bool:
    """Tell whether a change removed a row from the split's range, or wrote one into it."""
    return any(
        in_range([keys.column(name) for name in keys.schema.names], split.keys).any()
        for keys in _images(changes, schema.primary_key)
        if keys.num_rows
    )


def _as_the_log_left_it(
    rows: SplitRows,
    changes: Sequence[TableChanges],
    schema: TableSchema,
    listed: pa.RecordBatch | None,
) -> JoinedRows:
    """Return the rows of a split that is not compared by range, and the keys that changed."""
    run = [as_read(each, rows.schema, schema.table) for each in changes if len(each)]
    if not run:
        return JoinedRows(rows, listed)
    key = schema.primary_key
    images = [keys for each in run for keys in _images(each, key) if keys.num_rows]
    touched = _distinct(pa.Table.from_batches(images).combine_chunks().to_batches()[0])
    read = _table(rows)
    stays = read.filter(mask_of(staying(read, [touched], key)))
    now = [*stays.to_batches(), merge(run, key).upserts]
    if listed is not None:
        both = pa.Table.from_batches([touched, listed.cast(touched.schema)])
        touched = _distinct(both.combine_chunks().to_batches()[0])
    return JoinedRows(ArrowRows(pa.Table.from_batches(now, read.schema)), touched)


def _images(changes: TableChanges, key: Sequence[str]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the keys that changes removed, and those that they wrote."""
    op = as_numpy(changes.op)
    return (
        changes.before.select(list(key)).filter(mask_of(op != Op.INSERT)),
        changes.after.select(list(key)).filter(mask_of(op != Op.DELETE)),
    )


def _distinct(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Return the keys without duplicates."""
    (codes,) = key_codes([keys.columns]).groups
    _, first = np.unique(codes, return_index=True)
    return keys.take(numbers_of(first))


def _table(rows: SplitRows) -> pa.Table:
    """Return a split's rows as one Arrow table."""
    return pa.Table.from_batches(rows.batches(), rows.schema)
