"""The bytes of texts and binaries, as they stand in Arrow's buffers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def string_offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each value of a string or binary array begins, and the last one's end."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def string_octets(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of a string or binary array's values, one after the other."""
    offsets = string_offsets(array)
    buffer = array.buffers()[2]
    if buffer is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]
