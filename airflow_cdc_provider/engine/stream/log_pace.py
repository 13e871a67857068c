"""Where the next micro-batch ends, asked of the source over one connection of the driver's.

While nothing comes, the end of the log is asked for every 20 to 50 ms: an idle stream costs next to
nothing, and a change is picked up at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import SourceUnreachableError
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.stream_task import BATCH_BYTES

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.source_port import LogEnd
    from airflow_cdc_provider.core.positions import LogPosition

_ASK_EVERY_S = (0.02, 0.05)


class LogPace:
    """Finds the end of the next micro-batch, up to a bound if there is one."""

    def __init__(
        self, log_end: LogEnd, following: Following, bound: LogPosition | None = None
    ) -> None:
        self._log_end = log_end
        self._following = following
        self._bound = bound

    def next_end(self, start: LogPosition) -> LogPosition:
        """Wait for log to read and return its end; `start` itself at the bound or a stop."""
        waits, wait_s = iter(_ASK_EVERY_S), 0.0
        while not self._following.ending.wait(wait_s):
            self._bound = self._bound or self._following.bound
            found = self._log_end.next_end(start, bound=self._bound, batch_bytes=BATCH_BYTES)
            self._require_same(found.bound)
            self._bound = found.bound
            if found.end is not start or self._bound is not None:
                return found.end
            wait_s = next(waits, wait_s)
        return start

    def _require_same(self, bound: LogPosition | None) -> None:
        """Refuse another server's end of the log in place of where the stream ends for good."""
        if self._following.is_last and bound != self._bound:
            raise SourceUnreachableError(
                f"the stream ends at {self._bound}, and another server's log answers",
                where=f"log of {'' if bound is None else bound.server}",
                remedy="it is tried again, as that server may come back; the next run says how to "
                "go on with the other one's log",
            )
