"""Whose change of a row stays where both nodes changed it, by the rule of its table.

By a column each node's changes of a row count with the greatest value among them that the other
node did not know. So both edges come to the same answer, though one may see all of these changes
at once, and the other one after the other: once a change of the source has beaten the sink's, the
changes behind it beat them, too, whatever their value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows

if TYPE_CHECKING:
    from airflow_cdc_provider.core.positions import TransactionPoint

Part = tuple[TableChanges, Sequence["TransactionPoint"]]
"""Changes in log order, and the transactions that they point to."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """What the changes of one part do to some rows, in log order."""

    row: IntArray
    """Which of the rows."""
    values: pa.Array
    """The rule's column: of the row behind it, of a delete that of the row before."""
    deletes: IntArray
    """1 if there is no such row behind it, else 0."""
    change: IntArray
    """The change's row number in its part."""

    def only(self, wanted: BoolArray) -> _Steps:
        """Return some of the steps."""
        return _Steps(
            self.row[wanted],
            self.values.filter(mask_of(wanted)),
            self.deletes[wanted],
            self.change[wanted],
        )


def compare(
    column: str,
    rows: KeyedRows,
    ours: Sequence[TableChanges],
    theirs: Sequence[Part],
    beaten: Mapping[int, str],
) -> IntArray:
    """Compare, for each row, the greatest value of a column among the changes of both nodes.

    `beaten` has the place, in the sink's log, of the last change of a row that the source has
    beaten before: that one and those before it count no more. Returns 1 for each row where the
    source's value is greater, -1 where the sink's is, 0 where both are the same. A delete counts
    just above the row that it took, and NULL below all values. `IntegrityError` if a table has no
    such column any more.
    """
    by_source = [_steps(changes, rows, column) for changes in ours]
    by_sink = []
    hit: set[int] = set()
    for changes, points in reversed(theirs):
        steps = _steps(changes, rows, column)
        if beaten:
            number = as_numpy(changes.transaction)[steps.change]
            places = [points[at].where for at in number.tolist()]
            steps = steps.only(_not_beaten(steps, places, beaten, hit))
        by_sink.append(steps)
    found = [*by_source, *by_sink]
    kind = by_source[0].values.type
    strength = _ranks(pa.concat_arrays([each.values.cast(kind) for each in found])) * 2
    strength += np.concatenate([each.deletes for each in found])
    row = np.concatenate([each.row for each in found])
    cut = sum(len(each.row) for each in by_source)
    greatest = []
    for part in (slice(cut), slice(cut, None)):
        greatest.append(np.full(len(rows), -1, np.int64))
        np.maximum.at(greatest[-1], row[part], strength[part])
    by_source_is: IntArray = np.sign(greatest[0] - greatest[1])
    return by_source_is


def _steps(changes: TableChanges, rows: KeyedRows, column: str) -> _Steps:
    """Return what a part's changes do to some rows."""
    if column not in changes.after.schema.names:
        raise IntegrityError(
            f"{changes.table} has no column {column}, by which its conflicts are settled",
            where=f"table {changes.table}",
            risk="whose change stays could not be told; nothing was written",
            remedy="name a column that it has in topology.conflicts, in the files of both edges",
        )
    taken, put = rows.places(changes)
    taken[taken == put] = -1
    places = np.column_stack([taken, put]).ravel()  # in log order: first away, then written
    step = np.flatnonzero(places >= 0)
    change, writes = step >> 1, step & 1
    values = pa.concat_arrays([changes.before.column(column), changes.after.column(column)])
    values = values.take(numbers_of(change + writes * len(changes)))
    return _Steps(places[step], values, 1 - writes, change)


def _not_beaten(
    steps: _Steps, places: Sequence[str], beaten: Mapping[int, str], hit: set[int]
) -> BoolArray:
    """Return a mask of the steps after each row's last beaten one; call it for the last part first.

    `places` has that of each step. `hit` are the rows whose beaten place has been met: it is added
    to.
    """
    left = np.ones(len(steps.row), np.bool_)
    for step in np.flatnonzero(np.isin(steps.row, list(beaten)))[::-1].tolist():
        row = int(steps.row[step])
        if row in hit or places[step] == beaten[row]:
            hit.add(row)
            left[step] = False
    return left


def _ranks(values: pa.Array) -> IntArray:
    """Return numbers that sort as the values do, the same for the same; NULL is 0."""
    ranks = np.zeros(len(values), np.int64)
    ranks[as_numpy(values.is_valid())] = as_numpy(pc.rank(values.drop_null(), tiebreaker="dense"))
    return ranks
