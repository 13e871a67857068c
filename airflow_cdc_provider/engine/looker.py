"""Looking at a server in a thread of its own, so that one that hangs holds up nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from airflow_cdc_provider.core.errors import CdcError

Answer = TypeVar("Answer")


class ServerQuery(Generic[Answer]):
    """Queries a server in a thread of its own, one query at a time, whenever `ask` is called."""

    def __init__(self, name: str, look: Callable[[], Answer]) -> None:
        self._look = look
        self._answered = threading.Condition()
        self._is_closed = False
        self._asked_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.answer: Answer | None = None
        """Of the last look that came to one; None before it."""
        self.error: CdcError | None = None
        """What the last look ended with, None if with an answer."""
        self.failures = 0
        """Looks in a row that ended with an error."""

    @property
    def is_looking(self) -> bool:
        """Tell whether a query is under way."""
        return self._asked_s is not None

    @property
    def is_fresh(self) -> bool:
        """Tell whether `answer` is of the last query, and none is under way."""
        return self.answer is not None and self.error is None and not self.is_looking

    @property
    def silent_s(self) -> float:
        """Seconds since the query that is under way was asked for, 0 if none is."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else time.monotonic() - asked_s

    def ask(self) -> None:
        """Start a query, unless one is under way."""
        with self._answered:
            if self._is_closed or self._asked_s is not None:
                return
            self._asked_s = time.monotonic()
            if self._thread.ident is None:
                self._thread.start()
            self._answered.notify_all()

    def forget(self) -> None:
        """Forget the last answer or error, if no query is under way: they are old."""
        with self._answered:
            if self._asked_s is None:
                self.answer, self.error = None, None

    def wait(self, timeout_s: float) -> bool:
        """Wait until no query is under way; False if one still is."""
        with self._answered:
            return self._answered.wait_for(lambda: self._asked_s is None, max(timeout_s, 0.0))

    def close(self) -> bool:
        """Stop the queries; False if one is under way, so that its connection is still in use."""
        with self._answered:
            self._is_closed = True
            self._answered.notify_all()
            return self._asked_s is None

    def _run(self) -> None:
        """Run the queries of the thread, and keep each one's answer or error."""
        while True:
            with self._answered:
                self._answered.wait_for(lambda: self._is_closed or self._asked_s is not None)
                if self._asked_s is None:
                    return
            error: CdcError | None = None
            try:
                self.answer = self._look()
            except CdcError as failed:
                error = failed
            with self._answered:
                self.error = error
                self.failures = self.failures + 1 if error else 0
                self._asked_s = None
                self._answered.notify_all()
