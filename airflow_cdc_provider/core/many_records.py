"""Making very many records at once.

Python's collector looks through all objects that are alive as their number grows. Records are
trees: none is ever found, and of 100,000 splits the looking takes longer than the reading.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
