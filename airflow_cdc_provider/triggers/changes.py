"""The trigger that waits for changes: it looks into the state store every few seconds.

It only hears that something happened: that the stream has applied more, or that a request is done.
Which tables it was the sensor asks the sink's ledger, on a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cdc_provider.core.errors import StateUnreachableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.ports import StateReader
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.state.reader import SqlStateReader
from airflow_cdc_provider.triggers.places import dsn_of_state, now_us

CLASS_PATH = f"{__name__}.CdcChangesTrigger"


def activity_of(reader: StateReader, name: PipelineName) -> str:
    """Return a text that changes whenever rows of a table may have changed."""
    state, stream = reader.pipeline(name), reader.stream(name)
    plan = "" if state is None else state.plan_id
    applied = "" if stream is None else f"{stream.changes} {len(stream.inconsistent)}"
    done = max((each.changed_us for each in reader.requests(name)), default=0)
    return f"{plan} {applied} {done}"


class CdcChangesTrigger(BaseTrigger):
    """
    Fires when the pipeline's `activity` has changed, or at a time given.

    Arguments are only ever added, with defaults: a stored trigger outlives an upgrade.

    :param pipeline: name of the pipeline.
    :param state: where its state is: `{"conn_id": ...}`, `{"dsn_env": ...}` or, for a SQLite file,
        `{"path": ...}`.
    :param activity: what was known; empty fires as soon as it may.
    :param due_us: before this nothing fires.
    :param look_us: from this on it fires whatever happened, 0 for never.
    :param poll_s: seconds between looks.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        state: Mapping[str, str],
        activity: str = "",
        due_us: int = 0,
        look_us: int = 0,
        poll_s: float = 5.0,
        **_of_a_later_release: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.state = dict(state)
        self.activity = activity
        self.due_us = due_us
        self.look_us = look_us
        self.poll_s = poll_s
        self._reader: SqlStateReader | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, from which Airflow makes the trigger again."""
        names = ("pipeline", "state", "activity", "due_us", "look_us", "poll_s")
        return CLASS_PATH, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the state store until tables have changed, then fire the trigger."""
        while True:
            if now_us() >= self.due_us and await self._is_time():
                event = {"pipeline": self.pipeline, "at_us": now_us()}
                yield TriggerEvent(event)  # type: ignore[no-untyped-call]
                return
            left_s = (self.due_us - now_us()) / 1_000_000
            await asyncio.sleep(max(self.poll_s, left_s))

    async def _is_time(self) -> bool:
        """Tell whether to fire: the activity has changed, or the time has come."""
        if 0 < self.look_us <= now_us():
            return True
        try:
            return await self._activity() != self.activity
        except StateUnreachableError as error:
            self.log.info("waiting: pipeline=%s %s", self.pipeline, error)
            return False

    async def _activity(self) -> str:
        """Read the pipeline's activity from the state store."""
        if self._reader is None:
            dsn = await dsn_of_state(self.state)
            self._reader = await asyncio.to_thread(lambda: SqlStateReader(open_engine(dsn)))
        return await asyncio.to_thread(activity_of, self._reader, PipelineName(self.pipeline))

    async def cleanup(self) -> None:
        """Close the state store's connections."""
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)
