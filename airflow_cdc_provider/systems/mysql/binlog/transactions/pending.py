"""Decoded changes that wait for their batch to be full.

Changes carry two numbers that only grow: the transaction they belong to and their place among all
changes. So a batch's end, a rollback and a prepared transaction are all one thing: a cut at a
place, and a slice of Arrow arrays, which copies nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow
from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.rows.absent_rows import absent_rows, are_absent


@dataclass(slots=True)
class Piece:
    """Some changes of one table, in log order."""

    table: TableId
    transaction: IntArray
    ordinal: IntArray
    op: npt.NDArray[np.int8]
    before: pa.RecordBatch
    after: pa.RecordBatch
    facts: pa.RecordBatch | None = None
    """What is told of each, if somebody asks."""

    def __len__(self) -> int:
        return len(self.op)

    @property
    def nbytes(self) -> int:
        facts = 0 if self.facts is None else self.facts.nbytes
        return int(self.before.nbytes + self.after.nbytes + facts)

    def slice(self, first: int, last: int) -> Piece:
        """Return the changes from `first` up to, not including, `last`."""
        cut = slice(first, last)
        return Piece(
            self.table,
            self.transaction[cut],
            self.ordinal[cut],
            self.op[cut],
            self.before.slice(first, last - first),
            self.after.slice(first, last - first),
            None if self.facts is None else self.facts.slice(first, last - first),
        )


class PendingChanges:
    """Pieces in the order they came; places grow within each and never overlap after a cut."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._reached: list[int] = []
        """The last place in each piece and all before it: a cut looks at few of many pieces."""

    def add(self, piece: Piece) -> None:
        """Keep a piece."""
        if not len(piece):
            return
        last = int(piece.ordinal[-1])
        self._pieces.append(piece)
        self._reached.append(max(last, self._reached[-1]) if self._reached else last)

    def nbytes_since(self, ordinal: int) -> int:
        """Return how much memory the changes from a place on take."""
        return sum(piece.nbytes for piece in self._pieces[bisect_left(self._reached, ordinal) :])

    def before(self, ordinal: int) -> list[Piece]:
        """Take out and return all changes before a place."""
        kept = self.since(ordinal)
        taken, self._pieces, self._reached = self._pieces, [], []
        for piece in kept:
            self.add(piece)
        return taken

    def since(self, ordinal: int) -> list[Piece]:
        """Take out and return all changes from a place on."""
        first = bisect_left(self._reached, ordinal)
        taken: list[Piece] = []
        cut = self._pieces[first:]
        del self._pieces[first:], self._reached[first:]
        for piece in cut:
            place = int(np.searchsorted(piece.ordinal, ordinal))
            self.add(piece if place == len(piece) else piece.slice(0, place))
            if place < len(piece):
                taken.append(piece.slice(place, len(piece)) if place else piece)
        return taken


def restamped(pieces: Sequence[Piece], transaction: int, ordinal: int) -> list[Piece]:
    """Move changes to another transaction and place, their order kept."""
    if not pieces:
        return []
    first = min(int(piece.ordinal[0]) for piece in pieces)
    return [
        replace(
            piece,
            transaction=np.full(len(piece), transaction, np.int64),
            ordinal=piece.ordinal - first + ordinal,
        )
        for piece in pieces
    ]


def table_changes(
    pieces: Sequence[Piece], transactions: IntArray, first_ordinal: int
) -> tuple[TableChanges, ...]:
    """Put the pieces of each table together; `transactions` are the batch's, in order."""
    groups: dict[TableId, list[list[Piece]]] = {}
    for piece in sorted(pieces, key=lambda piece: int(piece.ordinal[0])):
        group = groups.setdefault(piece.table, [])
        if not group or not group[-1][0].after.schema.equals(piece.after.schema):
            group.append([])  # the same table after a change of its definition
        group[-1].append(piece)
    return tuple(
        _joined(same, transactions, first_ordinal) for group in groups.values() for same in group
    )


def _joined(pieces: list[Piece], transactions: IntArray, first_ordinal: int) -> TableChanges:
    numbers = np.concatenate([piece.transaction for piece in pieces])
    index = np.searchsorted(transactions, numbers).astype(np.int32)
    ordinal = np.concatenate([piece.ordinal for piece in pieces]) - first_ordinal
    op = np.concatenate([piece.op for piece in pieces])
    return TableChanges(
        pieces[0].table,
        as_arrow(index, None, pa.int32()),
        as_arrow(ordinal, None, pa.int64()),
        as_arrow(op, None, pa.int8()),
        _one_batch([piece.before for piece in pieces]),
        _one_batch([piece.after for piece in pieces]),
        _facts([piece.facts for piece in pieces if piece.facts is not None]),
    )


def _facts(batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    return pa.concat_batches(batches) if batches else None


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if are_absent(batches):
        return absent_rows(batches[0].schema, sum(batch.num_rows for batch in batches))
    return pa.concat_batches(batches)
