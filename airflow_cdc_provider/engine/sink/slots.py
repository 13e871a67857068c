"""Which slot writes a key, when several writers share a stream (`apply: merged`).

A key always belongs to the same slot, so its changes stay in order, and a replay gives each slot
the same rows again. The slot is a hash of those key columns whose equality is the same here and
at the server: integers and temporals. A table whose key has none of these, or that has more
unique keys than the primary one, belongs to one slot as a whole: two spellings of one key, or
two rows that exchange a unique value, must never be written by two writers at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.ledger.state import Slot, stream_of_slots
from airflow_cdc_provider.engine.sink.selection import TableWork

_SPREAD = (KeyKind.INTEGER, KeyKind.TEMPORAL)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def part_of(work: TableWork, slot: int, slots: int) -> TableWork:
    """Return the part of a table's changes that a writer slot applies."""
    if slots == 1:
        return work
    names = spread_columns(work.plan.target)
    merged = work.merged
    if not names:
        if whole_table_slot(work.plan.schema.table, slots) == slot:
            return work
        return TableWork(
            work.plan, MergedChanges(merged.deletes.slice(0, 0), merged.upserts.slice(0, 0))
        )
    return TableWork(
        work.plan,
        MergedChanges(
            _of_slot(merged.deletes, names, slot, slots),
            _of_slot(merged.upserts, names, slot, slots),
        ),
    )


def spread_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the key columns that decide a row's slot; none if one slot writes the whole table."""
    if schema.unique_keys:
        return ()
    kinds = zip(schema.primary_key, schema.key_kinds, strict=True)
    return tuple(name for name, kind in kinds if kind in _SPREAD)


def whole_table_slot(table: TableId, slots: int) -> int:
    """Return the slot that writes a table of the source whose rows are not spread over slots."""
    return zlib.crc32(str(table).encode()) % slots


def collapsed(rows: Sequence[Slot], plans: Sequence[TablePlan]) -> StreamSplit:
    """Return the stream split at the smallest position of all writer slots."""
    stream = stream_of_slots(rows)
    if stream is None:
        raise ValueError("no slots")
    targets = {plan.schema.table: plan.target for plan in plans}

    def kept(progress: TableProgress) -> TableProgress:
        target = targets.get(progress.table)
        if target is None or len(rows) == 1 or spread_columns(target):
            return progress
        own = rows[whole_table_slot(progress.table, len(rows))].position
        return replace(progress, applied_through=_later(progress.applied_through, own))

    return replace(stream, tables=tuple(kept(progress) for progress in stream.tables))


def _later(one: LogPosition, other: LogPosition) -> LogPosition:
    """Return the later of two positions, or the first where they cannot be compared."""
    try:
        return one.join(other)
    except CdcError:
        return one  # not comparable: the table is replayed, which is right, if not needed


def _of_slot(rows: pa.RecordBatch, names: tuple[str, ...], slot: int, slots: int) -> pa.RecordBatch:
    """Return the rows whose key belongs to a slot, by a hash of the key."""
    if not rows.num_rows:
        return rows
    mixed = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        mixed = (mixed ^ _numbers(rows.column(name))) * _GOLDEN
        mixed ^= mixed >> np.uint64(29)
    mine = (mixed >> np.uint64(32)) % np.uint64(slots) == slot
    return rows.filter(mask_of(mine))


def _numbers(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return integers or temporals as numbers, equal for equal values."""
    kind = values.type
    if pa.types.is_string(kind):  # dates under the policy `text`
        spelled = [zlib.crc32(text.encode()) for text in values.to_pylist()]
        return np.array(spelled, np.uint64)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    numbers: npt.NDArray[np.uint64] = as_numpy(values).astype(np.int64).view(np.uint64)
    return numbers
