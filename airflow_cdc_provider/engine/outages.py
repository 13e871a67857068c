"""What keeps a job from going forward, for those who look at the pipeline meanwhile.

A server that is away is waited for, and a job that waits looks like one that has nothing to do. So
what fails is noted here by whoever meets it, and told to the state store as long as it lasts: since
when, how often it was tried, and when it is tried next. It is told once more when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import NoteKind, Outage

log = logging.getLogger(__name__)


class Part(StrEnum):
    """The part of a job that meets an error: its work, the sink or the source."""

    WORK = "work"
    """The job's own work."""
    SINK = "sink"
    """The heartbeat's look into the sink's ledger."""
    SOURCE = "source"
    """The heartbeat's question for the end of the source's log."""


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
        self._events: list[str] = []
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
            before = self._open.get(part)
            is_same = before is not None and before.error.code == error.code
            since_us = before.since_us if before and is_same else now_us - int(for_s * 1e6)
            next_us = now_us + int(wait_s * 1e6) if wait_s else 0
            self._open[part] = Outage(error.rewritten(self._scrub), since_us, tries, next_us)

    def over(self, part: Part) -> None:
        """Note that a part works again."""
        with self._lock:
            outage = self._open.pop(part, None)
            if outage is not None:
                for_s = (time.time_ns() // 1000 - outage.since_us) / 1e6
                self._events.append(f"over, after {for_s:.0f} s: {outage.error.what}")

    def parts(self) -> frozenset[Part]:
        """Return the parts of the job that fail now."""
        with self._lock:
            return frozenset(self._open)

    def tell(self) -> None:
        """Write changed outages to the state store; if that is away, the next call does."""
        with self._lock:
            form = self._form()
            events, self._events = self._events, []
        for text in events:
            log.info("%s", text)
            with suppress(CdcError):
                self._store.tell(self._name, text)
        if form == self._told:
            return
        try:
            self._store.keep_note(self._name, NoteKind.OUTAGES, form)
        except CdcError as error:
            log.warning("outages not told: pipeline=%s cause=%s", self._name, error)
        else:
            self._told = form

    def end(self) -> None:
        """Clear all outages, also in the state store; a fatal error is stored elsewhere."""
        with self._lock:
            self._open.clear()
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
