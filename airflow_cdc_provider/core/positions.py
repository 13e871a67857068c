"""Places in a source's log, as the engine knows them.

What a place is made of is each system's own: the engine only asks. There is no `<`, because two
positions may share no common ground; asked then, they raise `IncomparablePositionsError`. Positions
are frozen values: equal if they are one place, whatever is known of the log before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

Fact = str | int


class TransactionPoint(Protocol):
    """One source transaction's place in the log it was read from."""

    @property
    def committed_us(self) -> int:
        """The original commit's time, microseconds since the epoch, as fine as the source says."""

    @property
    def name(self) -> str:
        """What no other transaction of this log is called."""

    @property
    def sort_text(self) -> str:
        """Where it begins, in digits and dashes that sort as the log does."""

    @property
    def where(self) -> str:
        """The place for people, as an error names it."""

    def is_called(self, text: str) -> bool:
        """Tell whether a person means this transaction: by its name, or by where it begins."""


class LogPosition(Protocol):
    """Everything up to a boundary between transactions."""

    @property
    def system(self) -> str:
        """The system whose log it is."""

    @property
    def server(self) -> str:
        """The server's own name for itself; empty where it is a position of several."""

    @property
    def short(self) -> str:
        """The place alone, for a line that is written anew each second."""

    @property
    def exact(self) -> tuple[str, ...]:
        """Texts that tell apart what is equal: with what is known of the log before the place."""

    def contains(self, point: TransactionPoint) -> bool:
        """Tell whether `point` lies at or before this position."""

    def covers(self, other: LogPosition) -> bool:
        """Tell whether everything up to `other` is also up to here."""

    def reaches(self, end: LogPosition) -> bool:
        """Tell whether nothing is left to read up to `end`; False where that cannot be told."""

    def placed_by(self, passed: Iterable[LogPosition]) -> LogPosition:
        """Return this position with a place in the log, if it has none but has all of `passed`.

        The place is that of the latest of them: nothing up to there is missing here.
        """

    def may_be_purged(self, end: LogPosition) -> bool:
        """Tell whether a server whose log ends at `end` may have purged it here, if in doubt so."""

    def meet(self, other: LogPosition) -> LogPosition:
        """Return a position that both cover, as late as can be told."""

    def join(self, other: LogPosition) -> LogPosition:
        """Return the later of two positions; one of them must cover the other."""

    def before(
        self, point: TransactionPoint, passed: Iterable[TransactionPoint], end: LogPosition
    ) -> LogPosition:
        """Return the position just before `point`, which `end` contains.

        `passed` lie between this position and `end`; `point` itself may be among them.
        """

    def bare(self) -> LogPosition:
        """Return the place alone, which always has the same text."""

    def to_json(self) -> dict[str, Any]:
        """Write it; the form names the system as `system`, and is read by it."""

    def facts(self) -> Mapping[str, Fact]:
        """Return what an envelope tells of rows that were read here, by Debezium's names."""
