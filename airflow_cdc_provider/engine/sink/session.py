"""The port of a session to a sink: one connection, and its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Session(Protocol):
    """One connection to a sink, which has at most one transaction open."""

    @property
    def where(self) -> str:
        """Return where the sink is, for errors."""

    def transaction(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a transaction and commit it, again as a whole if a deadlock undid it."""

    def begin(self) -> None:
        """Begin a transaction that stays open over several calls."""

    def commit(self) -> None:
        """Commit the open transaction."""

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
