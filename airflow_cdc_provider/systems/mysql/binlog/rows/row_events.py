"""Row events of one table become changes: before and after columns, in log order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.changes import DEFINED_OTHERWISE, Op
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import (
    RESET,
    CdcError,
    CorruptLogError,
    IntegrityError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.absent_rows import absent_rows
from airflow_cdc_provider.systems.mysql.binlog.rows.cell_values import decode_cells
from airflow_cdc_provider.systems.mysql.binlog.rows.few_rows import FewRows
from airflow_cdc_provider.systems.mysql.binlog.rows.partial_updates import whole_updates
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import CellSide, Images, RowLayout
from airflow_cdc_provider.systems.mysql.binlog.rows.system_versions import current_changes
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import TableMap
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_schema

_OPS = np.zeros(256, np.int8)
_OPS[[EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS]] = Op.INSERT
_OPS[[EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS, EventType.PARTIAL_UPDATE_ROWS]] = Op.UPDATE
_OPS[[EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS]] = Op.DELETE

ROW_EVENTS = _OPS > 0
"""By event type: whether it carries rows."""


def ops_of(types: ByteArray) -> npt.NDArray[np.int8]:
    """Return the operation of each event by its type, 0 for one that carries no rows."""
    return _OPS[types]


@dataclass(slots=True)
class RowChanges:
    """Row changes decoded from some events: counts by event, operations, images."""

    counts: IntArray
    """Changes of each event."""
    op: npt.NDArray[np.int8]
    before: pa.RecordBatch
    after: pa.RecordBatch
    row: IntArray | None = None
    """Each one's number in its event, where some of the event's are left out."""


def date_policies(table_map: TableMap, zero_dates: ZeroDates) -> list[ZeroDates]:
    """Return each column's policy for zero dates: in a key they never become NULL.

    What is left out fails nobody.
    """
    in_key = ZeroDates.FAIL if zero_dates is ZeroDates.NULL else zero_dates
    left_out = ZeroDates.NULL if zero_dates is ZeroDates.FAIL else zero_dates
    keys = frozenset(table_map.primary_key)
    policies = [in_key if index in keys else zero_dates for index in range(len(table_map.wires))]
    for index, column in enumerate(table_map.columns):
        if column.ignored:
            policies[index] = left_out
    return policies


def incomplete_image(table: TableId) -> IntegrityError:
    """Return the error for rows of which the log does not have all columns."""
    return IntegrityError(
        f"the log holds incomplete row images of {table}",
        where=str(table),
        risk="columns that are not in the log would be lost",
        remedy=f"SET GLOBAL binlog_row_image = 'FULL', reconnect the writers, and {RESET}",
    )


class TableDecoder:
    """Decodes the row events of one table map to columns."""

    def __init__(self, table_map: TableMap, zero_dates: ZeroDates) -> None:
        self.map = table_map
        self.schema = arrow_schema(table_map.columns, zero_dates)
        if table_map.otherwise:
            self.schema = self.schema.with_metadata({DEFINED_OTHERWISE: table_map.otherwise})
        self.nulled: Counter[str] = Counter()
        """Zero dates that became NULL, by column."""
        self.few = FewRows(table_map, self.schema)
        self._layout = RowLayout(table_map.wires)
        self._policies = date_policies(table_map, zero_dates)

    def decode(self, frames: Frames, events: IntArray) -> RowChanges:
        """Decode the row events of these indexes to changes."""
        if (frames.types[events] == EventType.PARTIAL_UPDATE_ROWS).any():
            frames = whole_updates(frames, events, self.map)
            events = np.arange(len(frames))
        types = frames.types[events]
        starts = self._row_starts(frames, events, types)
        images = self._layout.walk(frames.data, starts, frames.ends[events])
        op = _OPS[types]
        counts = np.bincount(images.event, minlength=len(events))
        before, after, ops, changes = _sides(images, op, counts)
        decoded = RowChanges(changes, ops, *self._both(frames.data, images, before, after))
        if self.map.row_end is None or not len(ops):
            return decoded
        return _current_only(decoded, self.map.row_end, self.map.hidden)

    def _row_starts(self, frames: Frames, events: IntArray, types: ByteArray) -> IntArray:
        """Return where each event's first row image begins; incomplete images are refused."""
        data = frames.data
        offset = frames.starts[events] + HEADER_BYTES + 8
        second = types >= EventType.WRITE_ROWS  # version 2 has extra facts behind the table id
        if second.all():
            offset = offset + data.little(offset, 2)
        elif second.any():
            offset = offset + np.where(second, data.little(offset, 2), 0)
        columns = data.little(offset, 1)
        if bool((columns == 0xFC).all()):
            columns = data.little(offset + 1, 2)
            offset = offset + 2
        offset = offset + 1
        if not bool((columns == self._layout.columns).all()):
            raise CorruptLogError(
                f"rows of {self.map.table} have {int(columns.max())} columns, "
                f"their table map has {self._layout.columns}",
                risk="values would be taken for other columns",
                remedy=CHECK_LOG,
            )
        size = self._layout.bitmap_bytes
        self._require_whole(frames, offset)
        offset = offset + size
        updates = _OPS[types] == Op.UPDATE
        if updates.any():
            self._require_whole(frames, offset[updates])
            offset = offset + np.where(updates, size, 0)
        return offset

    def _require_whole(self, frames: Frames, offsets: IntArray) -> None:
        """Refuse row images that do not have all columns."""
        bitmaps = frames.data.blocks(offsets, self._layout.bitmap_bytes)
        spare = -self._layout.columns % 8
        last = 0xFF >> spare
        whole = (bitmaps[:, :-1] == 0xFF).all() and (bitmaps[:, -1] & last == last).all()
        if not whole:
            raise incomplete_image(self.map.table)

    def _both(
        self, data: ByteViews, images: Images, before: IntArray, after: IntArray
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Decode the before and after images, in one go if there are both."""
        count = len(before)
        if not (before >= 0).any():
            return absent_rows(self.schema, count), self._rows(CellSide(data, images, after))
        if not (after >= 0).any():
            return self._rows(CellSide(data, images, before)), absent_rows(self.schema, count)
        both = self._rows(CellSide(data, images, np.concatenate([before, after])))
        return both.slice(0, count), both.slice(count)

    def _rows(self, side: CellSide) -> pa.RecordBatch:
        """Decode one side's row images, column by column."""
        arrays = []
        wires = self.map.wires
        for cells, wire, column, wanted, policy in zip(
            side.columns(), wires, self.map.columns, self.schema.types, self._policies, strict=True
        ):
            try:
                decoded = decode_cells(cells, wire, column.type, wanted, policy)
            except CdcError as error:
                raise error.located(f"table {self.map.table}, column {column.name}") from error
            if decoded.nulled and not column.ignored:
                self.nulled[column.name] += decoded.nulled
            arrays.append(decoded.array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _sides(
    images: Images, op: npt.NDArray[np.int8], counts: IntArray
) -> tuple[IntArray, IntArray, npt.NDArray[np.int8], IntArray]:
    """Return the before and after image of each change (-1 for none), its operation and counts."""
    every = np.arange(len(images))
    updates = op == Op.UPDATE
    if (counts[updates] % 2).any():
        raise CorruptLogError(
            "an update event has a before image without an after image",
            risk="rows would be paired wrong",
            remedy=CHECK_LOG,
        )
    if not updates.any():
        ops = op[images.event]
        before = np.where(ops == Op.DELETE, every, -1)
        return before, np.where(ops == Op.INSERT, every, -1), ops, counts
    if updates.all():
        before = every[0::2]
        return before, before + 1, np.full(len(before), Op.UPDATE, np.int8), counts // 2
    first = np.cumsum(counts) - counts
    odd: BoolArray = ((every - first[images.event]) & 1).astype(np.bool_)
    leading = every[~(odd & updates[images.event])]
    ops = op[images.event[leading]]
    before = np.where(ops == Op.INSERT, -1, leading)
    after = np.where(ops == Op.INSERT, leading, np.where(ops == Op.UPDATE, leading + 1, -1))
    return before, after, ops, np.where(updates, counts // 2, counts)


def _current_only(changes: RowChanges, row_end: int, hidden: int) -> RowChanges:
    """Drop the changes of a system-versioned table's past rows."""
    kept, kinds, after = current_changes(
        changes.op.astype(np.int64), changes.before, changes.after, row_end
    )
    event = np.repeat(np.arange(len(changes.counts)), changes.counts)
    rows = numbers_of(np.flatnonzero(kept))
    number = np.arange(len(event)) - np.repeat(
        np.cumsum(changes.counts) - changes.counts, changes.counts
    )
    shown = changes.before.schema.names[: changes.before.num_columns - hidden]
    return RowChanges(
        np.bincount(event[kept], minlength=len(changes.counts)),
        kinds[kept].astype(np.int8),
        changes.before.select(shown).take(rows),
        after.select(shown).take(rows),
        number[kept],
    )
