"""Windows of time as values of a column.

A schedule's windows are instants, from `start` up to, not including, `end`. What a column holds of
an instant depends on its clock. Moments in UTC and counts since 1970 go on as time does. A wall
clock does not: where a zone's clocks are put back, an hour is read twice, and where they are put
forward, one is never read, though a column may still hold it.

So of a wall clock a window has every reading that the clock shows in it, and what lies between: an
hour that is there twice belongs to both of the windows that it lies in, and an hour that is left
out to the window in which, or at whose end, the clocks are put forward. Whatever the windows are,
if they follow each other in time then their readings leave no gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME = timedelta(0)
_US = timedelta(microseconds=1)
_S = timedelta(seconds=1)
_STEP = timedelta(minutes=30)
"""No zone has changed its offset twice within this time."""
_REACH = timedelta(hours=48)
"""No clock was ever put back so far: what lies farther from an end of a window is inside it."""


class Clock(StrEnum):
    """How a column keeps time: as an instant, a wall clock, a day or a count."""

    INSTANT = "instant"
    """A moment; its values are written in UTC."""
    WALL = "wall clock"
    """A date and a time of day as a clock shows them; no value says in which zone."""
    DAY = "day"
    """A date alone, in no zone."""
    COUNT = "count"
    """A whole number, which may be a count since 1970 in UTC."""


class Epoch(StrEnum):
    """The unit of a column that counts time since 1970-01-01 00:00:00 UTC."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"

    @property
    def unit(self) -> timedelta:
        """Return the length of one unit."""
        return timedelta(**{self.value: 1})


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time from `start` up to, not including, `end`."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("a window's ends are instants: they need a time zone")
        if self.end <= self.start:
            raise ValueError(f"a window ends after it starts: {self}")

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def wall_readings(window: Window, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return a window as wall-clock times of a zone: the first, and the first after it.

    Both hold over changes of the clock, such as daylight saving time.
    """
    start, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
    lows, highs = [_wall(start, zone)], [_wall_before(end, zone), _wall(end, zone)]
    near_start = min(end, start + _REACH)
    lows += [_wall(change, zone) for change in _changes(zone, start, near_start)]
    highs += [
        _wall_before(change, zone) for change in _changes(zone, max(start, end - _REACH), end)
    ]
    return min(lows), max(highs)


def whole_days(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return the first day of a range of times, and the first day after it."""
    first = start.replace(hour=0, minute=0, second=0, microsecond=0)
    last = end.replace(hour=0, minute=0, second=0, microsecond=0)
    return first, last if last == end else last + timedelta(days=1)


def counted(window: Window, epoch: Epoch) -> tuple[int, int]:
    """Return a window as counts of a unit: the first, and the first after it."""
    return _count(window.start, epoch.unit), _count(window.end, epoch.unit)


def rounded_up(reading: datetime, digits: int) -> datetime:
    """Return the first time not before `reading` that has only so many digits of a second."""
    unit = 10 ** (6 - digits)
    return reading + timedelta(microseconds=-reading.microsecond % unit)


def _count(instant: datetime, unit: timedelta) -> int:
    """Return how many units an instant is since 1970, rounded up."""
    return -((_EPOCH - instant) // unit)


def _wall(instant: datetime, zone: tzinfo) -> datetime:
    """Return an instant as a zone's wall-clock time."""
    return instant.astimezone(zone).replace(tzinfo=None)


def _wall_before(instant: datetime, zone: tzinfo) -> datetime:
    """Return a zone's wall-clock time at an instant, without a change of the clock right then."""
    return _wall(instant - _US, zone) + _US


def _changes(zone: tzinfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the instants at which a zone's clocks change, between two others."""
    while after < until:
        before = min(after + _STEP, until)
        if _offset(after, zone) != _offset(before, zone):
            change = _change(zone, after, before)
            if change < until:
                yield change
        after = before


def _change(zone: tzinfo, after: datetime, before: datetime) -> datetime:
    """Find the second at which a zone's offset changes, after `after` and up to `before`."""
    after, before = after.replace(microsecond=0), before.replace(microsecond=0)
    known = _offset(after, zone)
    while before - after > _S:
        middle = after + (before - after) // _S // 2 * _S
        if _offset(middle, zone) == known:
            after = middle
        else:
            before = middle
    return after + _S


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    """Return a zone's offset from UTC at an instant."""
    return instant.astimezone(zone).utcoffset() or _NO_TIME
