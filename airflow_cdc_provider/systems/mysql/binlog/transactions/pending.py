"""Decoded changes that wait for their batch to be full.

Changes carry two numbers that only grow: the transaction they belong to and their place among all
changes. So a batch's end, a rollback and a prepared transaction are all one thing: a cut at a
place, and a slice of Arrow arrays, which copies nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow
from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.few_changes import FewChange, FewTable, FewTables, rows_of
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.rows.absent_rows import absent_rows, are_absent
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder

_FEW = 64
"""More changes than these are columns from the start."""
_CELL_BYTES = 48
"""What a plain value takes, about."""


@dataclass(slots=True)
class Piece:
    """Some changes of one table as columns, in log order."""

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
        """Return the memory that the changes take, in bytes."""
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


@dataclass(slots=True)
class FewPiece:
    """A few changes of one table in one transaction, as plain values."""

    decoder: TableDecoder
    transaction: int
    first_ordinal: int
    changes: Sequence[FewChange]

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def table(self) -> TableId:
        """Return the table whose changes these are."""
        return self.decoder.map.table

    @property
    def ordinal(self) -> range:
        """Return the ordinals of the changes, their places among all changes of the log."""
        return range(self.first_ordinal, self.first_ordinal + len(self.changes))

    @property
    def nbytes(self) -> int:
        """Return about how much memory the changes take, in bytes."""
        return sum(_CELL_BYTES * len(each.before or each.after or ()) for each in self.changes)

    def slice(self, first: int, last: int) -> FewPiece:
        """Return the changes from `first` up to, not including, `last`."""
        ordinal = self.first_ordinal + first
        return FewPiece(self.decoder, self.transaction, ordinal, self.changes[first:last])

    def columns(self) -> Piece:
        """Return the changes in columnar form: arrays instead of an object a change."""
        return few_columns([self])


AnyPiece = Piece | FewPiece


def few_columns(pieces: Sequence[FewPiece]) -> Piece:
    """Return pieces of a few changes of one table, joined as columns."""
    decoder = pieces[0].decoder
    changes = [change for piece in pieces for change in piece.changes]
    return Piece(
        decoder.map.table,
        np.repeat([piece.transaction for piece in pieces], [len(piece) for piece in pieces]),
        np.array([place for piece in pieces for place in piece.ordinal], np.int64),
        np.array([change.op for change in changes], np.int8),
        rows_of([change.before for change in changes], decoder.schema),
        rows_of([change.after for change in changes], decoder.schema),
    )


class PendingChanges:
    """Decoded changes of a batch in log order, which can be cut at an ordinal."""

    def __init__(self) -> None:
        self._pieces: list[AnyPiece] = []
        self._reached: list[int] = []
        """The last place in each piece and all before it: a cut looks at few of many pieces."""

    def add(self, piece: AnyPiece) -> None:
        """Add a piece of changes."""
        if not len(piece):
            return
        last = int(piece.ordinal[-1])
        self._pieces.append(piece)
        self._reached.append(max(last, self._reached[-1]) if self._reached else last)

    def nbytes_since(self, ordinal: int) -> int:
        """Return the memory that the changes from an ordinal on take, in bytes."""
        return sum(piece.nbytes for piece in self._pieces[bisect_left(self._reached, ordinal) :])

    def before(self, ordinal: int) -> list[AnyPiece]:
        """Remove and return all changes before an ordinal."""
        if not self._reached or self._reached[-1] < ordinal:
            taken, self._pieces, self._reached = self._pieces, [], []
            return taken
        kept = self.since(ordinal)
        taken, self._pieces, self._reached = self._pieces, [], []
        for piece in kept:
            self.add(piece)
        return taken

    def since(self, ordinal: int) -> list[AnyPiece]:
        """Remove and return all changes from an ordinal on."""
        first = bisect_left(self._reached, ordinal)
        taken: list[AnyPiece] = []
        cut = self._pieces[first:]
        del self._pieces[first:], self._reached[first:]
        for piece in cut:
            place = int(np.searchsorted(piece.ordinal, ordinal))
            self.add(piece if place == len(piece) else piece.slice(0, place))
            if place < len(piece):
                taken.append(piece.slice(place, len(piece)) if place else piece)
        return taken


def restamped(pieces: Sequence[AnyPiece], transaction: int, ordinal: int) -> list[Piece]:
    """Return changes moved to another transaction and ordinal, in the same order."""
    if not pieces:
        return []
    first = min(int(piece.ordinal[0]) for piece in pieces)
    return [
        replace(
            piece.columns() if isinstance(piece, FewPiece) else piece,
            transaction=np.full(len(piece), transaction, np.int64),
            ordinal=np.asarray(piece.ordinal) - first + ordinal,
        )
        for piece in pieces
    ]


def table_changes(
    pieces: Sequence[AnyPiece], transactions: IntArray, first_ordinal: int
) -> Sequence[TableChanges]:
    """Join the pieces of each table; `transactions` are the batch's numbers, in order."""
    few = [piece for piece in pieces if isinstance(piece, FewPiece)]
    if not few or len(few) < len(pieces) or sum(map(len, few)) > _FEW:
        return _as_columns(pieces, transactions, first_ordinal)
    few.sort(key=lambda piece: piece.first_ordinal)
    index = {number: place for place, number in enumerate(transactions.tolist())}
    tables: dict[TableId, tuple[TableDecoder, list[FewChange], list[int]]] = {}
    for piece in few:
        decoder, changes, of = tables.setdefault(piece.table, (piece.decoder, [], []))
        if decoder is not piece.decoder:  # after a change of its definition
            return _as_columns(few, transactions, first_ordinal)
        changes.extend(piece.changes)
        of.extend([index[piece.transaction]] * len(piece))
    return FewTables(
        tuple(FewTable(by.map.table, by.schema, some, of) for by, some, of in tables.values()),
        lambda: _as_columns(few, transactions, first_ordinal),
    )


