"""Text in machine words: eight characters loaded at once, and turned into a number at once.

A word has its first character in its lowest byte, as the processor loads it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray

Words = npt.NDArray[np.uint64]

WORD_BYTES = 8
LOADED_BYTES = 2 * WORD_BYTES
"""Bytes that `words_at` loads from each place on."""
ZEROS = np.uint64(0x3030303030303030)
"""Eight times the character `0`: by exclusive or it makes digits of characters."""
ABOVE_NINE = 0x7676767676767676
"""For each byte 127 less what it may be at most, see `only_digits`."""
_HIGH_BITS = 0x8080808080808080

_PAIRS = np.uint64(0x000000FF000000FF)
_FIRST_AND_THIRD = np.uint64(100 + (1_000_000 << 32))
_SECOND_AND_FOURTH = np.uint64(1 + (10_000 << 32))


def word_at(buffer: bytearray, start: IntArray) -> Words:
    """Load eight bytes from each of some ascending offsets; past the end come zeros."""
    return _loaded(buffer, start, np.dtype(np.uint64)).view(np.uint64)


def words_at(buffer: bytearray, start: IntArray) -> tuple[Words, Words]:
    """Load sixteen bytes from each offset, as two words.

    A complex number is what numpy has of that size; it moves them without a look at them.
    """
    words = _loaded(buffer, start, np.dtype(np.complex128)).view(np.uint64)
    return words[0::2], words[1::2]


def _loaded(
    buffer: bytearray, start: IntArray, kind: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    """Load an element of a type from each of some ascending offsets; past the end come zeros."""
    last = len(buffer) - kind.itemsize
    if start[-1] <= last:
        return _unaligned(buffer, kind)[start]
    inside = int(np.searchsorted(start, last, "right")) if last >= 0 else 0
    edge = int(start[inside])
    loaded = _unaligned(buffer[edge:] + bytes(kind.itemsize), kind)[start[inside:] - edge]
    if inside:
        loaded = np.concatenate([_unaligned(buffer, kind)[start[:inside]], loaded])
    return loaded


def _unaligned(buffer: bytearray, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return a view of the buffer with an element at every byte offset."""
    return np.ndarray((len(buffer) - kind.itemsize + 1,), kind, buffer, strides=(1,))


def only_digits(words: Words, above: int = ABOVE_NINE) -> bool:
    """Tell whether every byte of the words is at most 9, or at most what `above` allows.

    The sum's high bit says it, and the byte's own, for such a byte carries into the next.
    """
    return not int(np.bitwise_or.reduce((words + above) | words)) & _HIGH_BITS


def eight_digits(words: Words) -> Words:
    """Return the number of eight digits, the first of which is in the lowest byte."""
    pairs = words * 10
    pairs += words >> 8
    number = (pairs & _PAIRS) * _FIRST_AND_THIRD
    pairs >>= 16
    pairs &= _PAIRS
    pairs *= _SECOND_AND_FOURTH
    number += pairs
    number >>= 32
    return number


def validity(null: BoolArray | None) -> pa.Buffer | None:
    """Return a mask of NULLs as Arrow's validity bitmap."""
    return None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
