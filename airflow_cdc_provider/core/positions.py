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
    """One source transaction's place in the log that it was read from."""

    @property
    def committed_us(self) -> int:
        """The time of the original commit, in microseconds since the epoch."""

    @property
    def name(self) -> str:
        """The transaction's name, which no other transaction of this log has."""

    @property
    def sort_text(self) -> str:
        """Where the transaction begins, as text that sorts in log order."""

    @property
    def where(self) -> str:
        """Where the transaction is in the log, for an error message."""

    def is_called(self, text: str) -> bool:
        """Tell whether a person's text names this transaction or the place where it begins."""


class LogPosition(Protocol):
    """A boundary between transactions in a source's log; all before it is contained."""

    @property
    def system(self) -> str:
        """The system whose log it is."""

    @property
    def server(self) -> str:
        """The server's own id; empty for a position that is of several servers."""

    @property
    def short(self) -> str:
        """The place alone, as a short text for a status line."""

    @property
    def exact(self) -> tuple[str, ...]:
        """Texts that also differ for equal positions whose known history of the log differs."""

    def contains(self, point: TransactionPoint) -> bool:
        """Tell whether a transaction is at or before this position."""

    def covers(self, other: LogPosition) -> bool:
        """Tell whether every transaction up to `other` is also up to this position."""

    def reaches(self, end: LogPosition) -> bool:
        """Tell whether no log is left to read up to `end`; False if that is not known."""

    def placed_by(self, passed: Iterable[LogPosition]) -> LogPosition:
        """Return this position with the place in the log of the latest in `passed`, if it has none.

        Only if it has all of `passed`: nothing up to that place is missing here.
        """

    def may_be_purged(self, end: LogPosition) -> bool:
        """Tell whether a server whose log ends at `end` may have purged the log at this position.

        True where that is not known.
        """

    def meet(self, other: LogPosition) -> LogPosition:
        """Return a position that both cover, as late as possible."""

    def join(self, other: LogPosition) -> LogPosition:
        """Return the later of two positions; one of them must cover the other."""

    def before(
        self, point: TransactionPoint, passed: Iterable[TransactionPoint], end: LogPosition
    ) -> LogPosition:
        """Return the position just before a transaction that `end` contains.

        `passed` are between this position and `end`; `point` itself may be among them.
        """

    def bare(self) -> LogPosition:
        """Return the position as a place alone, whose text is always the same."""

    def to_json(self) -> dict[str, Any]:
        """Return the position as plain values, with its system's name as `system`."""

    def facts(self) -> Mapping[str, Fact]:
        """Return the position as the fields that Debezium's envelope has for its source."""
