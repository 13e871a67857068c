"""What keeps a job from going forward, for those who look at the pipeline meanwhile.

A server that is away is waited for, and a job that waits looks like one that has nothing to do. So
what fails is noted here by whoever meets it, and told to the state store as long as it lasts: since
when, how often it was tried, and when it is tried next. It is told once more when it is over.

Several parts of a job meet the same outage, and not all see its end at the same time. What has the
same code is one outage: it is over when the last part that met it works again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import OUTAGE_OVER, NoteKind, Outage

log = logging.getLogger(__name__)


class Part(StrEnum):
    """The part of a job that meets an error; of two with one error the first is shown."""

    LOCK = "lock"
    """Writes of the job that wait at the sink for another session's lock."""
    WORK = "work"
    """The job's own work."""
    READERS = "readers"
    """A snapshot's readers, which try their splits again."""
    TABLES = "tables"
    """Commits of the sink's tables, which follow its log of files."""
    SINK = "sink"
    """The heartbeat's look into the sink's ledger."""
    SOURCE = "source"
    """The heartbeat's question for the end of the source's log."""


KNOWN_BY_ITSELF = frozenset({Part.LOCK, Part.TABLES})
"""Parts whose outages last until they say themselves that these are over.

That the stream goes on, and that the servers answer, says nothing about them.
"""


class Outages:
    """The errors that keep one job from going forward now; safe to use from several threads."""

    def __init__(
        self,
        store: StateStore,
        name: PipelineName,
        generation: int,
        *,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self._store = store
        self._name = name
        self._generation = generation
        self._scrub = scrub
        self._lock = threading.Lock()
        self._open: dict[Part, Outage] = {}
        self._since_us: dict[str, int] = {}
        """When each outage began, by its code."""
        self._ending: set[str] = set()
        """The codes of those of which a part works again."""
        self._failures = 0
        self._ends: list[str] = []
        """What is still to be told of those that are over."""
        self._telling = threading.Lock()
        self._told: Mapping[str, Any] | None = None

    def note(
        self,
        part: Part,
        error: CdcError,
        *,
        tries: int = 0,
        wait_s: float = 0.0,
        for_s: float = 0.0,
    ) -> None:
        """Note that a part fails, or still fails: for `for_s` seconds by now, if that is known."""
        now_us = time.time_ns() // 1000
        with self._lock:
            if part is not Part.TABLES:
                self._failures += 1
            before = self._open.get(part)
            since_us = now_us - int(for_s * 1e6)
            since_us = min(since_us, self._since_us.get(error.code, since_us))
            self._since_us[error.code] = since_us
            next_us = now_us + int(wait_s * 1e6) if wait_s else 0
            self._open[part] = Outage(error.rewritten(self._scrub), since_us, tries, next_us)
            if before is not None and before.error.code != error.code:
                self._leave(before, is_over=before.error.code in self._ending)

    def over(self, part: Part) -> None:
        """Note that a part works again."""
        with self._lock:
            outage = self._open.pop(part, None)
            if outage is not None:
                self._leave(outage, is_over=True)

    def given_up(self, part: Part) -> None:
        """Note that a part does not try any more what failed; no event says that it is over."""
        with self._lock:
            outage = self._open.pop(part, None)
            if outage is not None:
                self._leave(outage, is_over=outage.error.code in self._ending)

    def _leave(self, outage: Outage, *, is_over: bool) -> None:
        """Note that a part does not meet an outage any more: `is_over`, or it meets another."""
        code = outage.error.code
        if any(each.error.code == code for each in self._open.values()):
            self._ending |= {code} if is_over else set()
            return
        self._ending.discard(code)
        since_us = self._since_us.pop(code)
        if is_over:
            for_s = (time.time_ns() // 1000 - since_us) / 1e6
            self._ends.append(f"{OUTAGE_OVER} {for_s:.0f} s: {outage.error.what}")

    @property
    def failures(self) -> int:
        """Return how often a part failed so far, but for the tables that follow the stream."""
        with self._lock:
            return self._failures

    def parts(self) -> frozenset[Part]:
        """Return the parts of the job (lock, work, sink, source) that are failing now."""
        with self._lock:
            return frozenset(self._open)

    def tell(self) -> None:
        """Write changed outages to the state store; if that is away, the next call does."""
        with self._telling:
            with self._lock:
                form, ends = self._form(), tuple(self._ends)
            try:
                if form != self._told:
                    self._store.keep_note(self._name, NoteKind.OUTAGES, form)
                    self._told = form
                for text in ends:
                    self._store.tell(self._name, text)
                    log.info("%s", text)
                    self._ends.remove(text)
            except CdcError as error:
                log.warning("outages not told: pipeline=%s cause=%s", self._name, error)

    def end(self) -> None:
        """Clear all outages, also in the state store; a fatal error is stored elsewhere."""
        with self._lock:
            self._open.clear()
            self._since_us.clear()
            self._ending.clear()
        self.tell()

    def _form(self) -> Mapping[str, Any]:
        """Return the outages as the JSON note that the state store keeps."""
        return {
            "generation": self._generation,
            "process": this_process(),
            "outages": [
                {
                    "part": part.value,
                    "error": outage.error.to_json(),
                    "since_us": outage.since_us,
                    "tries": outage.tries,
                    "next_us": outage.next_us,
                }
                for part in Part
                if (outage := self._open.get(part)) is not None
            ],
        }
