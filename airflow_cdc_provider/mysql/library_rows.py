"""The fall-back of the column decoder: rows of single tables, walked by mysql-replication.

Tables with columns in the temporal formats of before MySQL 5.6 come here; a log has them where
old tables were never rebuilt, and on MariaDB with `mysql56_temporal_format=OFF`. The library takes
the events apart into rows and their NULLs, and hands each cell's bytes out. Cells of the old
formats are read here, because the library is not right about negative times and zero dates; the
bytes of all other columns become values by the column decoder's own functions, so that a table has
the same values whichever way its rows came.

What neither reads stays refused by name: fractions in the old formats, which the log does not tell
of, and MariaDB's system-versioned tables with such columns.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pymysqlreplication.column import Column as LibraryColumn
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from pymysqlreplication.table import Table as LibraryTable

from airflow_cdc_provider.columnar.binlog.cell_values import decode_cells
from airflow_cdc_provider.columnar.binlog.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.columnar.binlog.octets import Octets
from airflow_cdc_provider.columnar.binlog.partial_updates import whole_updates
from airflow_cdc_provider.columnar.binlog.row_events import (
    RowChanges,
    date_policies,
    incomplete_image,
)
from airflow_cdc_provider.columnar.binlog.row_walk import Cells
from airflow_cdc_provider.columnar.changes import Op
from airflow_cdc_provider.columnar.value_model import ZeroDates, arrow_schema
from airflow_cdc_provider.core.errors import (
    CdcError,
    CorruptLogError,
    UnknownTypeError,
    ValueRefusedError,
)
from airflow_cdc_provider.mysql.library_events import Dialect, library_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cdc_provider.columnar.binlog.frames import Frames
    from airflow_cdc_provider.columnar.binlog.octets import Ints
    from airflow_cdc_provider.columnar.binlog.table_map import TableMap
    from airflow_cdc_provider.columnar.binlog.wire_types import Wire
    from airflow_cdc_provider.core.table_schema import Column

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLE_ID = 1
"""The library's number for the one table that it is shown at a time."""
_DIALECT = Dialect("mysql")
Row = tuple[bytes | None, ...] | None


class _RawCells:
    """Mixed into the library's row events: a cell's bytes instead of a value."""

    packet: Any
    wires: Sequence[Wire]

    def _RowsEvent__read_values_name(  # noqa: N802 - the library's name and arguments
        self,
        _column: Any,
        null_bitmap: bytes,
        null_bitmap_index: int,
        _is_partial: bool,  # noqa: FBT001
        _cols_bitmap: bytes,
        _unsigned: bool,  # noqa: FBT001
        number: int,
    ) -> bytes | None:
        if null_bitmap[null_bitmap_index // 8] & (1 << (null_bitmap_index % 8)):
            return None
        wire = self.wires[number]
        size = wire.width
        if wire.prefix:
            size = int.from_bytes(self.packet.read(wire.prefix), "little")
        return bytes(self.packet.read(size)) if size else b""


class _Inserted(_RawCells, WriteRowsEvent):  # type: ignore[misc]
    """Inserted rows."""


class _Updated(_RawCells, UpdateRowsEvent):  # type: ignore[misc]
    """Updated rows."""


class _Deleted(_RawCells, DeleteRowsEvent):  # type: ignore[misc]
    """Deleted rows."""


_KINDS = {
    EventType.WRITE_ROWS_V1: (Op.INSERT, _Inserted),
    EventType.WRITE_ROWS: (Op.INSERT, _Inserted),
    EventType.UPDATE_ROWS_V1: (Op.UPDATE, _Updated),
    EventType.UPDATE_ROWS: (Op.UPDATE, _Updated),
    EventType.DELETE_ROWS_V1: (Op.DELETE, _Deleted),
    EventType.DELETE_ROWS: (Op.DELETE, _Deleted),
}


class LibraryRows:
    """A `RowDecoder` on mysql-replication's row events; the class is the `RowFallback`."""

    def __init__(self, table_map: TableMap, zero_dates: ZeroDates) -> None:
        if table_map.row_end is not None:
            raise UnknownTypeError(
                "a system-versioned table has columns in the format of before MySQL 5.6",
                str(table_map.table),
                "rows of its past could be taken for current ones",
                "rebuild it with mysql56_temporal_format=ON, or leave it out",
            )
        log.warning(
            "table is read row by row: table=%s cause=columns in the format of before MySQL 5.6 "
            "remedy=ALTER TABLE ... FORCE",
            table_map.table,
        )
        self.map = table_map
        self.nulled: Counter[str] = Counter()
        self._schema = arrow_schema(table_map.columns, zero_dates)
        self._policies = date_policies(table_map, zero_dates)
        columns = [
            LibraryColumn(type=0, name=column.name, unsigned=False, is_primary=False)
            for column in table_map.columns
        ]
        table = table_map.table
        self._tables = {_TABLE_ID: LibraryTable(_TABLE_ID, table.database, table.table, columns)}

    def decode(self, frames: Frames, places: Ints) -> RowChanges:
        """Decode the row events at these places."""
        if (frames.types[places] == EventType.PARTIAL_UPDATE_ROWS).any():
            frames = whole_updates(frames, places, self.map)
            places = np.arange(len(frames))
        counts, ops = [], []
        before: list[Row] = []
        after: list[Row] = []
        for place in places.tolist():
            op, kind = _KINDS[EventType(int(frames.types[place]))]
            event = frames.octets.text_at(int(frames.starts[place]), int(frames.ends[place]))
            rows = self._rows(kind, event)
            counts.append(len(rows))
            ops.extend([int(op)] * len(rows))
            for row in rows:
                before.append(_image(row, "before_values", "values", there=op is not Op.INSERT))
                after.append(_image(row, "after_values", "values", there=op is not Op.DELETE))
        return RowChanges(
            np.array(counts, np.int64),
            np.array(ops, np.int8),
            self._record_batch(before),
            self._record_batch(after),
        )

    def _rows(self, kind: type[Any], event: bytes) -> list[dict[str, dict[str, bytes | None]]]:
        """Take one event apart; the library sees the one table, under a number of its own."""
        behind_id = HEADER_BYTES + 6
        named = event[:HEADER_BYTES] + _TABLE_ID.to_bytes(6, "little") + event[behind_id:]
        found, size = library_event(kind, named, self._tables, _DIALECT)
        found.wires = self.map.wires
        self._require_whole(found)
        try:
            rows: list[dict[str, dict[str, bytes | None]]] = found.rows
        except (AssertionError, IndexError) as error:
            raise self._overrun() from error
        if found.packet.read_bytes != size:
            raise self._overrun()
        return rows

    def _require_whole(self, found: Any) -> None:
        count = len(self.map.wires)
        if found.number_of_columns != count:
            raise self._overrun()
        present = found.columns_present_bitmap
        after = getattr(found, "columns_present_bitmap2", present)
        full = (1 << count) - 1
        if any(int.from_bytes(bits, "little") & full != full for bits in (present, after)):
            raise incomplete_image(self.map.table)

    def _overrun(self) -> CorruptLogError:
        return CorruptLogError(
            f"rows of {self.map.table} do not fill their event",
            str(self.map.table),
            "the columns were taken for others than they are; nothing was handed on",
            "rebuild the table with a current type (ALTER TABLE ... FORCE), or leave it out",
        )

    def _record_batch(self, rows: list[Row]) -> pa.RecordBatch:
        arrays = []
        for place, column in enumerate(self.map.columns):
            cells = [None if row is None else row[place] for row in rows]
            try:
                arrays.append(self._array(place, column, cells))
            except CdcError as error:
                where = f"table {self.map.table}, column {column.name}"
                raise type(error)(error.what, where, error.risk, error.remedy) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, place: int, column: Column, cells: list[bytes | None]) -> pa.Array:
        wire, wanted, policy = (
            self.map.wires[place],
            self._schema.types[place],
            self._policies[place],
        )
        if not wire.is_rare:
            decoded = decode_cells(_laid_out(cells, wire), wire, column.type, wanted, policy)
            return self._counted(column, decoded.array, decoded.nulled)
        read = _READERS[wire.kind]
        values = [None if cell is None else read(cell, policy) for cell in cells]
        nulled = values.count(None) - cells.count(None)
        return self._counted(column, pa.array(values, wanted), nulled)

    def _counted(self, column: Column, array: pa.Array, nulled: int) -> pa.Array:
        if nulled:
            self.nulled[column.name] += nulled
        return array


