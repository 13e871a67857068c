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
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any

from airflow_cdc_provider.columns.source_port import KnowsReach, LogEnd
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.row_counts import NO_COUNTS, TableCounts
from airflow_cdc_provider.core.stream_counts import StreamCounts
from airflow_cdc_provider.core.stream_split import StreamSplit, smallest
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.looker import ServerQuery
from airflow_cdc_provider.engine.outages import KNOWN_BY_ITSELF, Outages, Part
from airflow_cdc_provider.engine.server_looks import (
    SILENT_S,
    SOON_S,
    ServerLook,
    note_failure,
    silences,
)
from airflow_cdc_provider.engine.stream.conflict_count import ConflictCount
from airflow_cdc_provider.engine.stream.lag import Lag
from airflow_cdc_provider.engine.stream.lock_watch import LockWatch
from airflow_cdc_provider.engine.stream.recovery import Progress, Recovery, StreamLook
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.table_counts import count_tables

log = logging.getLogger(__name__)


_FIRST_REACH_S = 10.0
_REACH_EVERY_S = 60.0
_COUNTS_EVERY_S = 10.0
_LAST_LOOK_S = 10.0


def note_reach(
    store: StateStore, name: PipelineName, log_end: KnowsReach, position: LogPosition
) -> None:
    """Store how far back the source's log reaches; if that is not known, it is only logged."""
    try:
        store.keep_note(name, NoteKind.LOG_REACH, asdict(log_end.reach(position)))
    except CdcError as error:
        log.warning("the log's reach is not known: pipeline=%s cause=%s", name, error)


@dataclass(frozen=True, slots=True)
class _SinkLook:
    """What the heartbeat read from the sink's ledger."""

    split: StreamSplit
    place: LogPosition
    """The split's start, with its place in the log wherever one is known."""
    counts: StreamCounts
    tables: Mapping[TableId, TableCounts]
    needed: tuple[LogPosition, ...] = ()
    """From where on the log may be read again, by the stream or an isolated table."""


