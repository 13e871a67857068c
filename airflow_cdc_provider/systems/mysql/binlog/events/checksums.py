"""CRC32 of all events of a buffer in one call.

Every event ends with the CRC32 of its bytes, little-endian. A CRC register that has read a
message and then that message's own CRC is in one fixed state, whatever the message was. So events
that follow each other can be checked by a single CRC over all of them, if at each event's start
the register is brought from that fixed state back to the initial one: by changing the first four
bytes of the event (no gap), or the last four of the packet header between two events. This is
exact: the final state is right if every event is, and a wrong event goes unseen with the same
probability of 2^-32 as in a check of its own. Only when it fails are events checked one by one,
to name the broken one. zlib reads 1 byte in 0.4 ns, one call per event would cost 200 ns more.
"""

from __future__ import annotations

import zlib

import numpy as np

from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import CHECKSUM_BYTES

_INITIAL = 0xFFFFFFFF
_SETTLED = zlib.crc32(b"any event" + zlib.crc32(b"any event").to_bytes(4, "little")) ^ 0xFFFFFFFF
"""The register after a message and its own CRC."""
_LONGEST_GAP = 64


def _table() -> list[int]:
    """Return the CRC32 step table: one entry for each byte value."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    return table


_STEP = _table()
_STEP_BY_TOP = {value >> 24: index for index, value in enumerate(_STEP)}


def _after_zeros(register: int, count: int) -> int:
    """Return the CRC register after so many bytes of zero."""
    for _ in range(count):
        register = (register >> 8) ^ _STEP[register & 0xFF]
    return register


def _bytes_between(register: int, wanted: int) -> bytes:
    """Return the four bytes that bring the CRC register from one state to another."""
    steps = []
    for _ in range(4):  # backwards: the top byte of a state names the table entry that made it
        index = _STEP_BY_TOP[wanted >> 24]
        steps.append(index)
        wanted = ((wanted ^ _STEP[index]) << 8) & 0xFFFFFFFF
    # `wanted` now holds what the register's own bytes contribute; go forwards to find the input
    found = bytearray()
    for index in reversed(steps):
        found.append((register ^ index) & 0xFF)
        register = (register >> 8) ^ _STEP[index]
    return bytes(found)


def first_broken(
    buffer: bytes | bytearray | memoryview, starts: IntArray, ends: IntArray
) -> int | None:
    """Return the index of the first event whose checksum is wrong, None if all are right."""
    if not len(starts):
        return None
    gaps = starts[1:] - ends[:-1]
    gap = int(gaps[0]) if len(gaps) else 0
    regular = bool((gaps == gap).all()) and (gap == 0 or CHECKSUM_BYTES <= gap <= _LONGEST_GAP)
    if len(starts) > 1 and regular and int((ends - starts).min()) > 2 * CHECKSUM_BYTES:
        copied = np.frombuffer(buffer, np.uint8)[int(starts[0]) : int(ends[-1])].copy()
        if _all_right(copied, starts[1:] - starts[0], gap):
            return None
    return _first_broken_alone(buffer, starts, ends)


def _all_right(copied: ByteArray, inner: IntArray, gap: int) -> bool:
    """Tell, by a single CRC over all events, whether every event's checksum is right."""
    words = np.ndarray((len(copied) - 3,), "<u4", copied.data, strides=(1,))
    if gap:
        for offset in range(gap - 4):
            copied[inner - gap + offset] = 0
        bridge = _bytes_between(_after_zeros(_SETTLED, gap - 4), _INITIAL)
        words[inner - 4] = int.from_bytes(bridge, "little")
    else:
        words[inner] ^= _SETTLED ^ _INITIAL
    return zlib.crc32(copied.data) ^ 0xFFFFFFFF == _SETTLED


def _first_broken_alone(
    buffer: bytes | bytearray | memoryview, starts: IntArray, ends: IntArray
) -> int | None:
    """Return the index of the first event with a wrong checksum, checked one by one, or None."""
    view = memoryview(buffer)
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        body_end = end - CHECKSUM_BYTES
        if zlib.crc32(view[start:body_end]) != int.from_bytes(view[body_end:end], "little"):
            return index
    return None
