"""Whether the servers' load lets a split be handed out, judged from what was last seen there.

Unknown is not zero: a server that was not heard of, and a replica that does not replicate, let none
through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cdc_provider.core.throttle import ThrottleLimits


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that is not known, and why."""

    why: str


Lag = float | Unknown
"""Seconds that a replica is behind, if that is known."""


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """What was last seen of the servers' load."""

    threads: int | Unknown
    """Threads that run at the source, without the pipeline's own."""
    lags: Mapping[str, Lag] = field(default_factory=dict, hash=False)
    """Of each replica that the job knows, by its name."""

    def forgotten(self, why: str) -> LoadSeen:
        """Return that of the same servers nothing is known, and why."""
        return LoadSeen(Unknown(why), {name: Unknown(why) for name in self.lags})


NOT_LOOKED = LoadSeen(Unknown("is not known yet"))


def closed_by(limits: ThrottleLimits, seen: LoadSeen) -> str:
    """Return why no split may be handed out; empty if one may."""
    return _by_threads(limits, seen) or _by_replicas(limits, seen)


def is_critical(limits: ThrottleLimits, seen: LoadSeen) -> bool:
    """Tell whether the load is such that what reads rows must end."""
    most, threads = limits.critical_threads_running, seen.threads
    return most is not None and not isinstance(threads, Unknown) and threads >= most


def _by_threads(limits: ThrottleLimits, seen: LoadSeen) -> str:
    """Return why the source's running threads let no split through."""
    if not limits.looks_at_load:
        return ""
    if isinstance(seen.threads, Unknown):
        return f"Threads_running of the source {seen.threads.why}"
    most = limits.max_threads_running
    if most is not None and seen.threads > most:
        return f"Threads_running {seen.threads} is above {most}"
    return ""


def _by_replicas(limits: ThrottleLimits, seen: LoadSeen) -> str:
    """Return why the first replica that is late, or not heard of, lets no split through."""
    most = limits.max_replica_lag_s
    if most is None:
        return ""
    if not seen.lags:
        return (
            "max_replica_lag is set, and the process at work knows no replica of the file: "
            "`restart` the pipeline"
        )
    for name, lag in seen.lags.items():
        if isinstance(lag, Unknown):
            return f"the lag of replica {name} {lag.why}"
        if lag > most:
            return f"replica {name} is {lag:.0f} s behind, above {most:g} s"
    return ""
