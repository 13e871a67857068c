"""Keeping the lease during a step that takes long and runs no job.

Jobs renew the lease of their run themselves. A step that waits for a server, such as one that
adds keys to large tables, has nobody who does, and after a minute another run would take the
pipeline for abandoned.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.pipeline.run import LEASE_S, Run, lease_is_live

if TYPE_CHECKING:
    from airflow_cdc_provider.core.records import PipelineState

log = logging.getLogger(__name__)


class KeptLease:
    """Renews the lease while it is open, if it is this run's; a context manager.

    What was lost to another owner stays lost: the step's own checks decide what that means.
    """

    def __init__(self, run: Run, *, every_s: float = LEASE_S / 4) -> None:
        self._run = run
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="cdc-lease", daemon=True)

    def __enter__(self) -> KeptLease:
        if self._own() is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _renew(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                state = self._own()
                if state is None:
                    log.warning("another run is the owner now: pipeline=%s", self._run.name)
                    return
                self._run.store.renew_lease(self._run.name, state.generation, LEASE_S)
            except FencedError:
                continue  # a job of this run took over in between, or the next look says who did
            except CdcError as unreachable:
                log.warning("lease not renewed: pipeline=%s cause=%s", self._run.name, unreachable)

    def _own(self) -> PipelineState | None:
        state = self._run.store.ensure(self._run.name)
        return state if state.owner == self._run.owner and lease_is_live(self._run, state) else None
