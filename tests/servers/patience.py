"""Waiting for what other processes do: as long as they get on, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

QUIET_S = 120.0
"""Who gives no sign for so long has come to a stop. A test's own time limit is the last bound."""


class StandstillError(AssertionError):
    """Nothing happened for a long time, and what was waited for is not there."""


def wait_while_working(
    until: Callable[[], bool],
    what: str,
    *,
    signs: Callable[[], object],
    told: Callable[[], str] = str,
    poll_s: float = 0.2,
    quiet_s: float = QUIET_S,
) -> None:
    """Look until something is so; fail when `signs` have been the same for `quiet_s`.

    `signs` is anything that changes with the work that is waited for, such as the size of its logs.
    `told` says in the error what is known of it.
    """
    seen, changed = signs(), time.monotonic()
    while not until():
        if (now := signs()) != seen:
            seen, changed = now, time.monotonic()
        elif time.monotonic() - changed > quiet_s:
            raise StandstillError(f"{what} did not come about:\n{told()}")
        time.sleep(poll_s)


def sizes(paths: Iterable[Path]) -> int:
    """Return how many bytes there are in files; those that go meanwhile count as empty."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def wait_until(
    condition: Callable[[], bool], *, seconds: float = 200, every_s: float = 0.05
) -> None:
    """Look until something is so; fail when it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
