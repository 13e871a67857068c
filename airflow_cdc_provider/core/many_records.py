"""Making very many records at once.

Python's collector looks through all objects that are alive as their number grows. Records are
trees: none is ever found, and of 100,000 splits the looking takes longer than the reading.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 10_000
"""How many new objects are looked through at a time; Python's own number is 700."""


def collect_seldom() -> None:
    """Have the collector of this process look less often: an eighth of what a start costs is its.

    Modules are most of what is alive, and nothing of them is ever found.
    """
    gc.set_threshold(_YOUNG)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Turn the garbage collector off while very many records are made."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
