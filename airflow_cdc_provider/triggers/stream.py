"""The trigger that watches a stream: it looks into the state store every few seconds.

It holds no worker, and what it knows between looks can be lost: after a restart of the triggerer
it starts again from its arguments. It only looks. What to do about a lost stream is decided by
its sensor, on a worker.

A stream that cannot be heard of, because the state store does not answer, is not silent: patience
with it begins anew when the store is back.

If a person ends the task meanwhile, by marking it or its run, the stream goes on. Then nobody is
left who would start it again, and that is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cdc_provider.core.errors import StateUnreachableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import NoteKind, Outage, PipelineState, StreamState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.table_picks import is_new_table_event
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.hooks.metrics import send_stream_metrics
from airflow_cdc_provider.hooks.notify import watch_of_trigger
from airflow_cdc_provider.state.reader import SqlStateReader
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.triggers.lines import (
    codes_of,
    standing_lines,
    standing_tables,
    standing_text,
    stream_text,
)
from airflow_cdc_provider.triggers.places import dsn_of_state, now_us
from airflow_cdc_provider.triggers.verdict import (
    STALE_S,
    STALL_S,
    START_S,
    Goal,
    Patience,
    StreamEvent,
    Verdict,
    Watch,
    failure_of,
    judge,
)
from airflow_cdc_provider.views.outages import driver_is_gone, outage_text, outages_of
from airflow_cdc_provider.views.remarks import published_of

if TYPE_CHECKING:
    from airflow_cdc_provider.alerts.watch import NotifyingThread

CLASS_PATH = f"{__name__}.CdcStreamTrigger"
UNWATCHED = (
    "a task that watched the stream was ended by a person. The stream goes on; if no other task "
    "watches it, nobody starts it again when it is lost. `pause`, or Pause on the CDC page, ends "
    "it; a run of the pipeline's DAG watches it"
)
_TELL_EVERY_US = 60_000_000
_LATEST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Look:
    """What one read of the state store shows of a pipeline and its stream."""

    state: PipelineState | None = None
    stream: StreamState | None = None
    is_asked: bool = False
    """Something new is asked about its tables."""
    is_gone: bool = False
    """The job's process was of this machine, and has ended."""
    outages: tuple[Outage, ...] = ()
    came_us: int = 0
    """When the stream last told of a table that came at the source, 0 if it has not lately."""
    has_heeded: bool = False
    """The job has heeded a pause, which may be taken back by now."""
    published_us: int | None = None
    """When tables that follow a log at the sink had last all of it."""


