"""Noticing that writes wait at the sink for another session's lock: its server answers meanwhile.

A table that somebody locks, alters or backs up holds up the stream, and nothing fails until the
server gives up the wait, some minutes later. So where log waits and nothing is committed, the sink
is asked what the job's sessions wait for. The server ends each wait after a while and the stream
tries again, so a wait that is not seen for a moment is not over. It is with the next commit, or
where no wait has been seen for longer than the stream pauses between two tries.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import SinkBusyError
from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.outages import Outages, Part

log = logging.getLogger(__name__)

_STILL_S = 4.0
"""What has committed nothing for so long may wait for a lock."""
_LONG_S = 4
"""Shorter waits are usual."""
_NOT_SEEN_S = 45.0
"""A stream pauses for less between two tries."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A wait for a lock, over all tries."""

    wait: LockWait
    since_s: float
    seen_s: float
    tries: int = 1

    def seen_again(self, wait: LockWait, now_s: float) -> _Waiting:
        """Return it with the wait that is seen now: one more try, if that began later."""
        is_another = wait.session != self.wait.session or wait.for_s < self.wait.for_s
        return _Waiting(wait, self.since_s, now_s, self.tries + is_another)


class LockWatch:
    """Looks for locks that the stream's writes wait for, and notes them as an outage."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._progress: object = None
        self._still_s = 0.0
        self._waiting: _Waiting | None = None

    def look(self, ledger: Ledger, progress: object, *, is_behind: bool) -> None:
        """Ask the sink, if log waits and `progress` has been the same for some seconds."""
        now_s = time.monotonic()
        if progress != self._progress or not is_behind:
            self._progress, self._still_s, self._waiting = progress, now_s, None
        if now_s - self._still_s < _STILL_S:
            return
        known = self._waiting
        waits = ledger.lock_waits(from_s=_LONG_S if known is None else 0)
        if waits:
            wait = max(waits, key=lambda each: each.for_s)
            if known is None:
                known = _Waiting(wait, now_s - wait.for_s, now_s)
                log.warning("%s", self._error(known))
            self._waiting = known.seen_again(wait, now_s)
        elif known is not None and now_s - known.seen_s > _NOT_SEEN_S:
            self._waiting = None

    def note(self, outages: Outages) -> None:
        """Note in the outages whether the stream's writes wait for a lock."""
        waiting = self._waiting
        if waiting is None:
            outages.over(Part.LOCK)
            return
        for_s = time.monotonic() - waiting.since_s
        outages.note(Part.LOCK, self._error(waiting), tries=waiting.tries, for_s=for_s)

    def _error(self, waiting: _Waiting) -> SinkBusyError:
        """Return the error of a wait for a lock."""
        wait = waiting.wait
        held = f"a lock of {', '.join(wait.holders)}" if wait.holders else "another session's lock"
        return SinkBusyError(
            f"writes to {wait.table or 'the sink'} wait for {held}: {wait.waits_for}",
            where=f"sink {self._sink}, session {wait.session}",
            risk="the sink falls behind; nothing is lost while the source keeps its log",
            remedy="have the lock given up there, such as by UNLOCK TABLES, or end its session; "
            "the stream goes on by itself",
        )
