"""Statements of a job that wait at the sink for a lock of another session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LockWait:
    """One session of the job whose statement waits for a lock on a table, or on the server."""

    session: int
    """The server's number of the session that waits."""
    for_s: float
    waits_for: str
    """In the server's own words."""
    table: str = ""
    """The sink's table, as `database.table`; empty where it is not shown."""
    holders: tuple[str, ...] = ()
    """The sessions that hold the lock; none where the account may not see them."""
