"""Integers and decimals straight from the received bytes, eight digits in one machine word.

Arrow's way to a number is a copy of the text and a parser that looks at one character after
another. Here the eight or sixteen bytes from each field's start on are loaded as words, and every
step is arithmetic on whole words, over all rows at once:

1. characters become digits, `0` is zero;
2. the words are shifted until the text ends where the last word ends: what followed the text
   falls out, and zeros come in before it;
3. a decimal point, which has the same place in every row because the server prints a column with
   all its decimals, is squeezed out; a minus becomes a zero;
4. every byte must now be a digit; three multiplications make one number of eight of them.

This decodes what the server usually prints, and nothing else. A text that is empty, longer than
sixteen characters or of any other shape, or a value that the type cannot hold, makes the answer
None for the whole chunk: the checked path then decodes it, or finds the row that is at fault.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.systems.mysql.wire.text_protocol import Field
from airflow_cdc_provider.systems.mysql.wire.wide_loads import (
    ABOVE_NINE,
    LOADED_BYTES,
    WORD_BYTES,
    ZEROS,
    Words,
    eight_digits,
    only_digits,
    validity,
    word_at,
    words_at,
)

_MOST_DECIMALS = WORD_BYTES - 1
"""More would put the point before the last word."""
_BITS = 8 * WORD_BYTES
_MINUS = ord("-") ^ ord("0")
_POINT = ord(".") ^ ord("0")


def parsed_number(buffer: bytearray, located: Field, wanted: pa.DataType) -> pa.Array | None:
    """Decode a column of integers or decimals; None if any text has an unusual form."""
    decimal = bool(pa.types.is_decimal128(wanted))
    if not (decimal or pa.types.is_integer(wanted)) or len(located.start) == 0:
        return None
    decimals = wanted.scale if decimal else 0
    if not 0 <= decimals <= _MOST_DECIMALS or int(located.length.max()) > LOADED_BYTES:
        return None
    signed = not pa.types.is_unsigned_integer(wanted)
    numbers = _numbers(buffer, located, decimals, signed=signed)
    if numbers is None:
        return None
    values = _as_decimals(numbers, wanted.precision) if decimal else _as_integers(numbers, wanted)
    if values is None:
        return None
    buffers = [validity(located.null), pa.py_buffer(values)]
    return pa.Array.from_buffers(wanted, len(located.start), buffers)


def _numbers(buffer: bytearray, located: Field, decimals: int, *, signed: bool) -> IntArray | None:
    """Return the signed number of each text; None if a text has an unusual form.

    Signs are looked for only where the texts are not all digits.
    """
    first, second = _digit_words(buffer, located)
    if not _is_long_enough(located, located.length, decimals):
        return None
    magnitude = _magnitude(first, second, located, decimals)
    if magnitude is not None:
        return magnitude.view(np.int64)
    negative = (first & 0xFF) == _MINUS
    if not signed or not _is_long_enough(located, located.length - negative, decimals):
        return None
    magnitude = _magnitude(first ^ (negative * np.uint64(_MINUS)), second, located, decimals)
    if magnitude is None:
        return None
    numbers = magnitude.view(np.int64)
    np.negative(numbers, out=numbers, where=negative)
    return numbers


def _digit_words(buffer: bytearray, located: Field) -> tuple[Words, Words | None]:
    """Load texts into 64-bit words, one digit a byte; two words a text if any is longer than 8."""
    if int(located.length.max()) <= WORD_BYTES:
        return word_at(buffer, located.start) ^ ZEROS, None
    first, second = words_at(buffer, located.start)
    return first ^ ZEROS, second ^ ZEROS


def _is_long_enough(located: Field, characters: IntArray, decimals: int) -> bool:
    """Tell whether each text has enough characters: a digit, and one before its point."""
    least = decimals + 2 if decimals else 1
    if int(characters.min()) >= least:
        return True
    return located.null is not None and not ((characters < least) & ~located.null).any()


def _magnitude(first: Words, second: Words | None, located: Field, decimals: int) -> Words | None:
    """Return the number of each text without sign and point; None if it has other characters."""
    leading, last = _aligned(first, second, located.length)
    above, shift = ABOVE_NINE, 8 * (WORD_BYTES - 1 - decimals)
    if decimals:
        if located.null is not None:
            last[located.null] = _POINT << shift
        last ^= _POINT << shift
        above |= 0x7F << shift  # nothing may be left of a point
    if not only_digits(last, above):
        return None
    if decimals:
        whole = (last & ((1 << shift) - 1)) << 8
        last &= (1 << _BITS) - (1 << (shift + 8))
        last |= whole
    if leading is None:
        return eight_digits(last)
    if not only_digits(leading):
        return None
    if decimals:
        last |= leading >> (_BITS - 8)
        leading <<= 8
    return eight_digits(leading) * 100_000_000 + eight_digits(last)


def _aligned(first: Words, second: Words | None, length: IntArray) -> tuple[Words | None, Words]:
    """Shift texts to the end of their words, with zeros before them.

    A shift by 64 bits or more gives zero, and so does one by less than none, unsigned as it is.
    """
    bits = length.view(np.uint64) * 8
    if second is None:
        return None, first << (_BITS - bits)
    gap = 2 * _BITS - bits
    last = second << gap
    last |= first >> (bits - _BITS)
    last |= first << (_BITS - bits)
    return first << gap, last


def _as_integers(numbers: IntArray, wanted: pa.DataType) -> npt.NDArray[np.generic] | None:
    """Return numbers in the wanted integer type; None if one does not fit."""
    kind = np.dtype(f"{'u' if pa.types.is_unsigned_integer(wanted) else 'i'}{wanted.byte_width}")
    if kind.itemsize == WORD_BYTES:
        return numbers  # sixteen digits fit, and none is negative unless it may be
    limits = np.iinfo(kind)
    if int(numbers.min()) < limits.min or int(numbers.max()) > limits.max:
        return None
    return numbers.astype(kind)


def _as_decimals(numbers: IntArray, precision: int) -> npt.NDArray[np.generic] | None:
    """Return numbers as 128-bit decimals; None if one does not fit."""
    largest = 10**precision
    if precision < LOADED_BYTES and not (-largest < numbers.min() and numbers.max() < largest):
        return None
    wide = np.empty((len(numbers), 2), np.int64)
    wide[:, 0] = numbers
    np.right_shift(numbers, _BITS - 1, out=wide[:, 1])
    return wide
