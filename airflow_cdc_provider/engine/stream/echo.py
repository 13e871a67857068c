"""A stream whose source and sink are one server: what it commits is new log for it to read.

Each commit moves the ledger, the ledger's row is in the log, and so an idle stream would commit
again and again, as fast as micro-batches go. So after a micro-batch that held no change of the
pipeline's tables the next one waits, longer each time up to two seconds; the first that holds one
ends that. The position still moves with each commit, so that logs can be purged and whoever waits
for a position does not wait long.
"""

from __future__ import annotations

FIRST_S = 0.25
MOST_S = 2.0


class EchoPause:
    """How long to wait after each micro-batch of such a stream."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def after(self, changes: int) -> float:
        """Return the seconds to wait after a micro-batch that applied so many changes."""
        if changes:
            self._next_s = FIRST_S
            return 0.0
        pause_s, self._next_s = self._next_s, min(MOST_S, 2 * self._next_s)
        return pause_s
