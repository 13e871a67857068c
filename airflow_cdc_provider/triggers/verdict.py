"""Judging a stream by what is remembered of it: heartbeat, position and lag, not process life.

The stream's driver may run on any machine, and a process that lives may be stuck. What counts is
whether the state store hears of it, and whether its position moves while there is something to
apply. `judge` decides and does no I/O; `Watch` is what it has to know from earlier looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase, Wanted
from airflow_cdc_provider.core.records import PipelineState, StreamState
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError

_US = 1_000_000
_NOT_STREAMING = frozenset({Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT})


class Goal(StrEnum):
    """The goal that a watching task waits for."""

    CONSISTENT = "consistent"
    """Every table has passed its consistent point."""
    CAUGHT_UP = "caught_up"
    """Nothing is waiting at the source."""
    STOPPED = "stopped"
    """The pipeline was asked to stop, and has."""


class Verdict(StrEnum):
    """The result of checking a stream, which says what the sensor does next."""

    WAITING = "waiting"
    """All is well; go on looking."""
    REACHED = "reached"
    STOPPED = "stopped"
    """It was asked to stop, and nobody is at work any more."""
    LOST = "lost"
    """It is wanted, and nobody is at work, or the position stands still."""
    ENDED = "ended"
    """It ended as it was asked to, and is wanted again: a pause was taken back."""
    FAILED = "failed"
    LOOK = "look"
    """All is well, and it is time to look, on a worker, for new tables at the source and for what
    is asked about tables."""
    TIMEOUT = "timeout"


START_S = 300.0
"""Patience with a job that was started, to begin streaming."""
STALE_S = LEASE_S
"""Patience with a heartbeat, which comes every two seconds, whatever the servers do."""
GONE_S = 5.0
"""Patience with a process of this machine that is not there any more; it speaks every second. Also
with a stream that has ended, and is wanted again."""
STALL_S = 3600.0
"""Patience with a position that does not move while something waits at the source. A transaction
that takes longer to apply would never get through, so this is generous."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a watch waits for a start, a heartbeat and progress, in seconds."""

    start_s: float = START_S
    stale_s: float = STALE_S
    stall_s: float = STALL_S


