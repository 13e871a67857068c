"""Asking source and sink whether they answer, so that an outage is known within seconds.

Each is asked in a thread of its own: one that hangs holds up nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

from airflow_cdc_provider.core.errors import (
    CdcError,
    SinkUnreachableError,
    SourceUnreachableError,
)
from airflow_cdc_provider.engine.job import Job, JobServers
from airflow_cdc_provider.engine.looker import ServerQuery
from airflow_cdc_provider.engine.outages import Outages, Part

EVERY_S = 2.0
SOON_S = 1.0
"""A server that answers at all answers a look in much less."""
SILENT_S = 5.0
"""A server that has not answered a look for so long is away."""


class Closes(Protocol):
    """Has a `close` method."""

    def close(self) -> None:
        """Close the connection."""


Opened = TypeVar("Opened", bound=Closes)
Answer = TypeVar("Answer")


class ServerLook(ServerQuery[Answer], Generic[Opened, Answer]):
    """Checks one server over a kept connection, and opens that again after a failure."""

    def __init__(
        self, name: str, open_it: Callable[[], Opened], ask: Callable[[Opened], Answer]
    ) -> None:
        super().__init__(name, self._look_over)
        self._open_it = open_it
        self._ask_it = ask
        self._opened: Opened | None = None

    def _look_over(self) -> Answer:
        """Query the server, over a new connection if none is open."""
        try:
            if self._opened is None:
                self._opened = self._open_it()
            return self._ask_it(self._opened)
        except CdcError:
            self._let_go()
            raise

    def close(self) -> bool:
        """Stop the queries, and close the connection unless a query is under way."""
        is_done = super().close()
        if is_done:
            self._let_go()
        return is_done

    def _let_go(self) -> None:
        """Close the connection, whether or not that fails."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(CdcError):
                opened.close()


def silences(servers: JobServers) -> Mapping[Part, CdcError]:
    """Return the error of each of a job's servers for when it does not answer."""
    return {
        Part.SINK: SinkUnreachableError(
            "the sink does not answer",
            where=f"sink {servers.sink}",
            risk="it falls behind; nothing is lost while the source keeps its log",
            remedy="bring it back; the job goes on by itself",
        ),
        Part.SOURCE: SourceUnreachableError(
            "the source does not answer",
            where=f"source {servers.source}",
            risk="the sink falls behind; nothing is lost while the source keeps its log",
            remedy="bring it back; the job goes on by itself",
        ),
    }


def note_failure(
    outages: Outages, part: Part, look: ServerQuery[Answer], silence: CdcError
) -> bool:
    """Note in the outages if a server does not answer its check; return whether it does not.

    `silence` is the error of a server that says nothing.
    """
    if look.silent_s > SILENT_S:
        outages.note(part, silence, for_s=look.silent_s)
    elif look.error is not None:
        outages.note(part, look.error, tries=look.failures)
    else:
        return False
    return True


def _note_answer(
    outages: Outages, part: Part, look: ServerQuery[Answer], silence: CdcError
) -> None:
    """Note in the outages whether a server answers its check."""
    if not note_failure(outages, part, look, silence) and not look.is_looking:
        outages.over(part)


@contextmanager
def watched_servers(job: Job, outages: Outages) -> Iterator[None]:
    """Check source and sink every two seconds while the block runs, and note which fails."""
    looks: Mapping[Part, ServerQuery[Any]] = {
        Part.SINK: ServerLook(
            "cdc-sink-look", job.sink().open_ledger, lambda ledger: ledger.generation()
        ),
        Part.SOURCE: ServerLook(
            "cdc-source-look", lambda: job.source().log_end(purpose="watch"), lambda end: end.now()
        ),
    }
    silent = silences(job.servers)
    closing = threading.Event()

    def watch() -> None:
        while not closing.wait(EVERY_S):
            for look in looks.values():
                look.ask()
            until_s = time.monotonic() + SOON_S
            for part, look in looks.items():
                look.wait(until_s - time.monotonic())
                _note_answer(outages, part, look, silent[part])
            outages.tell()

    thread = threading.Thread(target=watch, name="cdc-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join(timeout=60)
        for look in looks.values():
            look.close()
