"""Where the packets of a log dump begin, many at a time.

Each packet's length says where the next one begins: a chain, which is followed one by one in
Python, or in **lanes**. A lane begins at an offset that looks like a packet (the log's own server
id, and a length that agrees with the event's), one every few kilobytes; all lanes take a step at
once, until each has passed the beginning of the next. How a lane's beginning was found does not
matter: it counts only if the lane before it, which is known to be right, ends exactly there. At
the first that does not, or at the first packet that is not a plain one, the chain is cut, and
what lies behind is followed one by one.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from airflow_cdc_provider.columns.numpy_types import IntArray

HEADER_BYTES = 4
LARGEST_PACKET = 0xFFFFFF
SHORTEST = HEADER_BYTES + 1
PACKET_HEAD = struct.Struct("<IB")
"""Length and sequence in one word, then the status."""
_EVENT = struct.Struct("<IB9xI")
"""The same, and the size that the event says it has."""
_SERVER_ID = slice(SHORTEST + 5, SHORTEST + 9)
_LEAST_PACKET = SHORTEST + 19
_SINGLY = 256
"""Packets that are followed one by one before lanes are thought of."""
_LANES = 256
_FEWEST_STEPS = 4
"""Lanes of fewer packets each cost more than they save."""
_TRIES = 4
_CHECK_EVERY = 8


def plain_packets(buffer: bytearray, at: int, filled: int) -> tuple[IntArray, int]:
    """Return the starts of whole plain packets from `at` on, and the offset after the last.

    There lies nothing, or a packet that has not come whole, has a status, or goes on in the next.
    """
    begun = at
    found, at = _singly(buffer, at, filled, _SINGLY)
    if len(found) < _SINGLY:
        return _as_array(found), at
    stride = (filled - at) // _LANES
    if stride * _SINGLY < _FEWEST_STEPS * (at - begun):
        rest, at = _singly(buffer, at, filled)
        return _as_array(found + rest), at
    leapt, at = _in_lanes(buffer, at, filled, stride)
    rest, at = _singly(buffer, at, filled)
    return np.concatenate([_as_array(found), leapt, _as_array(rest)]), at


def joined_parts(buffer: bytearray, at: int, filled: int) -> tuple[int, int] | None:
    """Join the parts of a large packet that begins at an offset, within the buffer.

    Return where it ends then, and what came ends; None if some of its parts have not come.
    """
    parts: list[tuple[int, int]] = []
    length = LARGEST_PACKET
    while length == LARGEST_PACKET:
        start = at + HEADER_BYTES
        if start > filled:
            return None
        length = int.from_bytes(buffer[at : at + 3], "little")
        at = start + length
        if at > filled:
            return None
        parts.append((start, at))
    to = parts[0][1]
    with memoryview(buffer) as view:
        for start, end in parts[1:]:
            view[to : to + end - start] = view[start:end]
            to += end - start
        rest = filled - at
        view[to : to + rest] = view[at:filled]
    return to, to + rest


def _as_array(found: list[int]) -> IntArray:
    """Return offsets as an array."""
    return np.array(found, np.int64)


def _singly(
    buffer: bytearray, at: int, filled: int, most: int = LARGEST_PACKET
) -> tuple[list[int], int]:
    """Follow packets one by one, at most `most`; return their starts and the offset after them."""
    found: list[int] = []
    add, head, last = found.append, PACKET_HEAD.unpack_from, filled - SHORTEST
    while at <= last and len(found) < most:
        word, status = head(buffer, at)
        length = word & LARGEST_PACKET
        end = at + HEADER_BYTES + length
        if status or end > filled or length == LARGEST_PACKET:
            break
        add(at)
        at = end
    return found, at


def _in_lanes(buffer: bytearray, at: int, filled: int, stride: int) -> tuple[IntArray, int]:
    """Follow packets in many lanes at once, as far as the lanes are proven right."""
    words = np.ndarray((filled - HEADER_BYTES,), "<u4", buffer, strides=(1,))
    begins = _as_array(_beginnings(buffer, at, filled, stride))
    limits = np.append(begins[1:], len(words))
    steps = _stepped(words, begins, limits)
    behind = steps >= limits
    landed = np.take_along_axis(steps, behind.argmax(axis=0)[None], axis=0)[0]
    missed = np.flatnonzero(landed[:-1] != begins[1:])
    if len(missed):  # an unfinished lane has no step behind its limit, and lands on its beginning
        behind[:, missed[0] + 1 :] = True
    found = steps.T[~behind.T]
    last = int(found[-1])
    ends = np.append(found[1:], last + HEADER_BYTES + (int(words[last]) & LARGEST_PACKET))
    status = np.frombuffer(buffer, np.uint8)[found + HEADER_BYTES]
    continued = ends - found == HEADER_BYTES + LARGEST_PACKET
    odd = np.flatnonzero((status > 0) | continued | (ends > filled))
    if len(odd):
        return found[: odd[0]], int(found[odd[0]])
    return found, int(ends[-1])


def _beginnings(buffer: bytearray, at: int, filled: int, stride: int) -> list[int]:
    """Return lane beginnings: `at`, and one offset a stride that looks like a packet's start."""
    server_id = bytes(buffer[at + _SERVER_ID.start : at + _SERVER_ID.stop])
    begins = [at]
    shift, find, event = _SERVER_ID.start, buffer.find, _EVENT.unpack_from
    targets = range(at + stride, filled - _LEAST_PACKET - stride, stride)
    for target in targets:
        offset, bound = target + shift, target + shift + stride
        for _ in range(_TRIES):
            offset = find(server_id, offset, bound)
            if offset < 0:
                break
            word, status, size = event(buffer, offset - shift)
            if not status and word & LARGEST_PACKET == size + 1:
                begins.append(offset - shift)
                break
            offset += 1
    return begins


def _stepped(words: npt.NDArray[np.uint32], begins: IntArray, limits: IntArray) -> IntArray:
    """Step from packet to packet in all lanes at once, until each is past its limit."""
    offset, last = begins, len(words) - 1
    rows = [offset]
    most = int((limits - begins).max()) // _LEAST_PACKET + 2
    while len(rows) <= most:
        for _ in range(_CHECK_EVERY):
            step = words[np.minimum(offset, last)] & LARGEST_PACKET
            offset = offset + step
            offset += HEADER_BYTES
            rows.append(offset)
        if (offset >= limits).all():
            break
    return np.stack(rows)
