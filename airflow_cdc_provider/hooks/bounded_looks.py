"""Looks at servers on behalf of somebody who waits: a few at a time, each for so long at most.

Each look has a thread of its own. One that takes too long is given up, and its connections are shut
so that its thread ends; until it has ended it counts as one of the few, so however many ask,
servers that hang hold up no more threads than that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RetryableError
from airflow_cdc_provider.core.open_connections import OpenConnections

Answer = TypeVar("Answer")


class BoundedLooks:
    """Runs queries of servers in threads, `most` at once and each for `limit_s` seconds at most."""

    def __init__(self, *, most: int, limit_s: float) -> None:
        """Allow `most` queries at once, each for `limit_s` seconds."""
        self.most, self.limit_s = most, limit_s
        self._free = threading.BoundedSemaphore(most)

    def make(self, look: Callable[[], Answer], *, where: str) -> Answer:
        """Return what a query returns; `RetryableError` with `where` if it takes too long."""
        if not self._free.acquire(blocking=False):
            raise RetryableError(
                f"{self.most} looks at servers are under way already",
                where=where,
                risk=NOTHING_CHANGED,
                remedy="try again in a minute",
            )
        found: Future[Answer] = Future()
        connections = OpenConnections()
        thread = threading.Thread(
            target=self._run, args=(look, found, connections), name="cdc-look", daemon=True
        )
        thread.start()
        try:
            return found.result(self.limit_s)
        except TimeoutError:
            if found.done():
                raise  # the look's own
            connections.shut()
            raise RetryableError(
                f"there was no answer within {self.limit_s:g} seconds",
                where=where,
                risk=NOTHING_CHANGED,
                remedy="look whether the server hangs, or whether something on the way to it takes "
                "connections and does not pass them on; then try again",
            ) from None

    def _run(
        self, look: Callable[[], Answer], found: Future[Answer], connections: OpenConnections
    ) -> None:
        """Run a query in its thread, and keep its answer or error."""
        try:
            with connections.noted():
                answer = look()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            found.set_exception(error)
        else:
            found.set_result(answer)
        finally:
            self._free.release()