@dataclass(frozen=True, slots=True)
class Watch:
    """What a watch knows of a stream from earlier checks; times in microseconds."""

    since_us: int
    """When the stream was last started, or the watch began."""
    position: str = ""
    moved_us: int = 0
    """When the position was first seen to be this one, or nothing was waiting."""
    is_gone: bool = False
    """The job's process was of this machine, and has ended."""
    has_heeded: bool = False
    """The job has heeded a pause, which may be taken back by now."""

    def look(
        self,
        stream: StreamState | None,
        now_us: int,
        *,
        is_gone: bool = False,
        has_heeded: bool = False,
    ) -> Watch:
        """Return what is known after another check."""
        seen = replace(self, is_gone=is_gone, has_heeded=has_heeded)
        if stream is None:
            return replace(seen, moved_us=now_us)
        position = str(stream.position)
        if position != self.position or stream.lag_us == 0 or not self.moved_us:
            return replace(seen, position=position, moved_us=now_us)
        return seen


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """The event that the stream trigger sends to its sensor."""

    pipeline: str
    verdict: Verdict
    detail: str = ""
    generation: int = 0
    at_us: int = 0
    standing: Mapping[str, str] = field(default_factory=dict)
    """Tables that stand still, of which the task's log has told, with the codes of their errors."""
    error: str = ""
    """What the stream failed with, as `StoredError` holds it; `detail` is what that prints."""

    def to_payload(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return asdict(self) | {"verdict": self.verdict.value}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> StreamEvent:
        """Read an event, also of another release."""
        return cls(
            pipeline=str(payload["pipeline"]),
            verdict=Verdict(payload["verdict"]),
            detail=str(payload.get("detail", "")),
            generation=int(payload.get("generation", 0)),
            at_us=int(payload.get("at_us", 0)),
            standing=dict(payload.get("standing", {})),
            error=str(payload.get("error", "")),
        )


def failure_of(verdict: Verdict, detail: str, state: PipelineState | None) -> StoredError:
    """Return a failed stream's error as the state store has it; empty if it has not failed."""
    if verdict is not Verdict.FAILED:
        return NO_ERROR
    if state is None or state.phase is not Phase.FAILED:
        return StoredError.saying(detail)
    return state.error


def judge(
    state: PipelineState | None,
    stream: StreamState | None,
    *,
    goal: Goal,
    watch: Watch,
    patience: Patience,
    now_us: int,
) -> tuple[Verdict, str]:
    """Return a stream's verdict and the reason, by heartbeat, position and lag."""
    if state is None or state.phase in _NOT_STREAMING:
        phase = "unknown" if state is None else state.phase.value
        return Verdict.FAILED, f"there is no stream to watch: the pipeline is in phase {phase}"
    if state.phase is Phase.FAILED:
        return Verdict.FAILED, str(state.error)
    if _has_reached(goal, state, stream, watch):
        return Verdict.REACHED, "" if stream is None else str(stream.position)
    silence_s = _silence_s(state, stream, watch, now_us)
    is_silent = silence_s > (
        patience.stale_s if state.phase is Phase.STREAMING else patience.start_s
    )
    if state.wanted is Wanted.STOP:
        is_over = state.phase is not Phase.STREAMING or is_silent
        return (Verdict.STOPPED, "") if is_over else (Verdict.WAITING, "it is asked to stop")
    word_s = (now_us - max(state.lease_until_us - int(LEASE_S * _US), watch.since_us)) / _US
    if watch.is_gone and state.phase is Phase.STREAMING and word_s > GONE_S:
        return Verdict.LOST, f"its process is gone, the last word is {word_s:.0f} s old"
    if silence_s > GONE_S and _has_ended(state, stream, now_us):
        why = "it was stopped, is wanted again, and nobody has started it"
        return (Verdict.ENDED if watch.has_heeded else Verdict.LOST), why
    if is_silent:
        return Verdict.LOST, _silent(state, silence_s)
    stalled_s = (now_us - watch.moved_us) / _US if watch.moved_us else 0.0
    if state.phase is Phase.STREAMING and stalled_s > patience.stall_s:
        return Verdict.LOST, f"the position stands still for {stalled_s:.0f} s at {watch.position}"
    return Verdict.WAITING, ""


def _has_reached(
    goal: Goal, state: PipelineState, stream: StreamState | None, watch: Watch
) -> bool:
    """Tell whether the stream has reached its goal."""
    if stream is None or goal is Goal.STOPPED or not _is_of_its_owner(state, stream):
        return False
    if goal is Goal.CONSISTENT:
        return not stream.inconsistent
    # a lag of nothing from before the watch says nothing about what was committed since
    return stream.lag_us == 0 and stream.heartbeat_us > watch.since_us


def _has_ended(state: PipelineState, stream: StreamState | None, now_us: int) -> bool:
    """Tell whether the last job that was started has streamed and ended.

    Each start takes a generation of its own, so a job that has yet to begin has no stream.
    """
    is_free = state.phase is Phase.STOPPED and state.lease_until_us <= now_us
    return is_free and stream is not None and stream.generation == state.generation


def _is_of_its_owner(state: PipelineState, stream: StreamState) -> bool:
    """Tell whether the stream's state is of its current owner, or of a stream that ended well.

    The state of an older generation's job says nothing of the job that was started after it.
    """
    if state.phase is Phase.STREAMING:
        return stream.generation == state.generation and stream.heartbeat_us > 0
    return state.phase is Phase.STOPPED


def _silence_s(
    state: PipelineState, stream: StreamState | None, watch: Watch, now_us: int
) -> float:
    """Return the seconds since the last heartbeat, or since any owner's last update."""
    heard_us = state.updated_us
    if state.phase is Phase.STREAMING:
        heard_us = 0 if stream is None else stream.heartbeat_us
    return (now_us - max(heard_us, watch.since_us)) / _US


def _silent(state: PipelineState, silence_s: float) -> str:
    """Describe for how long the stream has been silent."""
    if state.phase is Phase.STREAMING:
        return f"no heartbeat for {silence_s:.0f} s under generation {state.generation}"
    return f"it is wanted, but {state.phase.value} for {silence_s:.0f} s and nobody has begun"