class CdcStreamTrigger(BaseTrigger):
    """
    Fires when a stream has reached its goal, was stopped, is lost or has failed.

    Arguments are only ever added, with defaults: a stored trigger outlives an upgrade.

    :param pipeline: name of the pipeline.
    :param state: where its state is: `{"conn_id": ...}`, `{"dsn_env": ...}` or, for a SQLite file,
        `{"path": ...}`.
    :param goal: `consistent`, `caught_up` or `stopped`.
    :param since_us: when the stream was last started, or the watch began.
    :param poll_s: seconds between looks.
    :param deadline_us: when to give up, 0 for never.
    :param look_us: when to ask for a look at the source, 0 for never.
    :param heard_us: up to when the stream was heard of tables that come at the source; one that
        comes later asks for a look at once. 0 is from the first look on.
    :param start_s: patience with a job that was started.
    :param stale_s: patience with a heartbeat that does not come.
    :param stall_s: patience with a position that does not move while log waits.
    :param standing: tables that stand still, of which an earlier watch of this task has told, each
        with the code of its error.
    :param notify: who is notified of problems, as the pipeline file says; no one if empty.
    """

    def __init__(  # noqa: PLR0913 - Airflow stores them one by one
        self,
        *,
        pipeline: str,
        state: Mapping[str, str],
        goal: str = Goal.STOPPED.value,
        since_us: int = 0,
        poll_s: float = 5.0,
        deadline_us: int = 0,
        look_us: int = 0,
        heard_us: int = 0,
        start_s: float = START_S,
        stale_s: float = STALE_S,
        stall_s: float = STALL_S,
        standing: Mapping[str, str] = MappingProxyType({}),
        notify: Mapping[str, Any] = MappingProxyType({}),
        **_of_a_later_release: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.state = dict(state)
        self.goal = goal
        self.since_us = since_us
        self.poll_s = poll_s
        self.deadline_us = deadline_us
        self.look_us = look_us
        self.heard_us = heard_us
        self.patience = Patience(start_s=start_s, stale_s=stale_s, stall_s=stall_s)
        self._reader: SqlStateReader | None = None
        self.standing = dict(standing)
        self.notify = dict(notify)
        self._notifying: NotifyingThread | None = None
        self._stand_still = 0
        self._told_us = 0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, from which Airflow makes the trigger again."""
        names = ("pipeline", "state", "goal", "since_us", "poll_s", "deadline_us", "look_us")
        arguments = {
            name: getattr(self, name) for name in (*names, "heard_us", "standing", "notify")
        }
        return CLASS_PATH, {**arguments, **asdict(self.patience)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the state store until the stream's verdict is no longer WAITING, then fire."""
        watch = Watch(since_us=self.since_us or now_us())
        await self._begin_to_notify()
        told, seen = "", Look()
        while True:
            verdict, detail, generation = Verdict.WAITING, "", 0
            try:
                seen = await self._look()
            except StateUnreachableError as error:
                detail = str(error)  # the stream goes on without the state store, so do we
                watch = replace(watch, since_us=now_us())
            else:
                send_stream_metrics(
                    self.pipeline,
                    seen.stream,
                    now_us=now_us(),
                    outages=seen.outages,
                    published_us=seen.published_us,
                    is_gone=seen.is_gone,
                )
                watch = watch.look(
                    seen.stream, now_us(), is_gone=seen.is_gone, has_heeded=seen.has_heeded
                )
                generation = 0 if seen.state is None else seen.state.generation
                verdict, detail = judge(
                    seen.state,
                    seen.stream,
                    goal=Goal(self.goal),
                    watch=watch,
                    patience=self.patience,
                    now_us=now_us(),
                )
            if verdict is Verdict.WAITING:
                is_asked = seen.is_asked or self._hears(seen)
                verdict, detail = self._in_time(detail, is_asked=is_asked)
            if verdict is not Verdict.WAITING:
                event = StreamEvent(
                    self.pipeline,
                    verdict,
                    detail,
                    generation,
                    now_us(),
                    self.standing,
                    failure_of(verdict, detail, seen.state).text,
                )
                yield TriggerEvent(event.to_payload())  # type: ignore[no-untyped-call]
                return
            told = self._tell(seen, detail, told)
            await asyncio.sleep(self.poll_s)

    def _tell(self, seen: Look, detail: str, told: str) -> str:
        """Log the stream's state when it changes, and every minute; return what was logged."""
        news = ", ".join((detail, *(outage.error.code for outage in seen.outages)))
        if news == told and not self._is_time:
            return told
        self._told_us = now_us()
        parts = [f"watching {self.pipeline}", detail]
        parts += [outage_text(outage, self._told_us) for outage in seen.outages]
        if seen.stream is not None:
            parts.append(stream_text(seen.stream, self._told_us))
        parts.append(standing_text(self._stand_still))
        level = logging.WARNING if seen.outages else logging.INFO
        self.log.log(level, "%s", ", ".join(filter(None, parts)))
        return news

    @property
    def _is_time(self) -> bool:
        """Tell whether a minute has passed since the last log line."""
        return now_us() - self._told_us >= _TELL_EVERY_US

    def _hears(self, seen: Look) -> bool:
        """Tell whether a new table was recorded since the last check."""
        if not self.look_us:
            return False
        if not self.heard_us:
            self.heard_us = max(seen.came_us, 1)
        return seen.came_us > self.heard_us

    def _in_time(self, detail: str, *, is_asked: bool) -> tuple[Verdict, str]:
        """Return TIMEOUT or LOOK if it is time for one, else WAITING."""
        if 0 < self.deadline_us <= now_us():
            return Verdict.TIMEOUT, detail or "the time is up"
        if is_asked or 0 < self.look_us <= now_us():
            return Verdict.LOOK, detail
        return Verdict.WAITING, detail

    async def on_kill(self) -> None:
        """Record that no task watches the stream any more: a person ended the one that did."""
        dsn = await dsn_of_state(self.state)
        if await asyncio.to_thread(_tell_unwatched, dsn, PipelineName(self.pipeline)):
            self.log.warning("%s: %s", self.pipeline, UNWATCHED)

    async def _begin_to_notify(self) -> None:
        """Start to notify receivers; an error of that is only logged."""
        try:
            dsn = await dsn_of_state(self.state) if self.notify else ""
            self._notifying = await watch_of_trigger(self.pipeline, dsn, self.notify)
        except Exception as error:  # noqa: BLE001 - such as a connection that cannot be read
            self.log.warning("%s: nobody is notified: %s", self.pipeline, type(error).__name__)
        if self._notifying is not None:
            self._notifying.start()

    async def cleanup(self) -> None:
        """Close the state store's connections and stop notifying."""
        if self._notifying is not None:
            self._notifying.end(has_last_look=False, wait_s=0.0)
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)

    async def _look(self) -> Look:
        """Read the pipeline's state; isolated tables once a minute."""
        if self._reader is None:
            dsn = await dsn_of_state(self.state)
            self._reader = await asyncio.to_thread(lambda: SqlStateReader(open_engine(dsn)))
        reader, name = self._reader, PipelineName(self.pipeline)
        if self._is_time:
            seen = await asyncio.to_thread(standing_tables, reader, name, now_us())
            self._tell_standing(*seen)
        return await asyncio.to_thread(_look, reader, name)

    def _tell_standing(self, count: int, standing: Mapping[str, StoredError]) -> None:
        """Log each table that was isolated since the last call."""
        for line in standing_lines(standing, self.standing):
            self.log.warning("%s", line)
        self._stand_still, self.standing = count, codes_of(standing)


