"""Joining splits where the sink's node may have changed the same rows: there they stay as they are.

A split's rows are the source's at the stream's position, and there the source knew the sink's log
up to some place. What the sink's node has changed since then is not among these rows: it comes to
the source by the edge back, and its conflicts are settled there and here. So such rows are left
alone, whatever the split has of them. Only rows that differ are written, so nobody at the sink
waits for more of them than need be.

As with the stream's changes, rows are written before the guard is asked for the last time: their
locks keep others from changing them between its answer and the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import mask_of, one_batch
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.engine.sink.guard import Guard, without_rows
from airflow_cdc_provider.engine.sink.row_identity import Weights
from airflow_cdc_provider.engine.sink.selection import TableWork

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.known_log import KnownLog
    from airflow_cdc_provider.core.records import TablePlan


class OvertakenError(Exception):
    """Others have changed rows while a join wrote them: it is rolled back, and done again."""


class FreedRowTakenError(Exception):
    """Others have changed a row that a join deleted for its unique value: that cannot go yet."""


@dataclass(frozen=True, slots=True)
class JoinLook:
    """A look at what the sink's node has changed of one table, for one join's transaction."""

    guard: Guard
    plan: TablePlan
    known: KnownLog
    """What the source knew of the sink's log at the stream's position."""
    weights: Callable[[], Weights]

    def begin(self) -> None:
        """Read the sink's log to its end; the table's definition there is known from now on."""
        self.guard.catch_up(self.known)

    def keys_of_no_row(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the keys by which the sink would find none of the rows, of whatever spelling.

        `rows` has the keys of the rows alone.
        """
        identity = self.guard.identity(self.plan.sink_table, self.weights)
        groups = key_codes([identity.of(keys), identity.of(rows)]).groups
        return keys.filter(mask_of(~np.isin(groups[0], groups[1])))

    def without_theirs(self, wanted: MergedChanges) -> tuple[MergedChanges, int]:
        """Return what a join may write of what it wants to, and how many rows are left alone."""
        work = TableWork(self.plan, wanted)
        clash = self.guard.clash(work, self.known, self.weights)
        if clash is None:
            return wanted, 0
        return without_rows(work, clash.rows).merged, len(clash.rows)

    def others_have_changes(self) -> bool:
        """Tell whether the source lacks any of the sink node's changes of the table."""
        return self.guard.touched(self.plan.sink_table) is not None

    def require_not_overtaken(self, written: MergedChanges, freed: Sequence[pa.Table]) -> None:
        """Raise `OvertakenError` if others have changed a row that was written, or deleted.

        `freed` has the keys of rows that were deleted besides: if others have changed one of them,
        the error is a `FreedRowTakenError`. Nobody else can change any of them now.
        """
        others_write = self.guard.catch_up(self.known)
        self.guard.look_at_triggers()
        if not others_write:
            return
        if self._clashes(written):
            raise OvertakenError
        for keys in freed:
            gone = one_batch(keys.cast(written.deletes.schema))
            if self._clashes(MergedChanges(gone, written.upserts.slice(0, 0))):
                raise FreedRowTakenError

    def _clashes(self, written: MergedChanges) -> bool:
        """Tell whether the sink's node has changed one of these rows, unknown to the source."""
        work = TableWork(self.plan, written)
        return self.guard.clash(work, self.known, self.weights) is not None
