"""Renewing a lease again and again while something else takes its time.

A lease runs out a minute after its last renewal, and then another run takes the pipeline for
abandoned. So whoever works for longer has a thread that renews. A state store that does not answer
is no reason to stop: it is tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName

log = logging.getLogger(__name__)

_JOIN_S = 30.0


class Renewal:
    """A thread that calls `renew` at an interval until it returns True, or until `close`."""

    def __init__(self, name: PipelineName, renew: Callable[[], bool], *, every_s: float) -> None:
        self._name = name
        self._renew = renew
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-lease", daemon=True)

    def start(self) -> None:
        """Start the thread; the first renewal is one interval from now."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, after a renewal that is under way."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_JOIN_S)

    def _run(self) -> None:
        """Renew at each interval until nothing is left to renew; a failed renewal is logged."""
        while not self._closing.wait(self._every_s):
            try:
                if self._renew():
                    return
            except CdcError as unreachable:
                log.warning("lease not renewed: pipeline=%s cause=%s", self._name, unreachable)