class Heartbeat:
    """Stores the stream's position, lag and outages every few seconds; a context manager."""

    def __init__(
        self, job: Job, following: Following, outages: Outages, *, every_s: float = 2.0
    ) -> None:
        self._store = job.store
        self._source = job.source()
        self._sink = job.sink()
        self._following = following
        self._outages = outages
        self._every_s = every_s
        self._lag: Lag | None = None
        self._held_from: LogPosition | None = None
        self._recovery = Recovery()
        self._told_consistent: set[TableId] = set()
        self._next_reach_s = time.monotonic() + _FIRST_REACH_S
        self._next_counts_s = 0.0
        edge = job.spec.edge
        has_guard = edge is not None and edge.is_guarded
        self._conflicts = ConflictCount(job.store, job.spec.pipeline) if has_guard else None
        self._silences = silences(job.servers)
        self._locks = LockWatch(str(job.servers.sink))
        self._sink_look = ServerLook("cdc-sink-look", self._sink.open_ledger, self._look_at_sink)
        self._source_look = ServerLook(
            "cdc-source-look",
            lambda: self._source.log_end(purpose="heartbeat"),
            self._look_at_source,
        )
        self._closing = threading.Event()
        self._is_last = False
        self._thread = threading.Thread(target=self._run, name="cdc-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        self._is_last = True
        with suppress(CdcError):  # the last words; the ledger has the truth without them
            self._beat(within_s=_LAST_LOOK_S)
        self._sink_look.close()
        self._source_look.close()

    def _run(self) -> None:
        """Beat at each interval until closed or fenced."""
        while True:
            try:
                self._beat(within_s=SOON_S)
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except CdcError as error:
                log.warning("no heartbeat: pipeline=%s cause=%s", self._sink.owner.pipeline, error)
            if self._closing.wait(self._every_s):
                return

    def _beat(self, *, within_s: float) -> None:
        """Check source and sink, then store the stream's progress."""
        if self._lag is None:
            self._lag = Lag(self._store.stream(self._sink.owner.pipeline))
        looks = self._sink_look, self._source_look
        until_s = time.monotonic() + within_s
        for look in looks:
            look.ask()
            if self._is_last:  # the source is asked about the position that the sink has just told
                look.wait(until_s - time.monotonic())
        for look in looks:
            look.wait(until_s - time.monotonic())
        self._note_outages()
        seen = self._sink_look.answer
        if seen is not None:
            owner = self._sink.owner
            if self._sink_look.is_fresh:
                self._following.note_committed(seen.split, seen.counts)
            told = self._state(seen, self._lag)
            self._store.beat(
                owner.pipeline, owner.generation, told, counts=seen.tables, is_last=self._is_last
            )
            self._tell_tables(seen.split)
        self._outages.tell()

    def _note_outages(self) -> None:
        """Note which server does not answer, and whether the stream goes on after an outage."""
        if isinstance(self._sink_look.error, FencedError):
            raise self._sink_look.error
        looks: dict[Part, ServerQuery[Any]] = {
            Part.SINK: self._sink_look,
            Part.SOURCE: self._source_look,
        }
        failing = {
            part
            for part, look in looks.items()
            if note_failure(self._outages, part, look, self._silences[part])
        }
        if failing:  # the stream cannot go on, so the answer of the other has to do
            over = {part for part, look in looks.items() if not look.is_looking} - failing
        else:
            over = set(Part) if self._goes_on() else set()
        over -= KNOWN_BY_ITSELF
        self._locks.note(self._outages)
        for part in sorted(over & self._outages.parts()):
            self._outages.over(part)

    def _goes_on(self) -> bool:
        """Tell whether both servers answer, and the stream has gone on since the last failure."""
        seen, source_end = self._sink_look.answer, self._source_look.answer
        is_known = self._sink_look.is_fresh and self._source_look.is_fresh
        if not is_known or seen is None or source_end is None:
            return False
        reached = self._following.passed_over.reached(seen.place)
        return self._recovery.is_shown(
            StreamLook(
                at_s=time.monotonic(),
                failures=self._outages.failures,
                progress=Progress(seen.split.start, seen.counts.batches, reached),
                has_log_waiting=not reached.reaches(source_end),
                is_failing=Part.WORK in self._outages.parts(),
                try_s=self._following.try_s,
            )
        )

    # --- looks, each in its own thread --------------------------------------------------------

    def _look_at_sink(self, ledger: Ledger) -> _SinkLook | None:
        """Read the stream's progress from the ledger; commit idle log if it is time."""
        split = ledger.stream()
        passed_over = self._following.passed_over
        if split is not None and passed_over.commit_in_time(ledger, split.start):
            split = ledger.stream()
        if split is None:
            return None
        # what is consistent at this very position
        here, counts = split.passed(split.start), ledger.counts()
        self._locks.look(ledger, (split.start, counts.batches), is_behind=self._is_behind(split))
        return _SinkLook(
            here,
            split.place,
            counts,
            self._count_tables(ledger, split),
            self._needed(ledger, split),
        )

    def _is_behind(self, split: StreamSplit) -> bool:
        """Tell whether log waits, as far as the source was heard of."""
        end = self._source_look.answer
        return end is not None and not self._following.passed_over.reached(split.place).reaches(end)

    def _needed(self, ledger: Ledger, split: StreamSplit) -> tuple[LogPosition, ...]:
        """Return from where on the log may be read again; empty where the source does not ask."""
        if not self._source.abilities.holds_log:
            return ()
        return split.start, *(each.stream.start for each in ledger.stopped())

    def _count_tables(self, ledger: Ledger, split: StreamSplit) -> Mapping[TableId, TableCounts]:
        """Return the changes of each table; none if they were counted just before."""
        now_s = time.monotonic()
        if now_s < self._next_counts_s and not self._closing.is_set():
            return NO_COUNTS
        self._next_counts_s = now_s + _COUNTS_EVERY_S
        if self._conflicts is not None:
            self._conflicts.tell(ledger.conflict_count())
        return count_tables(ledger, split)

    def _look_at_source(self, log_end: LogEnd) -> LogPosition:
        """Return the end of the source's log, and note how far back the log reaches."""
        self._tell_reach(log_end)
        self._advance_hold()
        return log_end.now()

    def _advance_hold(self) -> None:
        """Have the source let go of log that nobody reads again."""
        seen = self._sink_look.answer
        needed = smallest(seen.needed) if seen is not None and seen.needed else None
        if needed is None or needed == self._held_from:
            return
        with closing(self._source.hold(self._sink.owner.pipeline)) as hold:
            hold.advance(needed)
        self._held_from = needed

    def _tell_reach(self, log_end: LogEnd) -> None:
        """Store how far back the log reaches: each minute, as it lists all files, and at the end.

        It is stored before a stream starts, too.
        """
        seen, now_s = self._sink_look.answer, time.monotonic()
        is_due = now_s >= self._next_reach_s or self._is_last
        if seen is None or not is_due or not isinstance(log_end, KnowsReach):
            return
        self._next_reach_s = now_s + _REACH_EVERY_S
        note_reach(self._store, self._sink.owner.pipeline, log_end, seen.split.start)

    # --- what they saw ------------------------------------------------------------------------

    def _state(self, seen: _SinkLook, lag: Lag) -> StreamState:
        """Return the stream's state to be stored: position, end of the log, counts, lag."""
        split, counts = seen.split, seen.counts
        reached = self._following.passed_over.reached(seen.place)
        now_us = time.time_ns() // 1000
        look = self._source_look
        is_known = look.error is None and look.silent_s <= SILENT_S
        source_end = look.answer if is_known else None
        return StreamState(
            position=split.start,
            source_end=source_end,
            batch=counts.batches,
            changes=counts.changes,
            transactions=counts.transactions,
            lag_us=lag.at(reached, source_end, counts.age_us, now_us),
            heartbeat_us=now_us,
            inconsistent=split.inconsistent,
        )

    def _tell_tables(self, split: StreamSplit) -> None:
        """Mark tables that have reached their consistent point."""
        owner = self._sink.owner
        for progress in split.tables:
            table = progress.table
            if table not in split.inconsistent and table not in self._told_consistent:
                self._store.mark_table(
                    owner.pipeline, owner.generation, table, TablePhase.CONSISTENT
                )
                self._told_consistent.add(table)
                log.info("table is consistent: table=%s position=%s", table, split.start)
