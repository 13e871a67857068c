"""How far the sink is behind the source, told also while nothing is committed.

The ledger knows how old the last change was when it was committed. While more waits and the
position stands, that says less and less: then the lag is at least as long as it has stood. The same
holds while the source does not say where its log ends: who was at the end may be behind since.

A stream that begins where another one ended stands there since that one was heard of last.
"""

from __future__ import annotations

from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import StreamState


class Lag:
    """Computes how far the sink is behind the source."""

    def __init__(self, before: StreamState | None = None) -> None:
        """`before` is what was told last of the stream, by whoever was at it."""
        self._position: LogPosition | None = None
        self._since_us = 0
        if before is not None and before.heartbeat_us:
            self._position = before.position
            self._since_us = before.heartbeat_us - (before.lag_us or 0)

    def at(
        self,
        position: LogPosition,
        source_end: LogPosition | None,
        last_us: int | None,
        now_us: int,
    ) -> int | None:
        """Return the lag in microseconds, 0 where nothing waits, None before the first change.

        `last_us` is the age of the last change when it was committed. Where the end of the source's
        log is not known, more may wait since it last was. Before the first change nothing is known:
        the first position need not have a time.
        """
        if source_end is not None and position.reaches(source_end):
            self._position, self._since_us = None, now_us
            return 0
        if source_end is None and self._position is None and self._since_us:
            self._position = position  # it was at the end when that was last known
        if position != self._position:
            self._position, self._since_us = position, now_us
            return last_us
        return None if last_us is None else max(last_us, now_us - self._since_us)
