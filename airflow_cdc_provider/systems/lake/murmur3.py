"""The hash by which Iceberg chooses buckets, of whole columns: Murmur3 of 32 bits, with seed 0.

https://github.com/aappleby/smhasher/wiki/MurmurHash3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from airflow_cdc_provider.columns.numpy_types import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

Hashes = npt.NDArray[np.uint32]
_FIRST, _SECOND = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def hashes_of_numbers(numbers: IntArray) -> Hashes:
    """Return the hash of each number, as one of 64 bits."""
    raw = np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8)
    return _hashes(raw.reshape(len(numbers), 8))


def hashes_of_texts(texts: pa.Array) -> Hashes:
    """Return the hash of each text's UTF-8; 0 for NULL."""
    found = np.zeros(len(texts), np.uint32)
    if not len(texts):
        return found
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    begins, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    raw = np.frombuffer(content or b"", np.uint8)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        found[places] = _hashes(raw[begins[places][:, None] + np.arange(length)])
    if texts.null_count:
        found[np.asarray(texts.is_null())] = 0
    return found


def _hashes(raw: npt.NDArray[np.uint8]) -> Hashes:
    """Return the hash of each row of bytes."""
    count, length = raw.shape
    whole = length // 4
    words = np.ascontiguousarray(raw[:, : 4 * whole]).view("<u4").reshape(count, whole)
    state = np.zeros(count, np.uint32)
    for number in range(whole):
        state ^= _mixed(words[:, number])
        state = _turned(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if length % 4:
        tail = np.zeros((count, 4), np.uint8)
        tail[:, : length % 4] = raw[:, 4 * whole :]
        state ^= _mixed(tail.view("<u4").reshape(count))
    state ^= np.uint32(length)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return state


def _mixed(words: Hashes) -> Hashes:
    """Return words as they go into the state."""
    return _turned(words * _FIRST, 15) * _SECOND


def _turned(words: Hashes, bits: int) -> Hashes:
    """Return words with their bits turned to the left."""
    left = words << np.uint32(bits)
    found: Hashes = left | (words >> np.uint32(32 - bits))
    return found
