"""A pace in rows and bytes: what was handed out is a debt, and time pays it.

A split is handed out when nothing is owed, and all of it is owed at once. So in any stretch of time
no more is handed out than the pace allows, and one split. How large a split is is an estimate until
it was read; then the debt is made right.

Nothing here knows the time: it is given as seconds of a clock that does not go back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_NOTHING_S = 1e-6
"""Less than this is the rounding of numbers."""


@dataclass(frozen=True, slots=True)
class Size:
    """The rows and bytes of a split, planned or read."""

    rows: float
    bytes: float


@dataclass(slots=True)
class _Debt:
    """What is owed of one unit, and how much of it a second pays."""

    rate: float | None = None
    owed: float = 0.0
    at_s: float = 0.0

    def pay(self, now_s: float) -> None:
        """Take off what was paid since the last time."""
        paid = (now_s - self.at_s) * self.rate if self.rate is not None else self.owed
        self.owed = max(0.0, self.owed - paid)
        self.at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return in how many seconds nothing is owed."""
        self.pay(now_s)
        return self.owed / self.rate if self.rate else 0.0


@dataclass(slots=True)
class Pace:
    """Rows and bytes a second; each may be unlimited."""

    _rows: _Debt = field(default_factory=_Debt)
    _bytes: _Debt = field(default_factory=_Debt)

    def change(self, rows_per_s: float | None, bytes_per_s: float | None, *, now_s: float) -> None:
        """Go on at another pace; what is owed stays owed."""
        for debt, rate in ((self._rows, rows_per_s), (self._bytes, bytes_per_s)):
            debt.pay(now_s)
            debt.rate = rate

    def wait_s(self, *, now_s: float) -> float:
        """Return how many seconds it takes until a split may be handed out; 0.0: now."""
        wait_s = max(self._rows.wait_s(now_s), self._bytes.wait_s(now_s))
        return wait_s if wait_s > _NOTHING_S else 0.0

    def take(self, planned: Size, *, now_s: float) -> None:
        """Note that a split of about this size is handed out."""
        self.settle(Size(0, 0), planned, now_s=now_s)

    def settle(self, planned: Size, read: Size, *, now_s: float) -> None:
        """Note that a split that was handed out as `planned` was `read`."""
        self._settle(self._rows, read.rows - planned.rows, now_s)
        self._settle(self._bytes, read.bytes - planned.bytes, now_s)

    def begin(self, planned: Size, *, since_s: float, now_s: float) -> None:
        """Note that a split that was taken at `since_s` begins to be read only now."""
        for debt, size in ((self._rows, planned.rows), (self._bytes, planned.bytes)):
            paid = 0.0 if debt.rate is None else min(size, (now_s - since_s) * debt.rate)
            self._settle(debt, paid, now_s)

    @staticmethod
    def _settle(debt: _Debt, more: float, now_s: float) -> None:
        """Add to a debt, or take off it; where nothing is limited nothing is owed."""
        debt.pay(now_s)
        debt.owed = max(0.0, debt.owed + more) if debt.rate is not None else 0.0
