"""Where a pipeline is, in one line: what is read, how fast, and how long that may take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.views.outages import outage_text
from airflow_cdc_provider.views.started import FOLLOWING
from airflow_cdc_provider.views.status import PipelineStatus

_SHORTLY_S = 15.0
_A_WHILE_S = 180.0
_LEAST_FOR_A_GUESS_S = 10.0
_TABLES_NAMED = 2
_NOBODY_HAS_BEGUN = frozenset({Phase.NEW, Phase.HANDED_OFF, Phase.STOPPED, Phase.FAILED})

_BETWEEN_RUNS = frozenset({Phase.HANDED_OFF, Phase.STOPPED})
"""A stream that ended, and one that is about to begin."""


class Rate:
    """Measures how fast a count grows, over the last seconds or minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, count: int, now_s: float) -> None:
        """Note the count at a time."""
        self._seen.append((now_s, count))
        while now_s - self._seen[0][0] > _A_WHILE_S and len(self._seen) > 2:
            self._seen.popleft()

    def per_s(self, within_s: float = _SHORTLY_S) -> float | None:
        """Return the growth a second, None if it is not known yet."""
        if not self._seen:
            return None
        now_s, last = self._seen[-1]
        since, count = next(each for each in self._seen if now_s - each[0] <= within_s)
        if since == now_s and len(self._seen) > 1:
            since, count = self._seen[-2]
        return (last - count) / (now_s - since) if now_s > since else None

    @property
    def seconds(self) -> float:
        """Return the seconds between the first and the last noted count."""
        return self._seen[-1][0] - self._seen[0][0] if self._seen else 0.0


class Pace:
    """Measures a pipeline's speed from one status to the next."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rows, self._changes = Rate(), Rate()

    def line(self, status: PipelineStatus, *, ended: str = "") -> str:
        """Return a pipeline's progress as one line, with speed and remaining time."""
        now_s = self._clock()
        self._rows.add(status.rows, now_s)
        self._changes.add(0 if status.stream is None else status.stream.changes, now_s)
        rates = self._rows.per_s(), self._changes.per_s()
        if ended:
            return progress_line(status, *rates, doing=f"{ended} ended")
        return progress_line(status, *rates, left=time_left(status, self._rows))


def progress_line(
    status: PipelineStatus,
    rows_per_s: float | None = None,
    changes_per_s: float | None = None,
    *,
    left: str = "",
    doing: str = "",
) -> str:
    """Return a pipeline's progress as one line."""
    parts = [f"{status.state.name}: {doing or status.summary}"]
    parts += filter(None, ("" if doing else status.doubt,))
    parts += [outage_text(outage, status.at_us) for outage in status.outages]
    if status.throttle is not None and status.is_throttled:
        parts.append(status.throttle.text)
    if status.state.phase in {Phase.PLANNING, Phase.SNAPSHOT}:
        parts.append(f"splits {_splits(status)}")
        parts.append(f"{counted(status.rows, 'row')}{_rate(rows_per_s)}")
        parts += filter(None, (left, _reading_text(status)))
    elif status.stream is not None:
        parts.append(f"{counted(status.stream.changes, 'change')}{_rate(changes_per_s)}")
        parts += [] if status.ended else [f"lag {lag_text(status)}"]
        parts.append(f"at {status.stream.position.short}")
    done = sum(table.phase == TablePhase.CONSISTENT.value for table in status.tables)
    word = "consistent"
    if any(table.phase == FOLLOWING for table in status.tables):  # they began without a snapshot
        done = sum(
            table.phase in {TablePhase.CONSISTENT.value, FOLLOWING} for table in status.tables
        )
        word = FOLLOWING
    waiting = sum(str(table.source) in status.waiting_tables for table in status.tables)
    behind = f", {waiting} of which wait{'s' * (waiting == 1)} at the sink" if waiting else ""
    parts.append(f"{done}/{len(status.tables)} tables {word}{behind}")
    return ", ".join(parts)


def time_left(status: PipelineStatus, rows: Rate) -> str:
    """Return about how long a snapshot may still take, as a range; empty if unknown.

    The servers' estimates of how many rows there are may be far off, and so may this be.
    """
    rates = [rate for s in (_SHORTLY_S, _A_WHILE_S) if (rate := rows.per_s(s))]
    if rows.seconds < _LEAST_FOR_A_GUESS_S or status.is_throttled:
        return ""
    to_read = sum(
        max(0, table.estimated_rows - table.rows)
        for table in status.tables
        if table.splits_finished < table.splits_planned or not table.planning_done
    )
    left = seconds_left(to_read, rates)
    return f"about {_duration(left[0])} to {_duration(left[1])} left" if left else ""


def seconds_left(to_read: int, rates: Sequence[float]) -> tuple[float, float] | None:
    """Estimate the seconds to read so many rows, at least and at most, by recent rates."""
    if not to_read or not rates:
        return None
    return 0.8 * to_read / max(rates), 1.3 * to_read / min(rates)


def is_begun(status: PipelineStatus) -> bool:
    """Tell whether the started job was heard from; until then the status is the last one's."""
    return status.state.phase not in _NOBODY_HAS_BEGUN


def lag_text(status: PipelineStatus) -> str:
    """Describe the stream's lag, or the last known lag and its age."""
    if status.last_lag_s is None:
        return "unknown"
    text = f"{status.last_lag_s:.1f} s"
    if status.state.phase in _BETWEEN_RUNS:
        text += " at the end of its last run"
    elif not status.is_streaming:
        text += " when last heard of"
    age = status.heartbeat_age_s
    return f"{text} ({age:.0f} s ago)" if age is not None and age > 10 else text


def _reading_text(status: PipelineStatus) -> str:
    """Return as text which tables are being read, and how many of their splits are done."""
    tables = [
        f"{table.source} {table.splits_finished}/{table.splits_planned}"
        for table in status.tables
        if table.phase == TablePhase.SNAPSHOT.value
    ]
    more = len(tables) - _TABLES_NAMED
    named = " and ".join(tables[:_TABLES_NAMED])
    return f"reading {named}{f' and {more} more' if more > 0 else ''}" if tables else ""


def _splits(status: PipelineStatus) -> str:
    """Return finished and planned splits as text."""
    more = "" if status.planning_done and status.tables else "+"
    return f"{status.splits_finished}/{status.splits_planned}{more}"


def _rate(per_s: float | None) -> str:
    """Return a rate as text; empty if it is not known."""
    return "" if per_s is None else f" ({per_s:,.0f}/s)"


def _duration(seconds: float) -> str:
    """Return a span of time in its largest unit."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(1, seconds):.0f} s"
