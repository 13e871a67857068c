"""What the metadata columns hold, row by row, as columns.

A read writes the same to all its rows; of changes only the operation is each row's own, and the
rest is that of its transaction. So nothing is made value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of, texts_of
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.moments import MOMENT, moments_of
from airflow_cdc_provider.columns.transactions import transactions_of
from airflow_cdc_provider.core.positions import TransactionPoint
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import MetadataKind, Operation, RowStamp

if TYPE_CHECKING:
    import numpy.typing as npt


_TYPES = {
    MetadataKind.OPERATION: pa.string(),
    MetadataKind.POSITION: pa.string(),
    MetadataKind.COMMITTED_AT: MOMENT,
    MetadataKind.TABLE: pa.string(),
    MetadataKind.SERVER: pa.string(),
}
_LETTERS = {
    Op.INSERT: Operation.INSERT,
    Op.UPDATE: Operation.UPDATE,
    Op.DELETE: Operation.DELETE,
}


def stamps_of(points: Sequence[TransactionPoint], system: str) -> pa.RecordBatch:
    """Return `position`, `committed_at` and `server` of transactions, a row each."""
    return transactions_of(system).stamps_of(points)


def stamp_of(point: TransactionPoint, system: str, operation: Operation) -> RowStamp:
    """Return what a statement of the log writes to rows."""
    (row,) = stamps_of([point], system).select(["position", "server"]).to_pylist()
    return RowStamp(operation, row["position"], row["server"], point.committed_us)


def stamped_alike(plan: TablePlan, stamp: RowStamp, rows: int) -> pa.RecordBatch:
    """Return a table's metadata columns, by their names, for rows that one event wrote."""
    values = {
        MetadataKind.OPERATION: texts_of([stamp.operation]),
        MetadataKind.POSITION: texts_of([stamp.position]),
        MetadataKind.COMMITTED_AT: moments_of(as_numpy(numbers_of([stamp.committed_us]))),
        MetadataKind.TABLE: texts_of([str(plan.schema.table)]),
        MetadataKind.SERVER: texts_of([stamp.server]),
    }
    named = plan.shape.metadata.named
    arrays = [_repeated(values[kind], rows) for kind in named]
    return pa.RecordBatch.from_arrays(arrays, names=list(named.values()))


def stamped_changes(
    plan: TablePlan, kinds: npt.NDArray[np.int8], transaction: pa.Array, log: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a table's metadata columns, by their names, for changes.

    `kinds` are the `Op` of each change, `transaction` the row of `log` that its transaction has.
    """
    letters = texts_of([_LETTERS[op] for op in Op])
    rows = len(transaction)
    named = plan.shape.metadata.named
    arrays: list[pa.Array] = []
    for kind in named:
        match kind:
            case MetadataKind.OPERATION:
                arrays.append(letters.take(numbers_of(kinds.astype(np.int64) - int(Op.INSERT))))
            case MetadataKind.TABLE:
                arrays.append(_repeated(texts_of([str(plan.schema.table)]), rows))
            case MetadataKind.POSITION | MetadataKind.COMMITTED_AT | MetadataKind.SERVER:
                arrays.append(log.column(kind).take(transaction))
    return pa.RecordBatch.from_arrays(arrays, names=list(named.values()))


def no_stamps(plan: TablePlan, rows: int) -> pa.RecordBatch:
    """Return a table's metadata columns, by their names, with nothing but NULLs."""
    named = plan.shape.metadata.named
    arrays = [pa.nulls(rows, _TYPES[kind]) for kind in named]
    return pa.RecordBatch.from_arrays(arrays, names=list(named.values()))


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    """Return one value as often as there are rows."""
    return pa.repeat(value[0], rows) if value.null_count == 0 else pa.nulls(rows, value.type)
