"""The one gate through which splits are handed out to be read; safe to use from several threads.

Who wants to read a split asks here first, and gets leave or the reason why not. Leave is charged at
once by what the split is planned to hold, and made right when it was read. Nobody waits inside: who
is refused waits where it can still be stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import CriticalLoadError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.throttle import NO_LIMITS, ThrottleLimits
from airflow_cdc_provider.engine.throttle.load import NOT_LOOKED, LoadSeen, closed_by, is_critical
from airflow_cdc_provider.engine.throttle.pace import Pace, Size

ASK_AGAIN_S = 0.2
"""How soon a reader asks again that was refused because of the servers' load."""
_OLD_S = 20.0
"""What was seen of the load is believed for so long; who looks may hang at the state store."""
_NO_SIZE = Size(0, 0)


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave to read a split, and the size that it was charged with."""

    planned: Size
    at_s: float = 0.0
    """When it was given, by the throttle's clock."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no split is handed out now, and when to ask again."""

    why: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What the throttle does now."""

    limits: ThrottleLimits
    closed_by: str
    """The load that lets no split through; empty while it does."""
    throttled_s: float
    """Seconds in which somebody was refused, so far."""


class Throttle:
    """Hands out splits at a pace, and none while the servers' load is too high.

    `split_rows` is what a split holds about, `most_bytes` the most that one can hold.
    """

    def __init__(
        self,
        limits: ThrottleLimits = NO_LIMITS,
        *,
        split_rows: int = 0,
        most_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._limits = limits
        self._split_rows = split_rows
        self._most_bytes = most_bytes
        self._pace = Pace()
        self._read: dict[TableId, Size] = {}
        self._seen: LoadSeen = NOT_LOOKED
        self._seen_s = 0.0
        self._criticals: list[CriticalLoadError] = []
        self._throttled_s = 0.0
        self._refused_s: float | None = None
        self._pace_at(clock())

    @property
    def limits(self) -> ThrottleLimits:
        """Return the limits that hold now."""
        return self._limits

    @property
    def criticals(self) -> int:
        """Return how often the load was critical; who enters passes what it began with."""
        return len(self._criticals)

    def change(self, limits: ThrottleLimits) -> None:
        """Go on under other limits."""
        with self._lock:
            self._limits = limits
            self._pace_at(self._clock())

    def see(self, seen: LoadSeen) -> CriticalLoadError | None:
        """Take in what was seen of the load; return the error by which it ends what reads rows."""
        with self._lock:
            self._seen, self._seen_s = seen, self._clock()
            if not is_critical(self._limits, seen):
                return None
            error = _critical(self._limits, seen)
            self._criticals.append(error)
            return error

    def enter(self, table: TableId | None = None, *, since: int = 0) -> Leave | Refusal:
        """Ask to read a split; `CriticalLoadError` if the load was critical since `since`."""
        with self._lock:
            if len(self._criticals) > since:
                raise self._criticals[-1]
            now_s = self._clock()
            why, wait_s = self._closed_by(now_s), ASK_AGAIN_S
            if not why:
                wait_s = self._pace.wait_s(now_s=now_s)
                why = f"the pace is {self._limits.pace}" if wait_s else ""
            self._count(now_s, is_refused=bool(why))
            if why:
                return Refusal(why, wait_s)
            planned = self._planned(table)
            self._pace.take(planned, now_s=now_s)
            return Leave(planned, now_s)

    def read(self, leave: Leave, table: TableId, *, rows: int, size: int) -> None:
        """Note how many rows and bytes a split had that was read under a leave."""
        with self._lock:
            self._pace.settle(leave.planned, Size(rows, size), now_s=self._clock())
            before = self._read.get(table, _NO_SIZE)
            self._read[table] = Size(before.rows + rows, before.bytes + size)

    def begin(self, leave: Leave) -> None:
        """Note that a split was waited for after the leave, and is handed out only now."""
        with self._lock:
            self._pace.begin(leave.planned, since_s=leave.at_s, now_s=self._clock())

    def unused(self, leave: Leave) -> None:
        """Give back a leave under which nothing was read."""
        with self._lock:
            self._pace.settle(leave.planned, _NO_SIZE, now_s=self._clock())

    def charge(self, table: TableId, *, rows: int, size: int) -> None:
        """Note rows that were read without asking, as where a read had begun before."""
        self.read(Leave(_NO_SIZE), table, rows=rows, size=size)

    def rest(self) -> None:
        """Note that nobody reads now: what was seen is old when somebody begins again."""
        with self._lock:
            self._seen = NOT_LOOKED
            self._count(self._clock(), is_refused=False)

    def state(self) -> ThrottleState:
        """Return what the throttle does now."""
        with self._lock:
            refused_s = 0.0 if self._refused_s is None else self._clock() - self._refused_s
            return ThrottleState(
                self._limits,
                self._closed_by(self._clock()),
                self._throttled_s + refused_s,
            )

    def _closed_by(self, now_s: float) -> str:
        """Return why the load lets no split through, by what was seen lately."""
        seen = self._seen
        if seen is not NOT_LOOKED and now_s - self._seen_s > _OLD_S:
            seen = seen.forgotten(f"is not known: nobody looked for {_OLD_S:.0f} s")
        return closed_by(self._limits, seen)

    def _pace_at(self, now_s: float) -> None:
        """Set the pace by the limits."""
        limits = self._limits
        self._pace.change(limits.rows_per_second, limits.bytes_per_second, now_s=now_s)

    def _count(self, now_s: float, *, is_refused: bool) -> None:
        """Add up the time in which somebody is refused."""
        if is_refused:
            self._refused_s = now_s if self._refused_s is None else self._refused_s
        elif self._refused_s is not None:
            self._throttled_s += now_s - self._refused_s
            self._refused_s = None

    def _planned(self, table: TableId | None) -> Size:
        """Return what a split holds, by what its table's held so far; at first the most it can."""
        read = _NO_SIZE if table is None else self._read.get(table, _NO_SIZE)
        if not read.rows:
            return Size(self._split_rows, self._most_bytes)
        return Size(
            self._split_rows, min(self._most_bytes, self._split_rows * read.bytes / read.rows)
        )


def _critical(limits: ThrottleLimits, seen: LoadSeen) -> CriticalLoadError:
    """Return the error by which a critical load ends what reads rows."""
    return CriticalLoadError(
        f"Threads_running {seen.threads} of the source is critical: "
        f"critical_threads_running is {limits.critical_threads_running}",
        where="snapshot.throttle",
        risk="none: what was read stays, and the same again goes on from there",
        remedy="see what loads the source; when it has passed, `run` the pipeline again, or ask "
        "for the request again",
    )
