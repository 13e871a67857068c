"""Batches of changes gathered row by row, for the slow decoder.

A batch ends on a transaction's boundary where it can. `flush` in the middle of a transaction hands
out what precedes it and keeps its rows; a transaction larger than the limit is handed out in parts
that have no end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columnar.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.columnar.events import BatchLimits
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import (
    AnyGtid,
    BinlogPosition,
    LogPosition,
    TransactionPoint,
)

Image = tuple[Any, ...] | None


@dataclass(slots=True)
class _Rows:
    """The changes of one table since the last batch."""

    schema: pa.Schema
    transaction: list[int] = field(default_factory=list)
    ordinal: list[int] = field(default_factory=list)
    op: list[int] = field(default_factory=list)
    before: list[Image] = field(default_factory=list)
    after: list[Image] = field(default_factory=list)


@dataclass(slots=True)
class OpenTransaction:
    """The transaction being read."""

    server_uuid: str
    gtid: AnyGtid | None
    start: BinlogPosition
    committed_us: int
    standalone: bool = False
    """It is one statement, without BEGIN and without an end of its own."""
    handed_out: bool = False
    """A part of it has left already."""
    index: int = -1
    """Its place among the batch's transactions; -1 before its first captured row."""

    def point(self, end: BinlogPosition) -> TransactionPoint:
        """Return its place in the log, if it ended here."""
        return TransactionPoint(self.server_uuid, self.gtid, self.start, end, self.committed_us)


class RowBatches:
    """Gathers rows and boundaries; hands out batches."""

    def __init__(self, start: LogPosition, limits: BatchLimits) -> None:
        self.position = start
        """The last boundary, with the GTIDs up to there."""
        self.open: OpenTransaction | None = None
        self._start = start
        self._limits = limits
        self._rows: dict[tuple[TableId, str], _Rows] = {}
        self._points: list[TransactionPoint] = []
        self._changes = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the limits end the batch here."""
        if self.open is not None:
            return self._bytes >= self._limits.bytes and self.open.index >= 0
        return self._changes >= self._limits.changes or self._bytes >= self._limits.bytes

    def count_bytes(self, count: int) -> None:
        """Add to the bytes of log behind the batch."""
        self._bytes += count

    def add(
        self, table: TableId, schema: pa.Schema, op: Op, images: list[tuple[Image, Image]]
    ) -> None:
        """Add rows of the open transaction."""
        opened = self.open
        if opened is None:
            raise ValueError("rows belong to an open transaction")
        if opened.index < 0:
            opened.index = len(self._points)
            self._points.append(opened.point(opened.start))
        rows = self._rows.setdefault((table, str(schema)), _Rows(schema))
        for before, after in images:
            rows.transaction.append(opened.index)
            rows.ordinal.append(self._changes)
            rows.op.append(int(op))
            rows.before.append(before)
            rows.after.append(after)
            self._changes += 1

    def commit(self, end: BinlogPosition) -> TransactionPoint:
        """End the open transaction."""
        opened = self._opened()
        point = opened.point(end)
        if opened.index >= 0:
            self._points[opened.index] = point
        self._end(point)
        return point

    def roll_back(self, end: BinlogPosition) -> None:
        """Drop the open transaction's rows."""
        opened = self._opened()
        if opened.index >= 0:
            for rows in self._rows.values():
                _split_off(rows, opened.index)
            del self._points[opened.index :]
        self._end(opened.point(end))

    def move_to(self, place: BinlogPosition, server_uuid: str) -> None:
        """Move the boundary over what changes no row, if no transaction is open."""
        known = self.position.binlog
        if self.open is None and (known is None or place > known):
            self.position = LogPosition(server_uuid, place, self.position.gtids)

    def take(self, place: BinlogPosition, barrier: Statement | None = None) -> ChangeBatch:
        """Hand out everything; in the middle of a transaction the batch has no end."""
        opened = self.open
        is_part = opened is not None and opened.index >= 0
        if is_part and opened is not None:
            self._points[opened.index] = opened.point(place)
            opened.index, opened.handed_out = -1, True
        batch = ChangeBatch(
            start=self._start,
            end=None if is_part else self.position,
            transactions=tuple(self._points),
            tables=tuple(_changes_of(table, rows) for (table, _), rows in self._rows.items()),
            barrier=barrier,
            bytes=self._bytes,
        )
        self._start = self.position
        self._rows, self._points, self._changes, self._bytes = {}, [], 0, 0
        return batch

    def flush(self, place: BinlogPosition | None) -> ChangeBatch | None:
        """Hand out what is complete; None if nothing moved."""
        if self.position == self._start or place is None:
            return None
        opened = self.open
        if opened is None or opened.index < 0:
            return self.take(place)
        kept = {key: _split_off(rows, opened.index) for key, rows in self._rows.items()}
        del self._points[opened.index :]
        self._rows = {key: rows for key, rows in self._rows.items() if rows.op}
        self.open = None
        batch = self.take(place)
        self.open, opened.index = opened, 0
        self._points = [opened.point(opened.start)]
        self._rows = {key: rows for key, rows in kept.items() if rows.op}
        self._changes = sum(len(rows.op) for rows in self._rows.values())
        first = min((rows.ordinal[0] for rows in self._rows.values()), default=0)
        for rows in self._rows.values():
            rows.ordinal = [ordinal - first for ordinal in rows.ordinal]
        return batch

    def _opened(self) -> OpenTransaction:
        if self.open is None:
            raise ValueError("no transaction is open")
        return self.open

    def _end(self, point: TransactionPoint) -> None:
        self.open = None
        self.position = self.position.after(point)


def _split_off(rows: _Rows, first: int) -> _Rows:
    """Cut the entries of transactions from `first` on off `rows`; return them renumbered."""
    cut = next((i for i, number in enumerate(rows.transaction) if number >= first), len(rows.op))
    ordinals = rows.ordinal[cut:]
    tail = _Rows(
        rows.schema,
        [number - first for number in rows.transaction[cut:]],
        ordinals,
        rows.op[cut:],
        rows.before[cut:],
        rows.after[cut:],
    )
    for column in (rows.transaction, rows.ordinal, rows.op, rows.before, rows.after):
        del column[cut:]
    return tail


def _changes_of(table: TableId, rows: _Rows) -> TableChanges:
    return TableChanges(
        table=table,
        transaction=pa.array(rows.transaction, pa.int32()),
        ordinal=pa.array(rows.ordinal, pa.int64()),
        op=pa.array(rows.op, pa.int8()),
        before=_images(rows.before, rows.schema),
        after=_images(rows.after, rows.schema),
    )


def _images(images: list[tuple[Any, ...] | None], schema: pa.Schema) -> pa.RecordBatch:
    width = len(schema)
    absent = (None,) * width
    columns = list(zip(*(image or absent for image in images), strict=True)) or [()] * width
    arrays = [pa.array(values, part.type) for values, part in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
