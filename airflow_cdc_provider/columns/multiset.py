"""Rows of a table without a key: a multiset, where only what a row holds tells it from another.

An insert adds its after-row, a delete takes one row like its before-row away, an update does both.
Which of several equal rows goes makes no difference, and neither does the order: what a run of
changes does is, for each distinct row, how many more or fewer of it there are behind the run. So a
row that was inserted and deleted, or changed and changed back, costs the sink nothing.

Nothing here may be done twice. The rows are those of exactly one place of the log, the run begins
there, and whoever applies it keeps its end in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, one_batch
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_keys import row_codes
from airflow_cdc_provider.core.errors import SplitOutdatedError
from airflow_cdc_provider.core.identifiers import TableId


def net_rows(changes: Sequence[TableChanges]) -> MergedChanges:
    """Return the rows that a run of one table's changes takes away and adds, whole, in log order.

    A row of which several go or come is there as often. All changes have one schema.
    """
    if not changes:
        raise ValueError("nothing to add up: the schema comes from the changes")
    ops = [as_numpy(each.op) for each in changes]
    taken = pa.concat_batches(
        [
            each.before.filter(mask_of(op != Op.INSERT))
            for each, op in zip(changes, ops, strict=True)
        ]
    )
    put = pa.concat_batches(
        [each.after.filter(mask_of(op != Op.DELETE)) for each, op in zip(changes, ops, strict=True)]
    )
    codes = row_codes([taken.columns, put.columns])
    gone, came = codes.groups
    more = np.bincount(came, minlength=codes.count) - np.bincount(gone, minlength=codes.count)
    return MergedChanges(
        taken.filter(mask_of(_last_of_each(gone, -more))),
        put.filter(mask_of(_last_of_each(came, more))),
    )


def with_changes(rows: pa.Table, changes: Iterable[TableChanges], table: TableId) -> pa.Table:
    """Return all rows of a table behind a run of changes, from those before it.

    `SplitOutdatedError` if the changes take rows away that are not among them.
    """
    run = [each for each in changes if len(each)]
    if not run:
        return rows
    net = net_rows(run)
    there = one_batch(rows)
    codes = row_codes([there.columns, net.deletes.columns])
    held, gone = codes.groups
    fewer = np.bincount(gone, minlength=codes.count)
    lacking = fewer - np.bincount(held, minlength=codes.count)
    if (lacking > 0).any():
        raise SplitOutdatedError(
            f"the log takes {int(lacking[lacking > 0].sum())} rows from {table} that were not read",
            where=f"table {table}",
            risk="none: the rows read so far are dropped",
            remedy="the table is read again",
        )
    stays = there.filter(mask_of(~_last_of_each(held, fewer)))
    return pa.Table.from_batches([stays, net.upserts], rows.schema)


def _last_of_each(codes: IntArray, wanted: IntArray) -> BoolArray:
    """Return a mask of the last `wanted[code]` rows of each code; none where that is below one."""
    order = np.argsort(codes, kind="stable")[::-1]
    ordered = codes[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else order
    number = np.arange(len(ordered)) - np.repeat(first, np.diff(np.r_[first, len(ordered)]))
    mask = np.zeros(len(codes), np.bool_)
    mask[order] = number < wanted[ordered]
    return mask
