"""The splits that readers fail to read or publish, told as one outage of the snapshot.

Readers try a split again themselves, on other machines; the job learns of it by their messages. A
failure belongs to its split, not to its reader: a reader that dies leaves it to the next one. Where
several splits fail, the one that has failed longest is shown, so that since when, tries and the
next try are those of one split.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import (
    CdcError,
    ResultAbortedError,
    SchemaMovedError,
    SinkBusyError,
    SplitOutdatedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.outages import Outages, Part

log = logging.getLogger(__name__)

_PASSING = (SinkBusyError, SchemaMovedError, ResultAbortedError, SplitOutdatedError)
"""Errors that reading the split once more usually mends; twice in a row they are an outage."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A split that failed last with `error`, and is tried again at `next_s`."""

    table: TableId
    error: CdcError
    tries: int
    since_s: float
    next_s: float

    @property
    def is_outage(self) -> bool:
        """Tell whether it is more than what the next try usually mends."""
        return self.tries > 1 or not isinstance(self.error, _PASSING)


class SplitFailures:
    """The splits of a job that fail now; safe to use from several threads."""

    def __init__(self, outages: Outages, warn: Callable[[str], object] = log.warning) -> None:
        self._outages = outages
        self._warn = warn
        """Records the beginning of an outage among the pipeline's events."""
        self._failing: dict[str, _Failure] = {}
        """By the id of their split, the one that has failed longest first."""
        self._shown: CdcError | None = None
        self._lock = threading.Lock()

    def note(self, split: SnapshotSplit, error: CdcError, *, wait_s: float) -> None:
        """Note that a split failed, and that its reader tries it again in `wait_s` seconds."""
        now_s = time.monotonic()
        with self._lock:
            before = self._failing.get(split.split_id)
            since_s, tries = (now_s, 1) if before is None else (before.since_s, before.tries + 1)
            failure = _Failure(split.table, error, tries, since_s, now_s + wait_s)
            self._failing[split.split_id] = failure
            if self._first() is failure:
                self._show(failure)

    def over(self, split_id: str) -> None:
        """Note that a split is published, or cut."""
        with self._lock:
            was = self._failing.pop(split_id, None)
            if self._shown is None:
                return
            left = self._first()
            if left is None:
                self._shown = None
                end = self._outages.given_up if was is None else self._outages.over
                end(Part.READERS)
            elif was is not None:
                if left.error.code != self._shown.code:
                    self._outages.over(Part.READERS)
                self._show(left)

    def given_up(self, table: TableId) -> None:
        """Note that a table's splits are not tried again.

        What they met is shown until another split is published: the next one may meet it, too.
        """
        with self._lock:
            for split_id in [each for each in self._failing if self._failing[each].table == table]:
                del self._failing[split_id]

    def _first(self) -> _Failure | None:
        """Return the failure that has lasted longest, of those that are an outage."""
        return next((each for each in self._failing.values() if each.is_outage), None)

    def _show(self, failure: _Failure) -> None:
        """Note a failure among the outages of the job; its beginning is an event, too."""
        now_s = time.monotonic()
        self._outages.note(
            Part.READERS,
            failure.error,
            tries=failure.tries,
            wait_s=max(0.0, failure.next_s - now_s),
            for_s=now_s - failure.since_s,
        )
        begins = self._shown is None or self._shown.code != failure.error.code
        self._shown = failure.error
        if begins:
            self._warn(f"a split is tried again: {failure.error}")
