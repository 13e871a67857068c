"""Law 5 for many changes at once: which of them the stream applies.

A change of a key is applied if and only if the watermark of the key's split does not contain its
transaction, and the table's `applied_through` does not either. An update touches two keys when it
moves one; each is judged by its own split, and what is left may be only a delete of the old key
or only an insert of the new one.

Splits are sorted by range, so a key's split is the number of split starts that are not after the
key. A single key column is looked up by binary search, composite keys start by start. Then only
the pairs of split and transaction that do occur are compared, and by GTID a whole split's
transactions at a time. The answer is that of `TableProgress.owns`, key by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_keys import KeyColumns, in_range
from airflow_cdc_provider.columns.transactions import TransactionIndex
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.stream_split import TableProgress


@dataclass(frozen=True, slots=True)
class Owned:
    """For each change: whether the stream applies its before-key, and its after-key.

    An insert has no before-key and a delete no after-key: False there.
    """

    before: pa.BooleanArray
    after: pa.BooleanArray


def owned(
    changes: TableChanges,
    transactions: TransactionIndex,
    progress: TableProgress,
    key: Sequence[str],
) -> Owned:
    """Return which keys of the changes the stream applies; `key` names the key's columns."""
    op = as_numpy(changes.op)
    transaction = as_numpy(changes.transaction)
    every = np.arange(len(transactions))
    fresh = ~transactions.within(progress.applied_through, every)[transaction]
    before, after = fresh & (op != Op.INSERT), fresh & (op != Op.DELETE)
    if progress.finished and len(op):
        sides = [np.flatnonzero(before), np.flatnonzero(after)]
        # a table without a key is one split: any column says how many rows there are
        columns = [
            pa.concat_arrays(
                [
                    rows.column(name).take(numbers_of(wanted))
                    for rows, wanted in zip((changes.before, changes.after), sides, strict=True)
                ]
            )
            for name in key or changes.after.schema.names[:1]
        ]
        of = np.concatenate([transaction[wanted] for wanted in sides])
        applies = _after_their_split(columns, of, transactions, progress)
        before[sides[0]] = applies[: len(sides[0])]
        after[sides[1]] = applies[len(sides[0]) :]
    return Owned(mask_of(before), mask_of(after))


def filtered(
    changes: TableChanges,
    transactions: TransactionIndex,
    progress: TableProgress,
    key: Sequence[str],
) -> TableChanges:
    """Return the part of the changes that the stream applies.

    An update of which only one key is the stream's becomes an insert or a delete; the image that
    is then absent is still there as columns, and means nothing.
    """
    if not len(changes):
        return changes
    found = owned(changes, transactions, progress, key)
    return _of_sides(changes, as_numpy(found.before), as_numpy(found.after))


def within(changes: TableChanges, ranges: Sequence[KeyRange], key: Sequence[str]) -> TableChanges:
    """Return the part of the changes whose keys are in one of some ranges.

    An update of which only one key is there becomes an insert or a delete, as by `filtered`.
    """
    op = as_numpy(changes.op)
    before = (op != Op.INSERT) & _in_any(changes.before, ranges, key)
    after = (op != Op.DELETE) & _in_any(changes.after, ranges, key)
    return _of_sides(changes, before, after)


def _in_any(rows: pa.RecordBatch, ranges: Sequence[KeyRange], key: Sequence[str]) -> BoolArray:
    """Return a mask of the rows whose key is in one of some ranges; absent rows do not matter."""
    columns = [rows.column(name) for name in key]
    present = np.ones(rows.num_rows, np.bool_)
    for column in columns:
        present &= ~as_numpy(column.is_null())
    places = np.flatnonzero(present)
    there = [column.take(numbers_of(places)) for column in columns]
    found = np.zeros(rows.num_rows, np.bool_)
    for keys in ranges:
        found[places] |= in_range(there, keys)
    return found


def _of_sides(changes: TableChanges, before: BoolArray, after: BoolArray) -> TableChanges:
    """Return the changes of which a row before or after them is wanted."""
    op = as_numpy(changes.op).copy()
    update = op == Op.UPDATE
    op[update & ~before] = Op.INSERT
    op[update & ~after] = Op.DELETE
    kept = before | after
    if kept.all() and np.array_equal(op, as_numpy(changes.op)):
        return changes
    places = numbers_of(np.flatnonzero(kept))
    return replace(changes.take(places), op=as_arrow(op[kept].astype(np.int8), None, pa.int8()))


def _after_their_split(
    columns: KeyColumns, of: IntArray, transactions: TransactionIndex, progress: TableProgress
) -> BoolArray:
    """Return a mask of the keys whose transaction is after their split's watermark."""
    split = split_numbers(columns, progress)
    applies = np.ones(len(split), np.bool_)
    order = np.argsort(split, kind="stable")
    hit, first = np.unique(split[order], return_index=True)
    edges = [*first.tolist(), len(order)]
    for number, start, end in zip(hit.tolist(), edges, edges[1:], strict=False):
        rows = order[start:end]
        applies[rows] = ~transactions.within(progress.finished[number].watermark, of[rows])
    return applies


def split_numbers(columns: KeyColumns, progress: TableProgress) -> IntArray:
    """Return for each key the number of its split in `progress.finished`."""
    if len(progress.finished) == 1:
        return np.zeros(len(columns[0]), np.int64)
    starts = [finished.split.keys.start for finished in progress.finished[1:]]
    bounds = [start for start in starts if start is not None]
    if len(bounds) != len(starts):
        raise ValueError(f"two splits of {progress.table} are open at the start")
    if not bounds:
        return np.zeros(len(columns[0]), np.int64)
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        limits = key_column([bound[0] for bound in bounds], columns[0].type)
        found: IntArray = np.searchsorted(as_numpy(limits), as_numpy(columns[0]), side="right")
        return found
    return _by_halves(columns, [KeyRange(start=bound) for bound in bounds])


def _by_halves(columns: KeyColumns, from_bound: Sequence[KeyRange]) -> IntArray:
    """Return for each key how many bounds it reaches, by binary search over all keys at once."""
    numbers = np.zeros(len(columns[0]), np.int64)
    waiting = [(np.arange(len(columns[0])), 0, len(from_bound))]
    while waiting:
        rows, low, high = waiting.pop()
        if low == high or not len(rows):
            numbers[rows] = low
            continue
        middle = (low + high) // 2
        places = numbers_of(rows)
        reaches = in_range([column.take(places) for column in columns], from_bound[middle])
        waiting.append((rows[reaches], middle + 1, high))
        waiting.append((rows[~reaches], low, middle))
    return numbers