def _look(reader: SqlStateReader, name: PipelineName) -> Look:
    """Read the pipeline's state, stream, outages and new tables from the state store."""
    state, stream = reader.pipeline(name), reader.stream(name)
    generation = 0 if state is None else state.generation
    noted = reader.note(name, NoteKind.OUTAGES)
    streams = state is not None and (state.phase, state.wanted) == (Phase.STREAMING, Wanted.RUN)
    # one that waits for something is looked at again as seldom as the source is
    is_asked = streams and any(not each.error for each in reader.table_requests(name))
    return Look(
        state,
        stream,
        is_asked,
        driver_is_gone(noted, generation),
        outages_of(noted, generation) if streams else (),
        max(_came(reader, name), default=0) if streams else 0,
        _has_heeded(reader, name, generation),
        published_of(reader.note(name, NoteKind.PUBLISHED)) if streams else None,
    )


def _has_heeded(reader: SqlStateReader, name: PipelineName, generation: int) -> bool:
    """Tell whether a generation's job has heeded a pause."""
    note = reader.note(name, NoteKind.ENDING)
    return note is not None and note.form == {"generation": generation, "is_wanted": True}


def _came(reader: SqlStateReader, name: PipelineName) -> Iterator[int]:
    """Yield the times at which new tables were recorded."""
    for event in reader.events(name, _LATEST_EVENTS):
        if is_new_table_event(event.text):
            yield event.at_us


def _tell_unwatched(dsn: str, name: PipelineName) -> bool:
    """Record an event that no task watches the stream; False if no stream goes on."""
    with closing(open_store(dsn)) as store:
        state = store.pipeline(name)
        if state is None or state.phase is not Phase.STREAMING or state.wanted is Wanted.STOP:
            return False
        store.tell(name, UNWATCHED, level="warning")
        return True
