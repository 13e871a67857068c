"""How far a source's log reaches back, beside the place up to which it is applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogReach:
    """How much log a source keeps, and how much of that is applied already."""

    files: int
    kept_bytes: int
    """From the oldest file's beginning to the end of the log."""
    applied_bytes: int | None
    """Of these, what lies before the stream's position and may go; None if that is not known, as of
    a position of GTIDs alone, or where it is outside."""
    kept_s: int
    """Seconds after which the source lets go of log, by its settings; 0 is never."""
    limit_bytes: int = 0
    """Bytes of log from which on it lets go of log, whatever its age; 0 is none."""
    is_outside: bool = False
    """The position is known to lie in none of these files: the stream cannot go on from it."""
