"""Offsets in a log file beyond 4 GiB.

An event's header has 32 bits for where the event ends. A large transaction can make a file longer
than that; then the number starts again at zero. Offsets only grow within a file, so a large step
back is a turn of the counter.
"""

from __future__ import annotations

import numpy as np

from airflow_cdc_provider.systems.mysql.binlog.octets import Ints

_TURN = 1 << 32


class LogPlace:
    """Follows the offsets of one file after another."""

    def __init__(self, offset: int = 4) -> None:
        self._last = offset

    def begin_file(self, offset: int) -> None:
        """Start again in a file, at an offset."""
        self._last = offset

    def ends(self, log_pos: Ints) -> Ints:
        """Return the whole offsets for header fields in log order; 0 stays 0: in no file."""
        real = log_pos > 0
        if not real.any():
            return log_pos
        low = log_pos[real]
        if self._last < _TURN // 2 and int(low.max()) < _TURN // 2:  # no step can be a turn
            self._last = max(self._last, int(low[-1]))
            return log_pos
        turns = np.diff(low, prepend=self._last % _TURN) < -(_TURN // 2)
        whole = low + (self._last // _TURN + np.cumsum(turns)) * _TURN
        self._last = max(self._last, int(whole[-1]))
        if real.all():
            return whole
        ends = log_pos.copy()
        ends[real] = whole
        return ends
