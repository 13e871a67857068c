"""What shows that a stream goes on after an outage.

A server that answers a look may still fail for the stream: its connection hangs, it is refused its
writes, or it waits for its next try. While log waits the outage is over with the first commit after
the last failure. Where nothing is to be written, answers of both servers have to do. A transaction
may take long, so a stream that has lived for a while without a failure has gone on, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.positions import LogPosition

_STEADY_S = 5.0
"""A try that failed before has lived so long if it has nothing to write."""
_ANSWERING_S = 30.0
_LIVING_S = 60.0
"""More than a server lets a write wait for a lock, before it says so."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream is: what is committed, and what is read besides."""

    position: LogPosition
    batches: int
    reached: LogPosition

    def is_beyond(self, other: Progress) -> bool:
        """Tell whether the stream is further than it was at the other look."""
        if (self.position, self.batches) != (other.position, other.batches):
            return True
        # a try that begins reads idle log again, so it may be back for a moment
        return self.reached != other.reached and self.reached.reaches(other.reached)


@dataclass(frozen=True, slots=True)
class StreamLook:
    """A stream's progress and failures, as read once while source and sink answer."""

    at_s: float
    failures: int
    """How often a part of the job failed so far."""
    progress: Progress
    has_log_waiting: bool
    is_failing: bool
    """The stream itself failed, not only a look at a server."""
    try_s: float | None
    """How long its current try has run, None while none is under way."""


class Recovery:
    """Decides when the outages of a stream are over."""

    def __init__(self) -> None:
        self._first: StreamLook | None = None

    def is_shown(self, look: StreamLook) -> bool:
        """Tell whether the stream has gone on since the last failure."""
        if self._first is None or look.failures != self._first.failures:
            self._first = look  # before it, what was committed may be of before the outage
        if look.is_failing and look.try_s is None:
            return False
        if look.progress.is_beyond(self._first.progress):
            return True
        lived_s = look.try_s if look.is_failing else None
        if not look.has_log_waiting:
            return lived_s is None or lived_s > _STEADY_S
        if lived_s is None:
            return look.at_s - self._first.at_s > _ANSWERING_S
        return lived_s > _LIVING_S
