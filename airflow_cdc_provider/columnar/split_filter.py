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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columnar.changes import Op, TableChanges
from airflow_cdc_provider.columnar.keys import key_column
from airflow_cdc_provider.columnar.row_keys import KeyColumns, Mask, in_range
from airflow_cdc_provider.core.gtid import Gtid, GtidSet
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
from airflow_cdc_provider.core.stream_split import TableProgress

_FEW = 16
"""Up to so many transactions, asking one by one is quicker than building arrays."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Owned:
    """For each change: whether its before-key, and whether its after-key, is the stream's.

    An insert has no before-key and a delete no after-key: False there.
    """

    before: pa.BooleanArray
    after: pa.BooleanArray


def owned(
    changes: TableChanges,
    transactions: Sequence[TransactionPoint],
    progress: TableProgress,
    key: Sequence[str],
) -> Owned:
    """Tell which keys of the changes the stream applies; `key` names the key in index order."""
    op = _numbers(changes.op)
    transaction = _numbers(changes.transaction)
    fresh = ~_contained(progress.applied_through, transactions)[transaction]
    sides = []
    for rows, absent in ((changes.before, Op.INSERT), (changes.after, Op.DELETE)):
        mine = fresh & (op != absent)
        if progress.finished and mine.any():
            wanted = np.flatnonzero(mine)
            places = pa.array(wanted)
            columns = [rows.column(name).take(places) for name in key]
            mine[wanted] = _after_their_split(columns, transaction[wanted], transactions, progress)
        sides.append(pa.array(mine))
    return Owned(*sides)


def filtered(
    changes: TableChanges,
    transactions: Sequence[TransactionPoint],
    progress: TableProgress,
    key: Sequence[str],
) -> TableChanges:
    """Return what the stream applies of the changes.

    An update of which only one key is the stream's becomes an insert or a delete; the image that
    is then absent is still there as columns, and means nothing.
    """
    if not len(changes):
        return changes
    found = owned(changes, transactions, progress, key)
    before, after = (side.to_numpy(zero_copy_only=False) for side in (found.before, found.after))
    op = _numbers(changes.op).copy()
    update = op == Op.UPDATE
    op[update & ~before] = Op.INSERT
    op[update & ~after] = Op.DELETE
    kept = before | after
    if kept.all() and np.array_equal(op, _numbers(changes.op)):
        return changes
    places = pa.array(np.flatnonzero(kept))
    return TableChanges(
        table=changes.table,
        transaction=changes.transaction.take(places),
        ordinal=changes.ordinal.take(places),
        op=pa.array(op[kept], pa.int8()),
        before=changes.before.take(places),
        after=changes.after.take(places),
    )


def _numbers(array: pa.Array) -> Numbers:
    numbers: Numbers = array.to_numpy(zero_copy_only=False)
    return numbers


def _after_their_split(
    columns: KeyColumns,
    transaction: Numbers,
    transactions: Sequence[TransactionPoint],
    progress: TableProgress,
) -> Mask:
    """Tell which keys' transactions their split's watermark does not contain."""
    split = split_numbers(columns, progress)
    applies = np.ones(len(split), np.bool_)
    order = np.argsort(split, kind="stable")
    hit, first = np.unique(split[order], return_index=True)
    for number, rows in zip(hit, np.split(order, first[1:]), strict=True):
        watermark = progress.finished[number].watermark
        some, back = np.unique(transaction[rows], return_inverse=True)
        points = [transactions[i] for i in some]
        applies[rows] = ~_contained(watermark, points)[back]
    return applies


def split_numbers(columns: KeyColumns, progress: TableProgress) -> Numbers:
    """Return for each key the place of its split in `progress.finished`."""
    starts = [finished.split.keys.start for finished in progress.finished[1:]]
    bounds = [start for start in starts if start is not None]
    if len(bounds) != len(starts):
        raise ValueError(f"two splits of {progress.table} are open at the start")
    if not bounds:
        return np.zeros(len(columns[0]), np.int64)
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        limits = key_column([bound[0] for bound in bounds], columns[0].type)
        found: Numbers = np.searchsorted(limits.to_numpy(), columns[0].to_numpy(), side="right")
        return found
    return _by_halves(columns, [KeyRange(start=bound) for bound in bounds])


def _by_halves(columns: KeyColumns, from_bound: Sequence[KeyRange]) -> Numbers:
    """Binary search over ordered bounds, with all keys that go the same way going together."""
    numbers = np.zeros(len(columns[0]), np.int64)
    waiting = [(np.arange(len(columns[0])), 0, len(from_bound))]
    while waiting:
        rows, low, high = waiting.pop()
        if low == high or not len(rows):
            numbers[rows] = low
            continue
        middle = (low + high) // 2
        places = pa.array(rows)
        reaches = in_range([column.take(places) for column in columns], from_bound[middle])
        waiting.append((rows[reaches], middle + 1, high))
        waiting.append((rows[~reaches], low, middle))
    return numbers


def _contained(position: LogPosition, points: Sequence[TransactionPoint]) -> Mask:
    """Tell which transactions lie at or before a position."""
    gtids = position.gtids
    if len(points) > _FEW and isinstance(gtids, GtidSet):
        named = [point.gtid for point in points]
        if all(isinstance(gtid, Gtid) for gtid in named):
            return _in_set(gtids, [gtid for gtid in named if isinstance(gtid, Gtid)])
    return np.fromiter((position.contains(point) for point in points), np.bool_, len(points))


def _in_set(gtids: GtidSet, named: Sequence[Gtid]) -> Mask:
    number = np.fromiter((gtid.number for gtid in named), np.int64, len(named))
    inside = np.zeros(len(named), np.bool_)
    for source in {gtid.source for gtid in named}:
        spans = gtids.intervals.get(source, ())
        if not spans:
            continue
        ends = np.array(spans, np.int64).ravel()
        of_source = np.fromiter((gtid.source == source for gtid in named), np.bool_, len(named))
        # An odd place in [start0, end0, start1, ...] is inside an interval.
        inside |= of_source & (np.searchsorted(ends, number, side="right") % 2 == 1)
    return inside
