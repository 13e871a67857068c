"""Texts, bytes, ENUM, SET and the fixed-width types that read as text, a column at a time.

Cells are gathered by Arrow's own `take`: the buffer of the log is seen as one long binary array
whose offsets are start and end of each cell in turn, and every second element of it is a cell.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    binaries_of,
    texts_of,
    validity_of,
)
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.core.errors import CorruptLogError, UnknownTypeError
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import json_text
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.address_cells import (
    inet4_texts,
    inet6_texts,
    uuid_texts,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.compressed_cells import inflated
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire
from airflow_cdc_provider.systems.mysql.dialect.charsets import to_utf8


def gathered(cells: Cells, lengths: IntArray) -> pa.Array:
    """Copy the cells' bytes into a binary array."""
    count = len(cells.offsets)
    if not count:
        return binaries_of([])
    bounds = np.empty(2 * count + 2, np.int32)
    bounds[0], bounds[-1] = 0, len(cells.data)
    bounds[1:-1:2] = cells.offsets
    bounds[2:-1:2] = cells.offsets + lengths
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(cells.data.buffer)]
    everything = pa.Array.from_buffers(pa.binary(), 2 * count + 1, buffers, 0)
    wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
    return everything.take(as_arrow(wanted, cells.nulls, pa.int32()))


def variable(cells: Cells, wire: Wire, column: ColumnType) -> pa.Array:
    """Decode cells with a length: texts, bytes, JSON, GEOMETRY, VECTOR, MariaDB's UUID and INET."""
    if cells.lengths is None:
        raise UnknownTypeError(f"column type {column.name!r} has no length in the log")
    if column.name in _FROM_BYTES:
        return _FROM_BYTES[column.name](cells, cells.lengths)
    if column.name == "binary":
        return _padded(cells, cells.lengths, wire.length)
    raw = gathered(cells, cells.lengths)
    if wire.compressed:
        raw = inflated(raw)
    if column.name == "json":
        return _json(raw)
    if column.charset is None or column.charset == "binary":
        return raw
    return to_utf8(raw, column.charset)


def _json(raw: pa.Array) -> pa.Array:
    """Return binary JSON values as texts."""
    return texts_of([None if cell is None else json_text(cell) for cell in raw.to_pylist()])


def _padded(cells: Cells, lengths: IntArray, width: int) -> pa.Array:
    """Return BINARY(n) cells with the zeros at their ends, which the log leaves out."""
    present = lengths if cells.nulls is None else lengths[~cells.nulls]
    _require_width(present, width)
    if bool((present == width).all()):
        return gathered(cells, lengths)
    blocks = _bytes_of(cells, lengths, width)
    ends = np.arange(len(lengths) + 1, dtype=np.int32) * width
    validity, nulls = validity_of(cells.nulls)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(blocks)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)


def _bytes_of(cells: Cells, lengths: IntArray, width: int) -> ByteArray:
    """Return cells' bytes [rows, width] with the zeros at their ends; of NULL any bytes."""
    if cells.nulls is not None:
        lengths = np.where(cells.nulls, 0, lengths)
    _require_width(lengths, width)
    steps = np.arange(width)
    inside = steps < lengths[:, None]
    offsets = np.where(inside, cells.offsets[:, None] + steps, 0)
    return np.where(inside, cells.data.u8[offsets], 0).astype(np.uint8)


def _require_width(lengths: IntArray, width: int) -> None:
    """Raise an error if a cell is longer than its column."""
    if bool((lengths > width).any()):
        raise CorruptLogError(
            f"a value of {width} bytes at most has {int(lengths.max())}",
            risk="it would be cut",
            remedy=CHECK_LOG,
        )


def enums(cells: Cells, wire: Wire, column: ColumnType) -> pa.Array:
    """Decode ENUM cells by the table map's members; index 0 is the value that is no member."""
    index = cells.data.little(cells.offsets, wire.width)
    if cells.nulls is not None:
        index = np.where(cells.nulls, 0, index)
    if len(index) and int(index.max()) > len(column.members):
        raise _no_member(f"ENUM index {int(index.max())} of {len(column.members)} members")
    validity, nulls = validity_of(cells.nulls)
    buffers = [validity, pa.py_buffer(index.astype(np.int32))]
    chosen = pa.Array.from_buffers(pa.int32(), len(index), buffers, nulls)
    return texts_of([column.no_member, *column.members]).take(chosen)


def _no_member(what: str) -> CorruptLogError:
    """Return the error for an ENUM or SET value beyond its members."""
    return CorruptLogError(
        what,
        risk="the value would be another one",
        remedy=CHECK_LOG,
    )


def sets(cells: Cells, wire: Wire, column: ColumnType) -> pa.Array:
    """Decode SET cells to their members' names, in definition order."""
    masks = _mask(cells, wire.width)
    if len(column.members) < 64 and bool((masks >> len(column.members)).any()):
        raise _no_member(f"a SET has more bits than its {len(column.members)} members")
    distinct, inverse = np.unique(masks, return_inverse=True)
    texts = [
        ",".join(member for bit, member in enumerate(column.members) if mask >> bit & 1)
        for mask in distinct.view(np.uint64).tolist()
    ]
    validity, nulls = validity_of(cells.nulls)
    buffers = [validity, pa.py_buffer(inverse.astype(np.int32))]
    chosen = pa.Array.from_buffers(pa.int32(), len(masks), buffers, nulls)
    return texts_of(texts).take(chosen)


def _mask(cells: Cells, width: int) -> IntArray:
    """Return the bit masks of SET cells, 0 for NULL."""
    masks = cells.data.little(cells.offsets, width)
    return masks if cells.nulls is None else np.where(cells.nulls, 0, masks)


def _uuids(cells: Cells, lengths: IntArray) -> pa.Array:
    """Return MariaDB's UUID cells as texts."""
    return uuid_texts(_bytes_of(cells, lengths, 16), cells.nulls)


def _inet4(cells: Cells, lengths: IntArray) -> pa.Array:
    """Return MariaDB's INET4 cells as texts."""
    return inet4_texts(_bytes_of(cells, lengths, 4), cells.nulls)


def _inet6(cells: Cells, lengths: IntArray) -> pa.Array:
    """Return MariaDB's INET6 cells as texts."""
    return inet6_texts(_bytes_of(cells, lengths, 16), cells.nulls)


_FROM_BYTES = {"uuid": _uuids, "inet4": _inet4, "inet6": _inet6}
