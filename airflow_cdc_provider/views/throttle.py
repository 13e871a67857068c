"""How rows are throttled, in words: under what limits, and why no split is handed out now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.records import Note
from airflow_cdc_provider.core.throttle import NO_LIMITS, ThrottleLimits, ThrottleWish

THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class ThrottleView:
    """The limits under which an owner reads rows now, or a person's wish while it reads none."""

    limits: ThrottleLimits
    origin: str
    """Where the limits come from: the file, or who set which."""
    is_reading: bool
    """The owner reads rows under them now."""
    closed_by: str = ""
    """The load that lets no split be read; empty while it does."""
    since_us: int = 0
    throttled_s: float = 0.0
    """Seconds in which a split had to wait, since the job or request began."""

    @property
    def text(self) -> str:
        """Return the throttle in one line; empty if nothing is limited."""
        if self.closed_by:
            since = datetime.fromtimestamp(self.since_us / 1e6, UTC)
            return f"{THROTTLED}: {self.closed_by}, since {since:%H:%M:%S} UTC"
        if self.limits == NO_LIMITS and not self.is_reading:
            return f"throttle: no limit ({self.origin})"
        return "" if self.limits == NO_LIMITS else f"throttle: {self.limits} ({self.origin})"

    def to_json(self) -> dict[str, Any]:
        """Return the throttle as plain values; later releases only add fields."""
        return {
            "limits": self.limits.to_json(),
            "origin": self.origin,
            "reading": self.is_reading,
            "closed_by": self.closed_by,
            "since_us": self.since_us,
            "throttled_s": self.throttled_s,
            "text": self.text,
        }


def throttle_of(
    noted: Note | None, wished: Note | None, generation: int, *, is_owned: bool
) -> ThrottleView | None:
    """Return the throttle of a living owner that reads rows, else what a person wants of it.

    None where nobody reads rows under limits, and nobody changed those of the file.
    """
    form: Mapping[str, Any] = {} if noted is None else noted.form
    if is_owned and form and form["generation"] == generation:
        return ThrottleView(
            ThrottleLimits.from_json(form["limits"]),
            str(form["origin"]),
            is_reading=True,
            closed_by=str(form["closed_by"]),
            since_us=int(form["since_us"]),
            throttled_s=float(form["throttled_s"]),
        )
    if wished is None:
        return None
    wish = ThrottleWish.from_json(wished.at_us, wished.form)
    return ThrottleView(wish.limits, wish.origin, is_reading=False) if wish.changes else None
