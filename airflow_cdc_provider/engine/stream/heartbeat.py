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
from dataclasses import asdict

from airflow_cdc_provider.columns.sink_port import Sink, SinkLedger, StreamCounts
from airflow_cdc_provider.columns.source_port import KnowsReach, LogEnd, Source
from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.stream.lag import Lag
from airflow_cdc_provider.engine.stream.passed_over import PassedOver

log = logging.getLogger(__name__)


_REACH_EVERY_S = 60.0


def note_reach(
    store: StateStore, name: PipelineName, log_end: KnowsReach, position: LogPosition
) -> None:
    """Note how far the source's log reaches back; that it cannot be told is no error."""
    try:
        store.keep_note(name, NoteKind.LOG_REACH, asdict(log_end.reach(position)))
    except CdcError as error:
        log.warning("the log's reach is not known: pipeline=%s cause=%s", name, error)


class Heartbeat:
    """Beats while it is open; a context manager."""

    def __init__(
        self,
        store: StateStore,
        source: Source,
        sink: Sink,
        *,
        on_fenced: Callable[[FencedError], None],
        passed_over: PassedOver,
        every_s: float = 2.0,
    ) -> None:
        self._store = store
        self._source = source
        self._sink = sink
        self._on_fenced = on_fenced
        self._passed_over = passed_over
        self._every_s = every_s
        self._lag = Lag()
        self._ledger: SinkLedger | None = None
        self._log_end: LogEnd | None = None
        self._told_consistent: set[TableId] = set()
        self._next_reach_s = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        with suppress(CdcError):  # the last words; the ledger has the truth without them
            self._beat(is_last=True)
        self._let_go()

    def _run(self) -> None:
        while True:
            try:
                self._beat()
            except FencedError as fenced:
                self._on_fenced(fenced)
                return
            except CdcError as error:
                log.warning("no heartbeat: pipeline=%s cause=%s", self._sink.owner.pipeline, error)
                self._let_go()
            if self._closing.wait(self._every_s):
                return

    def _beat(self, *, is_last: bool = False) -> None:
        owner = self._sink.owner
        if self._ledger is None:
            self._ledger = self._sink.open_ledger()
        split = self._ledger.stream()
        if split is not None and self._passed_over.commit_in_time(self._ledger, split.start):
            split = self._ledger.stream()
        if split is None:
            return
        split = split.passed(split.start)  # what is consistent at this very position
        told = self._state(split, self._ledger.counts())
        self._store.beat(owner.pipeline, owner.generation, told, is_last=is_last)
        self._tell_tables(split)
        self._tell_reach(split.start)

    def _tell_reach(self, position: LogPosition) -> None:
        """Note how far the source's log reaches back; once a minute, for it asks for all files."""
        log_end, now_s = self._log_end, time.monotonic()
        if now_s < self._next_reach_s or not isinstance(log_end, KnowsReach):
            return
        self._next_reach_s = now_s + _REACH_EVERY_S
        note_reach(self._store, self._sink.owner.pipeline, log_end, position)

    def _state(self, split: StreamSplit, counts: StreamCounts) -> StreamState:
        reached = self._passed_over.reached(split.start)
        source_end = self._source_end()
        now_us = time.time_ns() // 1000
        return StreamState(
            position=split.start,
            source_end=source_end,
            batch=counts.batches,
            changes=counts.changes,
            transactions=counts.transactions,
            lag_us=self._lag.at(reached, source_end, counts.lag_us, now_us),
            heartbeat_us=now_us,
            inconsistent=split.inconsistent,
        )

    def _source_end(self) -> LogPosition | None:
        try:
            if self._log_end is None:
                self._log_end = self._source.log_end(purpose="heartbeat")
            return self._log_end.now()
        except CdcError as error:
            log.warning("source does not answer: cause=%s", error)
            self._log_end = None
            return None

    def _tell_tables(self, split: StreamSplit) -> None:
        owner = self._sink.owner
        for progress in split.tables:
            table = progress.table
            if table not in split.inconsistent and table not in self._told_consistent:
                self._store.mark_table(
                    owner.pipeline, owner.generation, table, TablePhase.CONSISTENT
                )
                self._told_consistent.add(table)
                log.info("table is consistent: table=%s position=%s", table, split.start)

    def _let_go(self) -> None:
        for opened in (self._ledger, self._log_end):
            if opened is not None:
                with suppress(CdcError):
                    opened.close()
        self._ledger = self._log_end = None
