"""Keeping the lease during a step that takes long and runs no job.

Jobs renew the lease of their run themselves. A step that waits for a server, such as one that
adds keys to large tables, has nobody who does, and after a minute another run would take the
pipeline for abandoned.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase
from airflow_cdc_provider.engine.renewal import Renewal
from airflow_cdc_provider.pipeline.run import Run, lease_is_live

if TYPE_CHECKING:
    from airflow_cdc_provider.core.records import PipelineState

_OF_A_JOB = frozenset({Phase.SNAPSHOT, Phase.STREAMING})
"""Phases in which a job may be at work, and give the lease back itself."""
log = logging.getLogger(__name__)


class KeptLease:
    """Renews the run's lease during a long step that runs no job; a context manager.

    A job of this run that ended has given it back: it is taken up again for the step, and given
    back after it. What was lost to another owner, or ran out, stays lost: the step's own checks
    decide what that means.
    """

    def __init__(self, run: Run, *, every_s: float = LEASE_S / 4) -> None:
        self._run = run
        self._taken_up = 0
        """The generation whose lease was taken up again."""
        self._renewal = Renewal(run.name, self._renew, every_s=every_s)

    def __enter__(self) -> KeptLease:
        if not self._renew():
            self._renewal.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._renewal.close()
        state = self._run.store.ensure(self._run.name)
        if self._taken_up == state.generation and state.phase not in _OF_A_JOB:
            with suppress(CdcError):
                self._run.store.release_lease(self._run.name, state.generation)

    def _renew(self) -> bool:
        """Renew the lease; True if it is not this run's any more."""
        state = self._run.store.ensure(self._run.name)
        if not self._is_own(state):
            log.warning("this run has no lease to keep: pipeline=%s", self._run.name)
            return True
        # a job of this run may take over in between: the next look says who did
        with suppress(FencedError):
            self._run.store.renew_lease(self._run.name, state.generation, LEASE_S)
            if not state.lease_until_us:
                self._taken_up = state.generation
        return False

    def _is_own(self, state: PipelineState) -> bool:
        """Tell whether the lease is this run's, or given back by its job."""
        is_held = not state.lease_until_us or lease_is_live(self._run, state)
        return state.generation > 0 and state.owner == self._run.owner and is_held
