"""The rows of events: as they were before the change, as they are after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.systems.file_log.events import TableEvents


def image_of(changes: TableChanges, events: TableEvents, *, before: bool) -> pa.RecordBatch:
    """Return the before or after row of each event."""
    rows = changes.before if before else changes.after
    if len(events) == len(changes):
        return rows  # no change is two events, so each has its own row
    return rows.take(numbers_of(events.change))


def last_rows(
    before: pa.RecordBatch, after: pa.RecordBatch, deleted: BoolArray, names: Sequence[str]
) -> pa.RecordBatch:
    """Return rows of `after`, and of `before` where they were deleted."""
    if not deleted.any():
        return after.select(names)
    if deleted.all():
        return before.select(names)
    places = numbers_of(np.arange(len(deleted)) + np.where(deleted, 0, len(deleted)))
    arrays = [pa.concat_arrays([before.column(n), after.column(n)]).take(places) for n in names]
    return pa.RecordBatch.from_arrays(arrays, list(names))
