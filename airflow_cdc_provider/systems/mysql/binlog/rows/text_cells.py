"""Texts, bytes, ENUM, SET and the fixed-width types that read as text, a column at a time.

Cells are gathered by Arrow's own `take`: the buffer of the log is seen as one long binary array
whose offsets are start and end of each cell in turn, and every second element of it is a cell.
"""

from __future__ import annotations

import ipaddress

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    binaries_of,
    texts_of,
    validity_of,
)
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.errors import CorruptLogError, UnknownTypeError
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import json_text
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
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
    if bool((present > width).any()):
        raise CorruptLogError(
            f"a value of {width} bytes at most has {int(present.max())}",
            risk="it would be cut",
            remedy=CHECK_LOG,
        )
    if bool((present == width).all()):
        return gathered(cells, lengths)
    steps = np.arange(width)
    inside = steps < lengths[:, None]
    offsets = np.where(inside, cells.offsets[:, None] + steps, 0)
    blocks = np.where(inside, cells.data.u8[offsets], 0).astype(np.uint8)
    ends = np.arange(len(lengths) + 1, dtype=np.int32) * width
    validity, nulls = validity_of(cells.nulls)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(blocks)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)


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
    raw = _padded(cells, lengths, 16).to_pylist()
    return texts_of([None if cell is None else _uuid_text(cell) for cell in raw])


def _uuid_text(stored: bytes) -> str:
    """Return a UUID's 16 bytes as text."""
    digits = stored.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _inet4(cells: Cells, lengths: IntArray) -> pa.Array:
    """Return MariaDB's INET4 cells as texts."""
    raw = _padded(cells, lengths, 4).to_pylist()
    texts = [None if cell is None else str(ipaddress.IPv4Address(cell)) for cell in raw]
    return texts_of(texts)


def _inet6(cells: Cells, lengths: IntArray) -> pa.Array:
    """Return MariaDB's INET6 cells as texts."""
    raw = _padded(cells, lengths, 16).to_pylist()
    return texts_of([None if cell is None else _inet6_text(cell) for cell in raw])


def _inet6_text(stored: bytes) -> str:
    """Return an IPv6 address as MariaDB prints it: `::` for the first longest run of zeros."""
    mapped = stored[:12] == bytes(10) + b"\xff\xff"
    compatible = stored[:12] == bytes(12) and any(stored[12:14])
    if mapped or compatible:
        prefix = "::ffff:" if mapped else "::"
        return prefix + str(ipaddress.IPv4Address(stored[12:]))
    groups = [stored[offset : offset + 2].hex().lstrip("0") or "0" for offset in range(0, 16, 2)]
    best, length = 0, 0
    for first in range(8):
        run = next((n for n in range(8 - first) if groups[first + n] != "0"), 8 - first)
        if run > length:
            best, length = first, run
    if not length:
        return ":".join(groups)
    return ":".join(groups[:best]) + "::" + ":".join(groups[best + length :])


_FROM_BYTES = {"uuid": _uuids, "inet4": _inet4, "inet6": _inet6}
