"""Turns of the writers that one process has at a log, so that none waits for ever.

What a commit may say is decided by the manifest alone. But who writes rows for a position, and
then finds that the position has moved, has to write them again; beside a busy stream, again and
again. So threads of one process take turns.
"""

from __future__ import annotations

import threading

from airflow_cdc_provider.systems.files.object_store import ObjectStore

_TURNS: dict[str, threading.Lock] = {}


def turn_at(store: ObjectStore) -> threading.Lock:
    """Return the lock for whoever writes and commits at a log in this process."""
    return _TURNS.setdefault(str(store), threading.Lock())
