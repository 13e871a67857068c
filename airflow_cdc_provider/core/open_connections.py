"""Connections that some threads have open, so that another thread can shut them.

A thread that waits for a server which does not answer hears nothing, not even that it is to leave.
To close its socket does not wake it up either; to shut it down does: the read ends as if the server
had gone. So who begins threads that may hang gives them a group, and whoever opens a connection
notes it in the group of its thread. Connections that are noted once the group was shut are shut
at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

Shut = Callable[[Any], None]
"""Shuts a connection that another thread may be using; it never fails."""


class OpenConnections:
    """The open connections of one group of threads, so that another thread can close them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakKeyDictionary[Any, Shut] = WeakKeyDictionary()
        self._is_shut = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Add each connection that this thread opens in the block to the group."""
        token = _GROUP.set(self)
        try:
            yield
        finally:
            _GROUP.reset(token)

    def add(self, connection: Any, shut: Shut) -> None:
        """Add a connection, with the function that closes it."""
        with self._lock:
            self._open[connection] = shut
            is_late = self._is_shut
        if is_late:
            shut(connection)

    def shut(self) -> None:
        """Close all connections of the group, and each one that is added later."""
        with self._lock:
            self._is_shut = True
            found = list(self._open.items())
        for connection, shut in found:
            shut(connection)


_GROUP: ContextVar[OpenConnections | None] = ContextVar("cdc_open_connections", default=None)


def note_open(connection: Any, shut: Shut) -> None:
    """Add a connection to the group of this thread, if the thread is in one."""
    group = _GROUP.get()
    if group is not None:
        group.add(connection, shut)
