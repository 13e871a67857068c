"""Integers, floats, packed decimals and bits, a whole column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import CorruptLogError
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WORD_BYTES = 8
_INT64_DIGITS = 18
_LIMB_BITS = np.uint64(32)
_LIMB = np.uint64(0xFFFFFFFF)


def integers(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode cells of TINYINT to BIGINT."""
    unsigned = pa.types.is_unsigned_integer(wanted)
    if wire.width == 3:
        values = cells.data.little(cells.offsets, 3)
        if not unsigned:
            values = values - ((values & 0x800000) << 1)
        return as_arrow(values.astype(np.int32), cells.nulls, wanted)
    kind = f"<{'u' if unsigned else 'i'}{wire.width}"
    return as_arrow(cells.data.typed(cells.offsets, kind), cells.nulls, wanted)


def reals(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode cells of FLOAT and DOUBLE, bit by bit."""
    return as_arrow(cells.data.typed(cells.offsets, f"<f{wire.width}"), cells.nulls, wanted)


def bits(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode cells of BIT(n): big-endian bytes."""
    values = cells.data.big(cells.offsets, wire.width)
    return as_arrow(values.view(np.uint64), cells.nulls, wanted)


def years(cells: Cells, wanted: pa.DataType) -> pa.Array:
    """Decode cells of YEAR: years since 1900, and 0 for 0000."""
    stored = cells.data.little(cells.offsets, 1)
    values = np.where(stored == 0, 0, stored + 1900).astype(np.uint16)
    return as_arrow(values, cells.nulls, wanted)


def decimals(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode cells of packed decimals: groups of nine digits, big-endian, sign in the top bit."""
    if wire.width < _WORD_BYTES:
        return _narrow(cells, wire, wanted)
    groups, inverted = _groups(cells, wire)
    _require_digits(groups, cells.nulls)
    if wire.length > _INT64_DIGITS:
        return _wide(groups, inverted == 0, cells.nulls, wanted)
    return _of_int64(_signed(_joined(groups), inverted), cells.nulls, wanted)


def _narrow(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode decimals of up to seven bytes, each as one number cut into groups by shifts."""
    left = 8 * wire.width
    packed = cells.data.big(cells.offsets, wire.width)
    inverted = (packed >> (left - 1)) - 1
    packed ^= inverted
    packed &= (1 << (left - 1)) - 1
    groups: list[tuple[int, IntArray]] = []
    for digits, width in _group_widths(wire):
        left -= 8 * width
        groups.append((digits, packed >> left & ((1 << (8 * width)) - 1)))
    _require_digits(groups, cells.nulls)
    return _of_int64(_signed(_joined(groups), inverted), cells.nulls, wanted)


def _require_digits(groups: list[tuple[int, IntArray]], nulls: BoolArray | None) -> None:
    """Refuse a decimal's group of digits that is too large for its number of digits."""
    for digits, group in groups:
        limit = 10**digits
        if not len(group) or int(group.max()) < limit:
            continue
        if nulls is None or bool(((group >= limit) & ~nulls).any()):
            raise CorruptLogError(
                f"{digits} digits of a DECIMAL hold a larger number",
                risk="the value would be another one",
                remedy=CHECK_LOG,
            )


def _joined(groups: list[tuple[int, IntArray]]) -> IntArray:
    """Join groups of decimal digits, the highest first, into numbers."""
    value = groups[0][1]
    for digits, group in groups[1:]:
        value *= 10**digits
        value += group
    return value


def _signed(size: IntArray, inverted: IntArray) -> IntArray:
    """Negate the numbers where `inverted` is -1; elsewhere it is 0."""
    size ^= inverted
    size -= inverted
    return size


def _of_int64(value: IntArray, nulls: BoolArray | None, wanted: pa.DataType) -> pa.Array:
    """Return 64-bit integers as a decimal array."""
    limbs = np.empty((len(value), wanted.bit_width // 64), np.int64)
    limbs[:, 0] = value
    limbs[:, 1:] = (value >> 63)[:, None]
    return as_arrow(limbs, nulls, wanted)


def _group_widths(wire: Wire) -> list[tuple[int, int]]:
    """Return the digits and bytes of each group of a packed decimal."""
    whole, scale = wire.length - wire.scale, wire.scale
    groups = (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9)
    return [(digits, _DIGIT_BYTES[digits]) for digits in groups if digits]


def _groups(cells: Cells, wire: Wire) -> tuple[list[tuple[int, IntArray]], IntArray]:
    """Read each group of digits; also return -1 for negative numbers, 0 for others."""
    found: list[tuple[int, IntArray]] = []
    inverted = np.zeros(0, np.int64)
    offset = cells.offsets
    for digits, width in _group_widths(wire):
        group = cells.data.big(offset, width)
        if not found:
            inverted = (group >> (8 * width - 1)) - 1
            group ^= 1 << (8 * width - 1)
        group ^= inverted & ((1 << (8 * width)) - 1)
        found.append((digits, group))
        offset = offset + width
    return found, inverted


def _wide(
    groups: list[tuple[int, IntArray]],
    positive: BoolArray,
    nulls: BoolArray | None,
    wanted: pa.DataType,
) -> pa.Array:
    """Add up the groups of digits in 32-bit limbs, for decimals beyond 64 bits."""
    limbs = [np.zeros(len(positive), np.uint64) for _ in range(wanted.bit_width // 32)]
    for digits, group in groups:
        carry = group.astype(np.uint64)
        factor = np.uint64(10**digits)
        for number, limb in enumerate(limbs):
            total = limb * factor + carry
            limbs[number] = total & _LIMB
            carry = total >> _LIMB_BITS
    carry = (~positive).astype(np.uint64)  # two's complement: invert, add one
    flip = np.where(positive, np.uint64(0), _LIMB)
    stacked = np.empty((len(positive), len(limbs)), np.uint32)
    for number, limb in enumerate(limbs):
        total = (limb ^ flip) + carry
        stacked[:, number] = (total & _LIMB).astype(np.uint32)
        carry = total >> _LIMB_BITS
    return as_arrow(stacked, nulls, wanted)
