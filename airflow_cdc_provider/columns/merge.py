"""The last change of each key: a run of changes becomes rows to delete and rows to write.

An insert puts its after-row, a delete takes its before-key away, and an update does both, first
taking its before-key, then putting its after-row. So a key move needs no case of its own. The
last of these steps decides what becomes of a key. `merge` finds it for all keys at once: steps
stand in log order, and `last[code] = step` for all steps leaves the last one in place.

**Deletes first.** The sink applies all `deletes`, then all `upserts`; where it has more unique
keys than the primary key it also deletes the upserted keys before it inserts. Then rows that
swap a unique value within the run never meet: the old ones are all gone when the first new one
comes, and the new ones are a state the source had.

**Keys with a collation** are told apart by their bytes, so `UPDATE t SET k = 'A'` of the row
'a' is a key move: it deletes 'a' and puts 'A'. At a sink that holds both for equal this is
still right, because deletes run first: the delete of 'a' takes the row under either spelling and
the upsert of 'A' brings it back. It can never be the other way round, a delete that should come
after an upsert of an equal key: the log's images carry the bytes that were stored, the source
has at most one spelling at a time, and before it takes another one in, the log has taken the
first away. So of all spellings of one key at most the last one ends in `upserts`. Trailing
spaces under a PAD SPACE collation are spellings in this sense too. An upsert must write the key
columns as well, so that the sink ends with the last spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_keys import key_codes


@dataclass(frozen=True, slots=True)
class MergedChanges:
    """What a run of changes does to the table: keys to delete and rows to write."""

    deletes: pa.RecordBatch
    """The keys to delete: the key columns in index order; of a table without a key whole rows."""
    upserts: pa.RecordBatch
    """Whole rows to write, in the order of their last change."""

    def __len__(self) -> int:
        return int(self.deletes.num_rows + self.upserts.num_rows)


def merge(changes: Sequence[TableChanges], key: Sequence[str]) -> MergedChanges:
    """Merge one table's changes, in log order, to the last change of each key.

    All have one schema; `key` names the key's columns.
    """
    if not changes:
        raise ValueError("nothing to merge: the schema comes from the changes")
    before = _together([each.before.select(key) for each in changes])
    after = _together([each.after for each in changes])
    op = np.concatenate([as_numpy(each.op) for each in changes])
    taken = np.flatnonzero(op != Op.INSERT)
    put = np.flatnonzero(op != Op.DELETE)
    codes = key_codes([_key_of(before, key, taken, len(op)), _key_of(after, key, put, len(op))])
    step_codes, step_rows, step_puts = _in_log_order(codes.groups, taken, put)
    last = np.full(codes.count, -1, np.int64)
    last[step_codes] = np.arange(len(step_codes))
    last = np.sort(last[last >= 0])
    puts = step_puts[last]
    deletes = before.take(numbers_of(step_rows[last[~puts]]))
    upserts = after.take(numbers_of(step_rows[last[puts]]))
    return MergedChanges(deletes, upserts)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return record batches as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _key_of(
    rows: pa.RecordBatch, key: Sequence[str], wanted: IntArray, total: int
) -> list[pa.Array]:
    """Return the key columns of the wanted rows."""
    columns = [rows.column(name) for name in key]
    if len(wanted) == total:
        return columns
    places = numbers_of(wanted)
    return [column.take(places) for column in columns]


def _in_log_order(
    codes: Sequence[IntArray],
    taken: IntArray,
    put: IntArray,
) -> tuple[IntArray, IntArray, BoolArray]:
    """Order the deletes and writes of all changes as in the log; an update deletes first.

    Returns each step's key code, its change, and whether it puts.
    """
    step = np.concatenate([taken * 2, put * 2 + 1])
    place = np.empty(2 * (int(step.max()) // 2 + 1) if len(step) else 0, np.int64)
    place.fill(-1)
    place[step] = np.concatenate([codes[0], codes[1]])
    steps = np.flatnonzero(place >= 0)
    return place[steps], steps >> 1, (steps & 1).astype(np.bool_)
