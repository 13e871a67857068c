"""Doing something on another thread while a test goes on: who writes to a server, or watches it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def beside(step: Callable[[], object], *, every_s: float = 0.0) -> Iterator[None]:
    """Do a step again and again until the end of the block; its error is raised there."""
    ending = threading.Event()

    def go_on() -> None:
        while not ending.wait(every_s):
            step()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(go_on)
        try:
            yield
        finally:
            ending.set()
        running.result(60)
