"""The throttle as one request meets it: each of its splits waits there before it is read.

The wait may be in a thread beside that of the request, which reads ahead. So the request's own
thread looks at `why` now and then, shows it, and ends the wait where the request is to end.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.throttle.throttle import (
    ASK_AGAIN_S,
    Leave,
    Refusal,
    Throttle,
)


class ReadGate:
    """Lets a request's splits through when the throttle does.

    A load that was critical since the gate was made ends the request.
    """

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._since = throttle.criticals
        self.why = ""
        """Why a split of the request waits; empty while none does."""

    def enter(self, table: TableId, pause: Callable[[float], None]) -> Leave:
        """Wait until a split may be read; `pause` sleeps, or raises what ends the wait."""
        try:
            while isinstance(answer := self._throttle.enter(table, since=self._since), Refusal):
                self.why = answer.why
                pause(min(answer.wait_s, ASK_AGAIN_S))
        finally:
            self.why = ""
        return answer

    def read(self, leave: Leave, table: TableId, *, rows: int, size: int) -> None:
        """Note how many rows and bytes a split had."""
        self._throttle.read(leave, table, rows=rows, size=size)

    def unread(self, leave: Leave) -> None:
        """Note that no split was left to read."""
        self._throttle.unused(leave)

    def charge(self, table: TableId, *, rows: int, size: int) -> None:
        """Note rows that were read without waiting; the next split waits for them."""
        self._throttle.charge(table, rows=rows, size=size)
