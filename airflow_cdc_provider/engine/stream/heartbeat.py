"""Telling the state store where the stream is, whatever the micro-batch and the servers do.

A thread of the driver beats. Two others, each over a connection of its own, look into the sink's
ledger and ask the source where its log ends: a server that hangs holds up its own look, and no
beat. So a micro-batch may take minutes, and its position is still seen to move; and while a server
is away the store hears since when, and that the lag grows. The state store follows the ledger and
never leads it.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import asdict

from airflow_cdc_provider.columns.sink_port import SinkLedger, StreamCounts
from airflow_cdc_provider.columns.source_port import KnowsReach, LogEnd
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    SinkUnreachableError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.outages import Outages, Part
from airflow_cdc_provider.engine.stream.following import Following
from airflow_cdc_provider.engine.stream.lag import Lag
from airflow_cdc_provider.engine.stream.looker import Looker

log = logging.getLogger(__name__)


_REACH_EVERY_S = 60.0
_SOON_S = 1.0
"""A server that answers at all answers a look in much less."""
_LAST_LOOK_S = 10.0
_SILENT_S = 5.0
"""A server that has not answered a look for so long is away."""
_SILENCES = {
    Part.SINK: SinkUnreachableError(
        "the sink does not answer",
        risk="it falls behind; nothing is lost while the source keeps its log",
        remedy="bring it back; the stream goes on by itself",
    ),
    Part.SOURCE: SourceUnreachableError(
        "the source does not answer",
        risk="nobody knows what waits there; nothing is lost while it keeps its log",
        remedy="bring it back; the stream goes on by itself",
    ),
}


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
        self, job: Job, following: Following, outages: Outages, *, every_s: float = 2.0
    ) -> None:
        self._store = job.store
        self._source = job.source()
        self._sink = job.sink()
        self._following = following
        self._outages = outages
        self._every_s = every_s
        self._lag = Lag()
        self._ledger: SinkLedger | None = None
        self._log_end: LogEnd | None = None
        self._told_consistent: set[TableId] = set()
        self._next_reach_s = 0.0
        self._sink_look = Looker("cdc-sink-look", self._look_at_sink)
        self._source_look = Looker("cdc-source-look", self._look_at_source)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        with suppress(CdcError):  # the last words; the ledger has the truth without them
            self._beat(within_s=_LAST_LOOK_S, is_last=True)
        for look, opened in ((self._sink_look, self._ledger), (self._source_look, self._log_end)):
            if look.close() and opened is not None:
                with suppress(CdcError):
                    opened.close()

    def _run(self) -> None:
        while True:
            try:
                self._beat(within_s=_SOON_S)
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except CdcError as error:
                log.warning("no heartbeat: pipeline=%s cause=%s", self._sink.owner.pipeline, error)
            if self._closing.wait(self._every_s):
                return

    def _beat(self, *, within_s: float, is_last: bool = False) -> None:
        looks = self._sink_look, self._source_look
        for look in looks:
            look.ask()
        until_s = time.monotonic() + within_s
        for look in looks:
            look.wait(until_s - time.monotonic())
        self._note_outages()
        seen = self._sink_look.answer
        if seen is not None:
            split, counts = seen
            owner = self._sink.owner
            told = self._state(split, counts)
            self._store.beat(owner.pipeline, owner.generation, told, is_last=is_last)
            self._tell_tables(split)
        self._outages.tell()

    def _note_outages(self) -> None:
        """Note which server does not answer, and what does again."""
        for part, look in ((Part.SINK, self._sink_look), (Part.SOURCE, self._source_look)):
            if isinstance(look.error, FencedError):
                raise look.error
            if look.silent_s > _SILENT_S:
                self._outages.note(part, _SILENCES[part], for_s=look.silent_s)
            elif look.error is not None:
                self._outages.note(part, look.error, tries=look.failures)
            elif not look.is_looking:
                self._outages.over(part)
        if self._outages.parts() == {Part.WORK} and self._following.goes_on():
            self._outages.over(Part.WORK)

    # --- looks, each in its own thread --------------------------------------------------------

    def _look_at_sink(self) -> tuple[StreamSplit, StreamCounts] | None:
        try:
            if self._ledger is None:
                self._ledger = self._sink.open_ledger()
            split = self._ledger.stream()
            if split is not None and self._following.passed_over.commit_in_time(
                self._ledger, split.start
            ):
                split = self._ledger.stream()
            if split is None:
                return None
            # what is consistent at this very position
            return split.passed(split.start), self._ledger.counts()
        except CdcError:
            opened, self._ledger = self._ledger, None
            if opened is not None:
                with suppress(CdcError):
                    opened.close()
            raise

    def _look_at_source(self) -> LogPosition:
        try:
            if self._log_end is None:
                self._log_end = self._source.log_end(purpose="heartbeat")
            self._tell_reach(self._log_end)
            return self._log_end.now()
        except CdcError:
            opened, self._log_end = self._log_end, None
            if opened is not None:
                with suppress(CdcError):
                    opened.close()
            raise

    def _tell_reach(self, log_end: LogEnd) -> None:
        """Note how far the source's log reaches back; once a minute, for it asks for all files."""
        seen, now_s = self._sink_look.answer, time.monotonic()
        if seen is None or now_s < self._next_reach_s or not isinstance(log_end, KnowsReach):
            return
        self._next_reach_s = now_s + _REACH_EVERY_S
        split, _ = seen
        note_reach(self._store, self._sink.owner.pipeline, log_end, split.start)

    # --- what they saw ------------------------------------------------------------------------

    def _state(self, split: StreamSplit, counts: StreamCounts) -> StreamState:
        reached = self._following.passed_over.reached(split.start)
        now_us = time.time_ns() // 1000
        look = self._source_look
        is_known = look.error is None and look.silent_s <= _SILENT_S
        source_end = look.answer if is_known else None
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

    def _tell_tables(self, split: StreamSplit) -> None:
        owner = self._sink.owner
        consistent = {each.table for each in split.tables} - set(split.inconsistent)
        untold = sorted(consistent - self._told_consistent)
        if not untold:
            return
        # a table that was consistent before this stream is not marked: that would be a change of it
        phases = {each.table: each.phase for each in self._store.tables(owner.pipeline)}
        for table in untold:
            if phases.get(table) is not TablePhase.CONSISTENT:
                self._store.mark_table(
                    owner.pipeline, owner.generation, table, TablePhase.CONSISTENT
                )
                log.info("table is consistent: table=%s position=%s", table, split.start)
            self._told_consistent.add(table)