def _image(row: dict[str, Any], update: str, single: str, *, there: bool) -> Row:
    if not there:
        return None
    return tuple((row[update] if update in row else row[single]).values())


def _laid_out(cells: list[bytes | None], wire: Wire) -> Cells:
    """Lay cells one behind the other, as the column decoder finds them in an event.

    A cell that is not there reads as the first bytes of the buffer, whatever they are.
    """
    buffer = bytes(max(wire.width, 1)) + b"".join(cell for cell in cells if cell)
    lengths = np.array([0 if cell is None else len(cell) for cell in cells], np.int64)
    places = max(wire.width, 1) + np.cumsum(lengths) - lengths
    missing = np.array([cell is None for cell in cells], np.bool_)
    return Cells(
        Octets(buffer),
        np.where(missing, 0, places),
        lengths if wire.prefix else None,
        missing if missing.any() else None,
    )


def _read_datetime(cell: bytes, policy: ZeroDates) -> datetime | str | None:
    """Read DATETIME: the digits of year, month, day, hour, minute and second as one number."""
    day, clock = divmod(int.from_bytes(cell, "little"), 1_000_000)
    text = f"{day // 10_000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"
    shown = f"{text} {clock // 10_000:02d}:{clock // 100 % 100:02d}:{clock % 100:02d}"
    try:
        date(day // 10_000, day // 100 % 100, day % 100)
    except ValueError:
        return _replaced(text, shown, policy)
    return shown if policy is ZeroDates.TEXT else datetime.fromisoformat(shown)


def _read_timestamp(cell: bytes, policy: ZeroDates) -> datetime | str | None:
    """Read TIMESTAMP: seconds since 1970, of which 0 can only be the zero date."""
    seconds = int.from_bytes(cell, "little")
    if not seconds:
        zero = "0000-00-00 00:00:00"
        return _replaced(zero, zero, policy)
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S") if policy is ZeroDates.TEXT else moment


def _read_time(cell: bytes, _policy: ZeroDates) -> timedelta:
    """Read TIME: the digits of hours, minutes and seconds as one signed number."""
    stored = int.from_bytes(cell, "little", signed=True)
    size = abs(stored)
    length = timedelta(hours=size // 10_000, minutes=size // 100 % 100, seconds=size % 100)
    return -length if stored < 0 else length


def _replaced(text: str, shown: str, policy: ZeroDates) -> str | None:
    """Return what a date that is no day becomes."""
    if policy is ZeroDates.TEXT:
        return shown
    if policy is ZeroDates.NULL:
        return None
    raise ValueRefusedError(
        f"{text} is no day of the calendar",
        risk="the sink has no such value",
        remedy="set source.zero_dates to null or text, or correct the row",
    )


_READERS = {
    "old datetime": _read_datetime,
    "old timestamp": _read_timestamp,
    "old time": _read_time,
}
