"""Offsets in a log file beyond 4 GiB.

An event's header has 32 bits for where the event ends. A large transaction can make a file longer
than that; then the number starts again at zero. Offsets only grow within a file, so a large step
back is a turn of the counter.
"""

from __future__ import annotations

import numpy as np

from airflow_cdc_provider.columns.numpy_types import IntArray

_TURN = 1 << 32


def whole_offsets(log_pos: IntArray, near: int) -> IntArray:
    """Return the whole end offsets of events, even beyond 4 GiB, from their 32-bit ones.

    The events are in log order, and their offsets grow from `near` on.
    0 stays 0: it lies in no file.
    """
    real = log_pos > 0
    low = log_pos[real]
    if not len(low) or (near < _TURN // 2 and int(low.max()) < _TURN // 2):
        return log_pos  # no step can be a turn
    turns = np.diff(low, prepend=near % _TURN) < -(_TURN // 2)
    ends = log_pos.copy()
    ends[real] = low + (near // _TURN + np.cumsum(turns)) * _TURN
    return ends


class LogPlace:
    """Turns the 32-bit end offsets of events into whole offsets, file after file."""

    def __init__(self, offset: int = 4) -> None:
        self.last = offset
        """The largest offset that was met."""

    def begin_file(self, offset: int) -> None:
        """Begin another log file, at an offset."""
        self.last = offset

    def ends(self, log_pos: IntArray) -> IntArray:
        """Return the whole end offsets of events from their 32-bit header fields."""
        ends = whole_offsets(log_pos, self.last)
        self.last = max(self.last, int(ends.max(initial=0)))
        return ends

    def ends_at(self, offset: int) -> None:
        """Raise the largest offset met so far to `offset`."""
        self.last = max(self.last, offset)