def _as_columns(
    pieces: Sequence[AnyPiece], transactions: IntArray, first_ordinal: int
) -> tuple[TableChanges, ...]:
    """Join the pieces of each table as columns, apart where its definition changed."""
    groups: dict[TableId, list[list[Piece]]] = {}
    for piece in without_few(sorted(pieces, key=lambda piece: int(piece.ordinal[0]))):
        group = groups.setdefault(piece.table, [])
        if not group or not group[-1][0].after.schema.equals(piece.after.schema):
            group.append([])  # the same table after a change of its definition
        group[-1].append(piece)
    return tuple(
        _joined(same, transactions, first_ordinal) for group in groups.values() for same in group
    )


def without_few(pieces: Iterable[AnyPiece]) -> Iterator[Piece]:
    """Yield pieces as columns; few changes of a table that follow each other are joined."""
    waiting: dict[TableId, list[FewPiece]] = {}
    for piece in pieces:
        others = waiting.get(piece.table, ())
        if not isinstance(piece, FewPiece) or (others and others[0].decoder is not piece.decoder):
            yield from map(few_columns, waiting.values())
            waiting = {}
        if isinstance(piece, FewPiece):
            waiting.setdefault(piece.table, []).append(piece)
        else:
            yield piece
    yield from map(few_columns, waiting.values())


def _joined(pieces: list[Piece], transactions: IntArray, first_ordinal: int) -> TableChanges:
    """Join one table's pieces, with ordinals and transactions counted within the batch."""
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
    """Join the pieces' facts, None if there are none."""
    return pa.concat_batches(batches) if batches else None


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join record batches; all-NULL ones are made anew without a copy."""
    if len(batches) == 1:
        return batches[0]
    if are_absent(batches):
        return absent_rows(batches[0].schema, sum(batch.num_rows for batch in batches))
    return pa.concat_batches(batches)
