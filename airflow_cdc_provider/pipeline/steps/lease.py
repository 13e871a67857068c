"""Keeping the lease during a step that takes long and runs no job.

Jobs renew the lease of their run themselves. A step that waits for a server, such as one that
adds keys to large tables, has nobody who does, and after a minute another run would take the
pipeline for abandoned.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import FencedError
from airflow_cdc_provider.pipeline.run import LEASE_S, Run, lease_is_live
from airflow_cdc_provider.state.renewal import Renewal

if TYPE_CHECKING:
    from airflow_cdc_provider.core.records import PipelineState

log = logging.getLogger(__name__)


class KeptLease:
    """Renews the lease while it is open, if it is this run's; a context manager.

    What was lost to another owner stays lost: the step's own checks decide what that means.
    """

    def __init__(self, run: Run, *, every_s: float = LEASE_S / 4) -> None:
        self._run = run
        self._renewal = Renewal(run.name, self._renew, every_s=every_s)

    def __enter__(self) -> KeptLease:
        if self._own() is not None:
            self._renewal.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._renewal.close()

    def _renew(self) -> bool:
        state = self._own()
        if state is None:
            log.warning("another run is the owner now: pipeline=%s", self._run.name)
            return True
        # a job of this run may take over in between: the next look says who did
        with suppress(FencedError):
            self._run.store.renew_lease(self._run.name, state.generation, LEASE_S)
        return False

    def _own(self) -> PipelineState | None:
        state = self._run.store.ensure(self._run.name)
        return state if state.owner == self._run.owner and lease_is_live(self._run, state) else None
