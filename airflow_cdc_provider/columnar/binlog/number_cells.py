"""Integers, floats, packed decimals and bits, a whole column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columnar.binlog.octets import Bools, Ints
from airflow_cdc_provider.columnar.binlog.row_walk import Cells
from airflow_cdc_provider.columnar.binlog.wire_types import Wire

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WORD_BYTES = 8
_INT64_DIGITS = 18
_LIMB_BITS = np.uint64(32)
_LIMB = np.uint64(0xFFFFFFFF)


def as_arrow(values: npt.NDArray[Any], nulls: Bools | None, wanted: pa.DataType) -> pa.Array:
    """Hand an array of machine numbers to Arrow without copying."""
    validity, count = validity_of(nulls)
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(wanted, len(values), buffers, count)


def validity_of(nulls: Bools | None) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap and the number of nulls."""
    if nulls is None:
        return None, 0
    bits = np.packbits(~nulls, bitorder="little")
    return pa.py_buffer(bits), int(nulls.sum())


def integers(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode TINYINT to BIGINT."""
    unsigned = pa.types.is_unsigned_integer(wanted)
    if wire.width == 3:
        values = cells.octets.little(cells.places, 3)
        if not unsigned:
            values = values - ((values & 0x800000) << 1)
        return as_arrow(values.astype(np.int32), cells.nulls, wanted)
    kind = f"<{'u' if unsigned else 'i'}{wire.width}"
    return as_arrow(cells.octets.typed(cells.places, kind), cells.nulls, wanted)


def reals(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode FLOAT and DOUBLE, bit by bit."""
    return as_arrow(cells.octets.typed(cells.places, f"<f{wire.width}"), cells.nulls, wanted)


def bits(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode BIT(n): big-endian bytes."""
    values = cells.octets.big(cells.places, wire.width)
    return as_arrow(values.view(np.uint64), cells.nulls, wanted)


def years(cells: Cells, wanted: pa.DataType) -> pa.Array:
    """Decode YEAR: years since 1900, and 0 for 0000."""
    stored = cells.octets.little(cells.places, 1)
    values = np.where(stored == 0, 0, stored + 1900).astype(np.uint16)
    return as_arrow(values, cells.nulls, wanted)


def decimals(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode packed decimals: groups of nine digits, big-endian, the sign in the top bit."""
    if wire.width < _WORD_BYTES:
        return _narrow(cells, wire, wanted)
    packed = cells.octets.blocks(cells.places, wire.width)
    positive = packed[:, 0] >= 128
    packed = np.where(positive[:, None], packed, packed ^ 0xFF)
    packed[:, 0] ^= 0x80
    groups = _groups(packed, wire)
    if wire.length <= _INT64_DIGITS:
        value = np.zeros(len(packed), np.int64)
        for digits, group in groups:
            value = value * 10**digits + group
        return _of_int64(np.where(positive, value, -value), cells.nulls, wanted)
    return _wide(groups, positive, cells.nulls, wanted)


def _narrow(cells: Cells, wire: Wire, wanted: pa.DataType) -> pa.Array:
    """Decode decimals of up to seven bytes as one number each, cut into groups by shifts."""
    bits = 8 * wire.width
    packed = cells.octets.big(cells.places, wire.width)
    negative = packed >> (bits - 1) == 0
    flip = (1 << bits) - 1
    packed = (packed ^ np.where(negative, flip, 0)) & (flip >> 1)
    value, left = np.zeros(len(packed), np.int64), bits
    for digits in _group_digits(wire):
        width = 8 * _DIGIT_BYTES[digits]
        left -= width
        value = value * 10**digits + (packed >> left & ((1 << width) - 1))
    return _of_int64(np.where(negative, -value, value), cells.nulls, wanted)


def _of_int64(value: Ints, nulls: Bools | None, wanted: pa.DataType) -> pa.Array:
    limbs = np.empty((len(value), wanted.bit_width // 64), np.int64)
    limbs[:, 0] = value
    limbs[:, 1:] = (value >> 63)[:, None]
    return as_arrow(limbs, nulls, wanted)


def _group_digits(wire: Wire) -> list[int]:
    whole, scale = wire.length - wire.scale, wire.scale
    return [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]


def _groups(packed: npt.NDArray[np.uint8], wire: Wire) -> list[tuple[int, npt.NDArray[np.int64]]]:
    found, place = [], 0
    for digits in _group_digits(wire):
        width = _DIGIT_BYTES[digits]
        if width:
            value = np.zeros(len(packed), np.int64)
            for offset in range(width):
                value = (value << 8) | packed[:, place + offset]
            found.append((digits, value))
            place += width
    return found


def _wide(
    groups: list[tuple[int, npt.NDArray[np.int64]]],
    positive: Bools,
    nulls: Bools | None,
    wanted: pa.DataType,
) -> pa.Array:
    """Add the groups up in limbs of 32 bits, as one would on paper."""
    limbs = [np.zeros(len(positive), np.uint64) for _ in range(wanted.bit_width // 32)]
    for digits, group in groups:
        carry = group.astype(np.uint64)
        factor = np.uint64(10**digits)
        for place, limb in enumerate(limbs):
            total = limb * factor + carry
            limbs[place] = total & _LIMB
            carry = total >> _LIMB_BITS
    carry = (~positive).astype(np.uint64)  # two's complement: invert, add one
    flip = np.where(positive, np.uint64(0), _LIMB)
    stacked = np.empty((len(positive), len(limbs)), np.uint32)
    for place, limb in enumerate(limbs):
        total = (limb ^ flip) + carry
        stacked[:, place] = (total & _LIMB).astype(np.uint32)
        carry = total >> _LIMB_BITS
    return as_arrow(stacked, nulls, wanted)
