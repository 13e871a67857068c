"""How fast splits may be handed out, and under what load of the servers none is.

The pipeline file says the limits, and a person may change them while the pipeline runs: such a wish
is kept in the state store, and whoever reads rows takes it up within seconds. A wish says which
limits it changes; all others are the file's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from airflow_cdc_provider.core.plurals import counted


@dataclass(frozen=True, slots=True)
class ThrottleLimits:
    """The limits under which splits are handed out; None is no limit."""

    rows_per_second: float | None = None
    mb_per_second: float | None = None
    max_threads_running: int | None = None
    """Threads that run at the source, without the pipeline's own: above it no split is given."""
    critical_threads_running: int | None = None
    """From so many on what reads rows ends with an error."""
    max_replica_lag_s: float | None = None
    """Seconds that a replica may be behind: above it no split is given."""

    @property
    def is_none(self) -> bool:
        """Tell whether nothing is limited."""
        return self == NO_LIMITS

    @property
    def looks_at_load(self) -> bool:
        """Tell whether a limit is about the threads that run at the source."""
        return self.max_threads_running is not None or self.critical_threads_running is not None

    @property
    def bytes_per_second(self) -> float | None:
        """Return the pace in bytes."""
        return None if self.mb_per_second is None else self.mb_per_second * 1024 * 1024

    def changed(self, values: Mapping[str, float | None]) -> ThrottleLimits:
        """Return the limits with some of them changed; None takes a limit away."""
        typed: dict[str, Any] = {name: _typed(name, value) for name, value in values.items()}
        return replace(self, **typed)

    def wrong(self, *, has_replicas: bool) -> tuple[str, str, str] | None:
        """Return a limit that does not go with the others, what is wrong, and the fix."""
        most, critical = self.max_threads_running, self.critical_threads_running
        if most is not None and critical is not None and critical <= most:
            return (
                "critical_threads_running",
                f"{critical} ends the snapshot before max_threads_running, {most}, holds it up",
                f"write more than {most}",
            )
        if self.max_replica_lag_s is not None and not has_replicas:
            return (
                "max_replica_lag",
                "it is the lag of replicas, and the file names none",
                "name them in snapshot.throttle.replicas, or leave it out",
            )
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the limits as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> ThrottleLimits:
        """Read limits from their JSON form; what a later release added is left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in form.items() if name in known})

    @property
    def pace(self) -> str:
        """Return the pace in words, empty if there is none."""
        rows, size = self.rows_per_second, self.mb_per_second
        parts = [] if rows is None else [f"{_number(rows)} rows/s"]
        parts += [] if size is None else [f"{_number(size)} MB/s"]
        return ", ".join(parts)

    def texts(self) -> Iterator[str]:
        """Yield each limit in words."""
        if self.pace:
            yield self.pace
        if self.max_threads_running is not None:
            yield f"up to {counted(self.max_threads_running, 'running thread')}"
        if self.critical_threads_running is not None:
            yield f"the end at {counted(self.critical_threads_running, 'running thread')}"
        if self.max_replica_lag_s is not None:
            yield f"replicas up to {_number(self.max_replica_lag_s)} s behind"

    def __str__(self) -> str:
        return ", ".join(self.texts()) or "no limit"


NO_LIMITS = ThrottleLimits()
NAMES = tuple(each.name for each in fields(ThrottleLimits))
_WHOLE = frozenset({"max_threads_running", "critical_threads_running"})


@dataclass(frozen=True, slots=True)
class ThrottleWish:
    """What a person wants of the throttle, in place of what the file says."""

    at_us: int
    """When it was stored; a wish of another time is another wish."""
    changes: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    """The limits that it changes; empty: the file's hold."""
    limits: ThrottleLimits = NO_LIMITS
    """All limits, with the rest as the file said when it was wished."""
    by: str = ""

    @classmethod
    def from_json(cls, at_us: int, form: Mapping[str, Any]) -> ThrottleWish:
        """Read a wish from the note that the state store keeps."""
        return cls(
            at_us,
            dict(form["changes"]),
            ThrottleLimits.from_json(form["limits"]),
            str(form["by"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the wish as the note that the state store keeps."""
        return {"changes": dict(self.changes), "limits": self.limits.to_json(), "by": self.by}

    def over(self, file: ThrottleLimits) -> ThrottleLimits:
        """Return the limits of a file that was read after the wish, with what the wish changes."""
        known = {name: value for name, value in self.changes.items() if name in NAMES}
        return file.changed(known)

    @property
    def origin(self) -> str:
        """Say where the limits come from."""
        if not self.changes:
            return FROM_FILE
        if set(self.changes) >= set(NAMES):
            return f"set by {self.by}"
        return f"{FROM_FILE}, {', '.join(sorted(self.changes))} set by {self.by}"


FROM_FILE = "from the file"


def _typed(name: str, value: float | None) -> float | None:
    """Return a limit's value as whole threads where it counts these."""
    return int(value) if name in _WHOLE and value is not None else value


def _number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"
