"""Calling again what a server that is away made fail, while a job begins and ends.

What fails passes on its own: it is tried again with growing waits, and given up after a while. Who
asks the job to end does not wait for that. Nor does the job wait for a state store that hangs: what
is told to it, and asked of it, is done in a thread beside, and missed while the last one is stuck.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import CdcError, FencedError, RetryableError
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.outages import Outages, Part

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
_BRIEFLY_S = 1.0
"""A state store that answers at all answers in much less."""
_HEED_EVERY_S = 0.5
"""How soon a wait heeds that this process is asked to end."""
_PASSED_ON_S = 5.0
"""An owner passes it on to the job within a second or two; a job without one ends by an error."""


class Retries:
    """Repeats the calls at a job's beginning and end while a server is away."""

    def __init__(self, job: Job, ending: threading.Event, back_off: BackOff | None = None) -> None:
        self.back_off = back_off or BackOff()
        spec, scrub = job.spec, job.servers.secrets.scrub
        self.outages = Outages(job.store, spec.pipeline, spec.generation, scrub=scrub)
        self._job = job
        self._ending = ending
        self._calling: threading.Thread | None = None

    def call(self, attempt: Callable[[], Answer]) -> Answer:
        """Call `attempt` until it succeeds; raise an error that no retry mends, or the last one."""
        since = time.monotonic()
        failures = 0
        while True:
            try:
                answer = attempt()
            except RetryableError as error:
                failures += 1
                self.require_owner()
                if self._ending.is_set() or self.back_off.is_over(time.monotonic() - since):
                    raise
                if self.wait(f"{self._job.spec.kind.value} is tried again", error, failures):
                    raise
            else:
                if failures:
                    self.outages.over(Part.WORK)
                    self._beside(self.outages.tell)
                return answer

    def wait(self, what: str, error: RetryableError, failures: int) -> bool:
        """Record a failure and wait until it is time to try again; True if asked to end."""
        wait_s = self.back_off.wait_s(failures)
        self.outages.note(Part.WORK, error, tries=failures, wait_s=wait_s)
        self.tell(what, error)
        self._beside(self.outages.tell)
        return self._is_to_end(wait_s)

    def _is_to_end(self, within_s: float) -> bool:
        """Wait until the job is asked to end; False if it is not in time."""
        until_s = time.monotonic() + within_s
        while not self._job.stop.is_set():
            left_s = until_s - time.monotonic()
            if self._ending.wait(max(0.0, min(left_s, _HEED_EVERY_S))):
                return True
            if left_s <= _HEED_EVERY_S:
                return False
        self._ending.wait(_PASSED_ON_S)  # who owns the pipeline passes it on
        return True

    def require_owner(self) -> None:
        """Raise `FencedError` if a newer owner has taken over, which would explain the failure."""
        spec = self._job.spec
        fenced: list[FencedError] = []

        def renew() -> None:
            try:
                self._job.store.renew_lease(spec.pipeline, spec.generation)
            except FencedError as error:
                fenced.append(error)

        self._beside(renew)
        if fenced:
            raise fenced[0]

    def tell(self, what: str, error: RetryableError) -> None:
        """Log a failure and record it among the pipeline's events."""
        text = f"{what}: {self._job.servers.secrets.scrub(str(error))}"
        log.warning("%s", text)
        self.warn(text)

    def warn(self, text: str) -> None:
        """Record a warning among the pipeline's events; a state store that is away misses it."""
        self._beside(lambda: self._job.store.tell(self._job.spec.pipeline, text, level="warning"))

    def _beside(self, call: Callable[[], object]) -> None:
        """Call the state store in a thread, and wait for it briefly; errors are left out.

        Nothing is called while the call before it is still under way.
        """

        def run() -> None:
            with suppress(CdcError):
                call()

        if self._calling is not None and self._calling.is_alive():
            return
        self._calling = threading.Thread(target=run, name="cdc-tell", daemon=True)
        self._calling.start()
        self._calling.join(_BRIEFLY_S)
