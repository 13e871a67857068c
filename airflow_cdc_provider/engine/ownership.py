"""Staying the owner of a pipeline, and hearing what is wanted of it, while a job runs.

A thread renews the lease in the state store. Losing the state store for a while is not losing
the pipeline: the generation in the sink's ledger is what keeps others out, so the job goes on and
says so. Losing the generation ends the job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import NoteKind, PipelineState
from airflow_cdc_provider.engine.renewal import Renewal

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
"""A pause has 3 seconds to leave no connection open."""


@contextmanager
def kept_lease(
    store: StateStore, name: PipelineName, generation: int, *, every_s: float = 15.0
) -> Iterator[None]:
    """Renew a job's lease until the block ends, also while Spark starts, then give it back.

    A newer owner's lease is not touched.
    """

    def renew() -> bool:
        try:
            store.renew_lease(name, generation)
        except FencedError:
            return True  # whoever works hears of it
        return False

    renewal = Renewal(name, renew, every_s=every_s)
    renewal.start()
    try:
        yield
    finally:
        renewal.close()
        with suppress(CdcError):
            store.release_lease(name, generation)


class Ownership:
    """Renews the lease of a running job, and passes on a stop, a restart or a new owner.

    `on_end` is called with None when the pipeline is to stop, or when `stop` is set, and with the
    error when fenced; `on_restart` when the work is to begin again from the ledger. Each is called
    once. What is under way may take a while to end, and the lease is kept until then.
    """

    def __init__(
        self,
        store: StateStore,
        name: PipelineName,
        generation: int,
        *,
        on_end: Callable[[FencedError | None], None],
        on_restart: Callable[[], None],
        stop: threading.Event | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._generation = generation
        self._on_end = on_end
        self._on_restart = on_restart
        self._stop = stop or threading.Event()
        self._is_ending = False
        self._renewal = Renewal(name, self._renew, every_s=_LOOK_EVERY_S)

    def __enter__(self) -> Ownership:
        self._heed(self._store.renew_lease(self._name, self._generation))
        # work that begins now begins from the ledger, whoever asked for that
        self._store.begun_again(self._name, self._generation)
        self._renewal.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._renewal.close()

    def _renew(self) -> bool:
        """Renew the lease and act on what is wanted; True if a newer owner has taken over."""
        try:
            state = self._store.renew_lease(self._name, self._generation)
            self._heed(state)
            if state.wanted is Wanted.RESTART and not self._is_ending:
                self._is_ending = True
                self._on_restart()
                log.info("asked to begin again: pipeline=%s", self._name)
        except FencedError as fenced:
            log.error("a newer owner took over: pipeline=%s", self._name)
            self._on_end(fenced)
            return True
        except CdcError:
            self._heed(None)  # this process may be asked to end all the same
            raise
        return False

    def _heed(self, state: PipelineState | None) -> None:
        """Call `on_end` once when the pipeline is to stop; None where its state is not known."""
        is_wanted_to_stop = state is not None and state.wanted is Wanted.STOP
        if self._is_ending or not (is_wanted_to_stop or self._stop.is_set()):
            return
        self._is_ending = True
        with suppress(CdcError):  # who takes the wish back hears that it was heeded
            note = {"generation": self._generation, "is_wanted": is_wanted_to_stop}
            self._store.keep_note(self._name, NoteKind.ENDING, note)
        self._on_end(None)
        log.info("asked to stop: pipeline=%s", self._name)  # whoever reads it knows that it ends
