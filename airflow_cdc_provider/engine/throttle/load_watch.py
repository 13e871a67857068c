"""Looking at the servers' load while splits are read, and at what a person wants of the throttle.

Each server is asked in a thread of its own, so that one that hangs holds up no other. What the
throttle does is stored for those who look, and told as an event when it has closed for some seconds
and when it opens again: once each, however often was looked in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.columns.source_port import TellsLoad, offered
from airflow_cdc_provider.core.errors import CdcError, CriticalLoadError
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.throttle import FROM_FILE, ThrottleWish
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.looker import ServerQuery
from airflow_cdc_provider.engine.server_looks import SILENT_S, SOON_S, ServerLook
from airflow_cdc_provider.engine.throttle.load import LoadSeen, Unknown
from airflow_cdc_provider.engine.throttle.throttle import Throttle

log = logging.getLogger(__name__)

EVERY_S = 2.0
TOLD_AFTER_S = 5.0
"""A throttle that closes for less is no event."""
_BESIDE_READERS = 4
"""Connections to the source beside its readers': the stream's, and those that look."""


@dataclass(slots=True)
class _Closing:
    """Since when the throttle is closed, why at first, and whether that is an event yet."""

    since_us: int
    since_s: float
    why: str
    is_told: bool = False


class LoadWatch:
    """Keeps a throttle in step with the servers' load and with wishes; a context manager.

    `on_critical` is called with the error by which a critical load ends what reads rows. With
    `always` splits are read all the time that it is open; else only within `used`.
    """

    def __init__(
        self,
        job: Job,
        throttle: Throttle,
        *,
        on_critical: Callable[[CriticalLoadError], None] = lambda _: None,
        always: bool = False,
    ) -> None:
        self._job = job
        self._throttle = throttle
        self._on_critical = on_critical
        self._users = int(always)
        self._lock = threading.Lock()
        self._origin = FROM_FILE
        self._wish_us: int | None = None
        self._closing: _Closing | None = None
        self._stored: Mapping[str, Any] | None = None
        self._ending, self._woken = threading.Event(), threading.Event()
        most_own = job.spec.max_connections + _BESIDE_READERS
        self._load: ServerQuery[int] = ServerLook(
            "cdc-load-look",
            lambda: offered(job.source(), TellsLoad).load_look(most_own=most_own),
            lambda look: look.threads_running(),
        )
        self._lags: Mapping[str, ServerQuery[float]] = {
            str(endpoint): ServerLook(
                "cdc-lag-look",
                # each of its own
                lambda place=endpoint: offered(  # type: ignore[misc]
                    job.systems.open_source(place), TellsLoad
                ).lag_look(),
                lambda look: look.lag_s(),
            )
            for endpoint in job.servers.replicas
        }
        self._thread = threading.Thread(target=self._run, name="cdc-throttle", daemon=True)

    def __enter__(self) -> LoadWatch:
        self._follow_wish()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._woken.set()
        self._thread.join(timeout=60)
        for look in self._looks():
            look.close()
        with self._lock:
            self._users = 0
        self._rest()

    @contextmanager
    def used(self) -> Iterator[Throttle]:
        """Look at the load while the block reads splits."""
        with self._lock:
            self._users += 1
        self._woken.set()
        try:
            yield self._throttle
        finally:
            with self._lock:
                self._users -= 1

    def _looks(self) -> list[ServerQuery[Any]]:
        """Return the looks at all servers."""
        return [self._load, *self._lags.values()]

    def _run(self) -> None:
        """Look every two seconds while splits are read, until closed."""
        while not self._ending.is_set():
            self._woken.clear()
            with self._lock:
                is_used = self._users > 0
            if is_used:
                self._follow_wish()
                self._look()
                self._tell()
            else:
                self._rest()
            self._woken.wait(EVERY_S)

    def _follow_wish(self) -> None:
        """Take up what a person wants of the throttle, if that is another wish than before."""
        try:
            note = self._job.store.note(self._job.spec.pipeline, NoteKind.THROTTLE)
        except CdcError as error:
            log.warning("the throttle stays as it is: cause=%s", error)
            return
        at_us = 0 if note is None else note.at_us
        if at_us == self._wish_us:
            return
        is_first, self._wish_us = self._wish_us is None, at_us
        if note is None:
            self._throttle.change(self._job.spec.throttle)
            return
        wish = ThrottleWish.from_json(note.at_us, note.form)
        # this job's own file was read after a wish that was there before it
        limits = wish.over(self._job.spec.throttle) if is_first else wish.limits
        self._origin = wish.origin
        if limits != self._throttle.limits:
            self._throttle.change(limits)
            log.info("throttle: limits=%s origin=%s", limits, self._origin)

    def _look(self) -> None:
        """Ask the servers whose load is limited, and let the throttle see what they said."""
        limits = self._throttle.limits
        asked: list[ServerQuery[Any]] = [self._load] if limits.looks_at_load else []
        if limits.max_replica_lag_s is not None:
            asked += self._lags.values()
        for look in asked:
            look.ask()
        until_s = time.monotonic() + SOON_S
        for look in asked:
            look.wait(until_s - time.monotonic())
        seen = LoadSeen(
            _answer_of(self._load), {name: _answer_of(look) for name, look in self._lags.items()}
        )
        critical = self._throttle.see(seen)
        if critical is not None:
            log.error("%s", critical)
            self._on_critical(critical)

    def _tell(self) -> None:
        """Store what the throttle does, and tell once when it closes and when it opens."""
        state = self._throttle.state()
        now_us, now_s = time.time_ns() // 1000, time.monotonic()
        events = []
        if state.closed_by:
            closing = self._closing = self._closing or _Closing(now_us, now_s, state.closed_by)
            if not closing.is_told and now_s - closing.since_s >= TOLD_AFTER_S:
                closing.is_told = True
                events.append(f"throttled: {state.closed_by}")
        else:
            events += self._opened()
        form = {
            "generation": self._job.spec.generation,
            "limits": state.limits.to_json(),
            "origin": self._origin,
            "closed_by": state.closed_by,
            "since_us": 0 if self._closing is None else self._closing.since_us,
            "throttled_s": round(state.throttled_s, 1),
        }
        self._keep({} if state.limits.is_none and not form["throttled_s"] else form)
        self._record(events)

    def _opened(self) -> list[str]:
        """Return the event that the throttle lets splits through again, if its closing was one."""
        closing, self._closing = self._closing, None
        if closing is None or not closing.is_told:
            return []
        for_s = time.monotonic() - closing.since_s
        return [f"no longer throttled, after {for_s:.0f} s: {closing.why}"]

    def _rest(self) -> None:
        """Store that no split is read, so that nothing is throttled."""
        self._throttle.rest()
        for look in self._looks():
            look.forget()
        events = self._opened()
        if self._stored:
            self._keep({})
        self._record(events)

    def _keep(self, form: Mapping[str, Any]) -> None:
        """Store the note for those who look, if it says another thing than before."""
        if form == (self._stored or {}):
            return
        try:
            self._job.store.keep_note(self._job.spec.pipeline, NoteKind.THROTTLED, form)
            self._stored = form
        except CdcError as error:
            log.warning("what the throttle does is not told: cause=%s", error)

    def _record(self, events: list[str]) -> None:
        """Record events; what a state store that is away misses is in the log."""
        for text in events:
            log.info("%s", text)
            try:
                self._job.store.tell(self._job.spec.pipeline, text)
            except CdcError as error:
                log.warning("not told: event=%s cause=%s", text, error)


def _answer_of(look: ServerQuery[Any]) -> Any:
    """Return a server's last answer, or why it is not known."""
    if look.silent_s > SILENT_S:
        return Unknown(f"is not known: no answer for {SILENT_S:.0f} s")
    error = look.error
    if error is not None:
        return Unknown(f"is not known: {error.what}")
    return Unknown("is not known yet") if look.answer is None else look.answer
