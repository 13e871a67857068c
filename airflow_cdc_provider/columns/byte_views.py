"""Bytes in buffers, looked at as numbers and texts.

`ByteViews` gathers numbers from many offsets of one buffer at once. A log's buffer has no
alignment, so each width has a view with a stride of one byte: element i is the number that starts
at byte i. Fancy indexing into such a view reads one number per event or row in about 8 ns. A width
without a machine type is the end of a wider number that starts some bytes before it, cut off by a
shift or a mask: so no read goes past a number's own bytes, and the last event may end where the
buffer ends. What lies before it is its event's header.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray

_PARTS: dict[int, tuple[int, ...]] = {3: (2, 1), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1)}
_WIDER = {3: 4, 5: 8, 6: 8, 7: 8}
"""The machine type at whose end a number of an odd width is read."""
_SMALL_BUFFER = 16
"""In a smaller buffer odd widths are read part by part: there may be no room before them."""


def distinct(values: npt.NDArray[Any]) -> list[int]:
    """Return the distinct numbers, in order; usually there is one.

    `np.unique` imports NumPy's masked arrays, which takes longer than a small log.
    """
    if not len(values):
        return []
    if bool((values == values[0]).all()):
        return [int(values[0])]
    return sorted(set(values.tolist()))


class ByteViews:
    """A read-only buffer, read as numbers of any width at any offset."""

    __slots__ = ("_views", "buffer", "u8")

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self.buffer = buffer
        self.u8: ByteArray = np.frombuffer(buffer, np.uint8)
        self._views: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.u8)

    def _view(self, dtype: str, width: int) -> npt.NDArray[Any]:
        """Return the buffer as an array of a number type that begins at every byte."""
        view = self._views.get(dtype)
        if view is None:
            count = max(len(self.u8) - width + 1, 0)
            view = np.ndarray((count,), dtype, self.u8, strides=(1,))
            view.flags.writeable = False
            self._views[dtype] = view
        return view

    def little(self, offsets: IntArray, width: int) -> IntArray:
        """Read unsigned little-endian numbers as int64; 8 bytes wrap to negative."""
        if width == 1:
            return self.u8[offsets].astype(np.int64)
        if width in {2, 4, 8}:
            return self._view(f"<u{width}", width)[offsets].astype(np.int64)
        if len(self.u8) >= _SMALL_BUFFER:
            wider = _WIDER[width]
            ended = self._view(f"<u{wider}", wider)[offsets - (wider - width)]
            return (ended >> (8 * (wider - width))).astype(np.int64)
        value, shift = np.zeros(len(offsets), np.int64), 0
        for part in _PARTS[width]:
            value |= self.little(offsets + shift // 8, part) << shift
            shift += 8 * part
        return value

    def big(self, offsets: IntArray, width: int) -> IntArray:
        """Read unsigned big-endian numbers as int64; 8 bytes wrap to negative."""
        if width == 0:
            return np.zeros(len(offsets), np.int64)
        if width == 1:
            return self.u8[offsets].astype(np.int64)
        if width in {2, 4, 8}:
            return self._view(f">u{width}", width)[offsets].astype(np.int64)
        if len(self.u8) >= _SMALL_BUFFER:
            wider = _WIDER[width]
            ended = self._view(f">u{wider}", wider)[offsets - (wider - width)]
            return ended.astype(np.int64) & ((1 << (8 * width)) - 1)
        value, done = np.zeros(len(offsets), np.int64), 0
        for part in _PARTS[width]:
            value = (value << (8 * part)) | self.big(offsets + done, part)
            done += part
        return value

    def typed(self, offsets: IntArray, dtype: str) -> npt.NDArray[Any]:
        """Read little-endian numbers of a machine type such as `<f8` at each offset."""
        width = int(dtype[2:])
        if width == 1:
            return self.u8[offsets].view(dtype)
        return self._view(dtype, width)[offsets]

    def blocks(self, offsets: IntArray, width: int) -> ByteArray:
        """Read `width` bytes at each offset, as rows of a matrix."""
        if width == 0:
            return np.zeros((len(offsets), 0), np.uint8)
        if width in {1, 2, 4, 8}:  # a machine type is gathered faster
            return self._view(f"<u{width}", width)[offsets].view(np.uint8).reshape(-1, width)
        taken = self._view(f"V{width}", width)[offsets]
        return np.ascontiguousarray(taken).view(np.uint8).reshape(len(offsets), width)

    def text_at(self, start: int, end: int) -> bytes:
        """Copy the bytes between two offsets."""
        return bytes(self.buffer[start:end])


def string_offsets(array: pa.Array) -> IntArray:
    """Return where each value of a string or binary array begins, and the last one's end."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def string_bytes(array: pa.Array) -> ByteArray:
    """Return the bytes of a string or binary array's values, one after the other."""
    offsets = string_offsets(array)
    buffer = array.buffers()[2]
    if buffer is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]
