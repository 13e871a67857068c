"""How far the sink is behind the source, told also while nothing is committed.

Told is the age of the moment up to which the sink is known to have all of the source: when the
newest applied change was committed there, or when the end of the log was last seen to be reached,
whichever is later. So the lag grows by the time that goes by while more log waits and the position
stands, also where the sink cannot be asked. The same holds while the source does not say where its
log ends: who was at the end may be behind since.

A stream that begins where another one ended goes on with what was told of that one last.
"""

from __future__ import annotations

from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import StreamState


class Lag:
    """Computes how far the sink is behind the source."""

    def __init__(self, before: StreamState | None = None) -> None:
        """`before` is what was told last of the stream, by whoever was at it."""
        self._position: LogPosition | None = None
        self._current_us = 0
        """Up to when the sink has all of the source."""
        if before is not None and before.heartbeat_us and before.lag_us is not None:
            self._position = before.position
            self._current_us = before.heartbeat_us - before.lag_us

    def at(
        self,
        position: LogPosition,
        source_end: LogPosition | None,
        age_us: int | None,
        now_us: int,
    ) -> int | None:
        """Return the lag in microseconds, 0 where nothing waits, None while it is not known.

        `age_us` is how old the newest applied change is by now. Where the end of the source's log
        is not known, more may wait since it last was. Before the first change it is known only
        where the stream was at the end of the log: the first position need not have a time.
        """
        if source_end is not None and position.reaches(source_end):
            self._position, self._current_us = position, now_us
            return 0
        if age_us is None:
            was_at_end = position == self._position
            return max(0, now_us - self._current_us) if was_at_end else None
        if position != self._position:
            # the position also moves without a change, whose age is then that of an earlier one
            self._current_us = max(self._current_us, now_us - age_us)
            self._position = position
        return max(0, now_us - self._current_us)
