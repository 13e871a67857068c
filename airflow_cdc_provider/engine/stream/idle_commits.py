"""Log that the stream has read and not committed, because it holds nothing for the sink.

The driver remembers it and gives it to every micro-batch, so that it does not matter which Python
worker applies the next one. The ledger follows without a micro-batch, from the heartbeat's thread:

- some seconds after it last moved, if others than pipelines have written to the log since, or if
  the log goes on in another file. So the ledger is never far behind a log that is purged, whoever
  waits for a position does not wait long, and a stream does not feed itself;
- when the stream ends, so that a bounded run ends where it was to end.

If the driver is lost, its successor reads from the ledger's position again, and finds nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition

COMMIT_EVERY_S = 10.0


class Ledger(Protocol):
    """Moves its position over idle log."""

    def pass_over(self, quiet: IdleRange) -> None: ...


class IdleCommits:
    """The idle log that was read and is not committed yet; shared by the driver's threads."""

    def __init__(self, every_s: float = COMMIT_EVERY_S) -> None:
        self.log: IdleRange | None = None
        self.micro_batch = threading.Lock()
        """Held while one is applied: it locks the ledger's rows for as long."""
        self._every_s = every_s
        self._position: LogPosition | None = None
        self._moved_s = 0.0

    def take(self) -> IdleRange | None:
        """Take the idle log away, for a micro-batch to commit."""
        quiet, self.log = self.log, None  # the micro-batch may commit it, and then fail
        return quiet

    def reached(self, position: LogPosition) -> LogPosition:
        """Return the position up to which all log is read, if the ledger is at `position`."""
        quiet = self.log
        return quiet.end if quiet is not None and quiet.moves(position) else position

    def commit_in_time(self, ledger: Ledger, position: LogPosition) -> bool:
        """Commit idle log if it is time, from the ledger's `position`; True if it was committed."""
        if not self.micro_batch.acquire(blocking=False):
            return False
        try:
            is_time = self.log is not None and self._is_time(self.log, position)
            if is_time:
                self.commit(ledger)
            return is_time
        finally:
            self.micro_batch.release()

    def commit(self, ledger: Ledger) -> None:
        """Commit the idle log now; the next batch begins at its end."""
        if self.log is not None:
            ledger.pass_over(self.log)
            self.log = None

    def _is_time(self, quiet: IdleRange, position: LogPosition) -> bool:
        """Tell whether the ledger's position has not moved for long enough to commit idle log."""
        now = time.monotonic()
        if position != self._position:
            self._position, self._moved_s = position, now
        if not quiet.moves(position) or now - self._moved_s < self._every_s:
            return False
        return not quiet.only_ledgers or quiet.leaves_file(position)
