"""Telling the state store where the stream is, whatever the micro-batch is doing.

A thread of the driver looks into the sink's ledger and asks the source where its log ends, over
two connections of its own, and stores both. A micro-batch may take minutes, and its position is
then still seen to move. The state store follows the ledger and never leads it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.sinks.ledger import MySqlLedger
from airflow_cdc_provider.spark.log_end import LogEnd

if TYPE_CHECKING:
    from airflow_cdc_provider.spark.job import Job

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Applied:
    """What this run has applied; written by the micro-batches, read by the heartbeat."""

    batches: int = 0
    changes: int = 0
    transactions: int = 0
    lag_us: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, counted: dict[str, int | None]) -> None:
        """Count one micro-batch."""
        with self.lock:
            self.batches += 1
            self.changes += counted["changes"] or 0
            self.transactions += counted["transactions"] or 0
            if counted["lag_us"] is not None:
                self.lag_us = counted["lag_us"]


class Heartbeat:
    """Beats while it is open; a context manager."""

    def __init__(
        self,
        job: Job,
        applied: Applied,
        *,
        on_fenced: Callable[[FencedError], None],
        every_s: float = 2.0,
    ) -> None:
        self._job = job
        self._applied = applied
        self._on_fenced = on_fenced
        self._every_s = every_s
        self._before = job.store.stream(job.spec.pipeline)
        self._ledger: MySqlLedger | None = None
        self._log_end: LogEnd | None = None
        self._told_consistent: set[TableId] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        with suppress(CdcError):  # the last words; the ledger has the truth without them
            self._beat()
        self._let_go()

    def _run(self) -> None:
        while True:
            try:
                self._beat()
            except FencedError as fenced:
                self._on_fenced(fenced)
                return
            except CdcError as error:
                log.warning("no heartbeat: pipeline=%s cause=%s", self._job.spec.pipeline, error)
                self._let_go()
            if self._closing.wait(self._every_s):
                return

    def _beat(self) -> None:
        spec = self._job.spec
        if self._ledger is None:
            self._ledger = self._job.sink().open_ledger()
        split = self._ledger.stream()
        if split is None:
            return
        split = split.passed(split.start)  # what is consistent at this very position
        self._job.store.beat(spec.pipeline, spec.generation, self._state(split))
        self._tell_tables(split)

    def _state(self, split: StreamSplit) -> StreamState:
        before, applied = self._before, self._applied
        source_end = self._source_end()
        with applied.lock:
            return StreamState(
                position=split.start,
                source_end=source_end,
                batch=applied.batches + (0 if before is None else before.batch),
                changes=applied.changes + (0 if before is None else before.changes),
                transactions=applied.transactions + (0 if before is None else before.transactions),
                lag_us=0 if _nothing_waits(split.start, source_end) else applied.lag_us,
                heartbeat_us=time.time_ns() // 1000,
                inconsistent=split.inconsistent,
            )

    def _source_end(self) -> LogPosition | None:
        try:
            if self._log_end is None:
                self._log_end = LogEnd(self._job.servers.source, purpose="heartbeat")
            return self._log_end.now()
        except CdcError as error:
            log.warning("source does not answer: cause=%s", error)
            self._log_end = None
            return None

    def _tell_tables(self, split: StreamSplit) -> None:
        spec = self._job.spec
        for progress in split.tables:
            table = progress.table
            if table not in split.inconsistent and table not in self._told_consistent:
                self._job.store.mark_table(
                    spec.pipeline, spec.generation, table, TablePhase.CONSISTENT
                )
                self._told_consistent.add(table)
                log.info("table is consistent: table=%s position=%s", table, split.start)

    def _let_go(self) -> None:
        for opened in (self._ledger, self._log_end):
            if opened is not None:
                with suppress(CdcError):
                    opened.close()
        self._ledger = self._log_end = None


def _nothing_waits(position: LogPosition, source_end: LogPosition | None) -> bool:
    if source_end is None or position.server_uuid != source_end.server_uuid:
        return False
    return position.binlog is not None and position.covers(source_end)
