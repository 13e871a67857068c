"""The trigger that waits for a request: it looks into the state store every few seconds.

It only looks, and what it knows between looks can be lost. What to do about a request that nobody
carries out is decided by its operator, on a worker. If a person ends the task meanwhile, by marking
or clearing it or its run, the trigger gives the request up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cdc_provider.core.errors import RefusedError, StateUnreachableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.records import PipelineState
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.hooks.request_hook import cancel_request
from airflow_cdc_provider.triggers.places import dsn_of_state, now_us
from airflow_cdc_provider.views.request_text import standing_text

CLASS_PATH = f"{__name__}.CdcRequestTrigger"
_TELL_EVERY_S = 10.0
_FIRST_LOOK_S = 2.0


class RequestVerdict(StrEnum):
    """The result of checking a request: waiting, ended, idle, gone or timed out."""

    WAITING = "waiting"
    ENDED = "ended"
    """It is done, has failed, or was cancelled: its row says which."""
    IDLE = "idle"
    """It is to be carried out, and nobody is at work."""
    GONE = "gone"
    """The pipeline was dropped, and the request with it."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """The event that the request trigger sends to its operator or sensor."""

    pipeline: str
    request_id: str
    verdict: RequestVerdict
    detail: str = ""
    at_us: int = 0

    def to_payload(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return asdict(self) | {"verdict": self.verdict.value}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> RequestEvent:
        """Read an event, also of another release."""
        return cls(
            pipeline=str(payload["pipeline"]),
            request_id=str(payload["request_id"]),
            verdict=RequestVerdict(payload["verdict"]),
            detail=str(payload.get("detail", "")),
            at_us=int(payload.get("at_us", 0)),
        )


def judge(
    state: PipelineState | None, request: Request | None, now_us: int
) -> tuple[RequestVerdict, str]:
    """Return a request's verdict, and what it waits for."""
    if state is None or request is None:
        return RequestVerdict.GONE, "the pipeline was dropped, or has dropped its old requests"
    if not request.status.is_open:
        return RequestVerdict.ENDED, request.status.value
    if request.status is RequestStatus.WAITING:
        return RequestVerdict.WAITING, "it waits for somebody to approve it"
    if state.wanted is Wanted.STOP:
        return (
            RequestVerdict.WAITING,
            "the pipeline is paused: it goes on after `resume`, a button on the CDC page",
        )
    if state.lease_until_us <= now_us:
        return RequestVerdict.IDLE, "nobody is at work"
    return RequestVerdict.WAITING, f"{state.owner} is at work: {standing_text(request)}"


class CdcRequestTrigger(BaseTrigger):
    """
    Fires when a request has ended, or when no process owns the pipeline to carry it out.

    Arguments are only ever added, with defaults: a stored trigger outlives an upgrade.

    :param pipeline: name of the pipeline.
    :param request_id: id of the request.
    :param state: where its state is: `{"conn_id": ...}`, `{"dsn_env": ...}` or, for a SQLite file,
        `{"path": ...}`.
    :param poll_s: seconds between looks.
    :param deadline_us: when to give up, 0 for never.
    :param idle_s: for how many seconds no process may own the pipeline; None waits on.
    :param cancel_on_kill: give the request up if a person ends the task.
    """

    def __init__(  # noqa: PLR0913 - Airflow stores them one by one
        self,
        *,
        pipeline: str,
        request_id: str,
        state: Mapping[str, str],
        poll_s: float = 5.0,
        deadline_us: int = 0,
        idle_s: float | None = None,
        cancel_on_kill: bool = False,
        **_of_a_later_release: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.request_id = request_id
        self.state = dict(state)
        self.poll_s = poll_s
        self.deadline_us = deadline_us
        self.idle_s = idle_s
        self.cancel_on_kill = cancel_on_kill
        self._reader: Any = None
        self._idle_since_s: float | None = None
        self._told = ""
        self._told_s = 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, from which Airflow makes the trigger again."""
        names = ("pipeline", "request_id", "state", "poll_s", "deadline_us", "idle_s")
        arguments = {name: getattr(self, name) for name in names}
        return CLASS_PATH, {**arguments, "cancel_on_kill": self.cancel_on_kill}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the state store until the request has ended or needs an owner, then fire.

        Airflow takes a task for failed that is resumed before its scheduler has heard that the
        process which deferred it ended.
        """
        await asyncio.sleep(min(self.poll_s, _FIRST_LOOK_S))
        while True:
            verdict, detail = await self._verdict()
            if verdict is not RequestVerdict.WAITING:
                event = RequestEvent(self.pipeline, self.request_id, verdict, detail, now_us())
                yield TriggerEvent(event.to_payload())  # type: ignore[no-untyped-call]
                return
            self._tell(detail)
            await asyncio.sleep(self.poll_s)

    async def cleanup(self) -> None:
        """Close the state store's connections."""
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)

    async def on_kill(self) -> None:
        """Cancel the request: a person ended the task that waits for it."""
        if self.cancel_on_kill:
            dsn = await dsn_of_state(self.state)
            with_reason = (dsn, PipelineName(self.pipeline), self.request_id)
            await asyncio.to_thread(_cancel, *with_reason)

    async def _verdict(self) -> tuple[RequestVerdict, str]:
        """Check the request once; a state store that is away counts as waiting."""
        try:
            verdict, detail = judge(*await self._look(), now_us())
        except StateUnreachableError as error:
            verdict, detail = RequestVerdict.WAITING, str(error)
        if verdict is RequestVerdict.IDLE:
            verdict = self._still_idle()
        else:
            self._idle_since_s = None
        if verdict is RequestVerdict.WAITING and 0 < self.deadline_us <= now_us():
            return RequestVerdict.TIMEOUT, detail
        return verdict, detail

    def _still_idle(self) -> RequestVerdict:
        """Return IDLE once the pipeline was without an owner for long enough, else WAITING."""
        now = time.monotonic()
        self._idle_since_s = now if self._idle_since_s is None else self._idle_since_s
        is_long = self.idle_s is not None and now - self._idle_since_s >= self.idle_s
        return RequestVerdict.IDLE if is_long else RequestVerdict.WAITING

    def _tell(self, detail: str) -> None:
        """Log what the request waits for when that changes, but not too often."""
        now = time.monotonic()
        if detail != self._told and (not self._told or now - self._told_s >= _TELL_EVERY_S):
            self.log.info("request %s: %s", self.request_id, detail)
            self._told, self._told_s = detail, now

    async def _look(self) -> tuple[PipelineState | None, Request | None]:
        """Read the pipeline's state and the request from the state store."""
        if self._reader is None:
            dsn = await dsn_of_state(self.state)
            self._reader = await asyncio.to_thread(_open_reader, dsn)
        reader, name = self._reader, PipelineName(self.pipeline)
        return await asyncio.to_thread(
            lambda: (reader.pipeline(name), reader.request(name, self.request_id))
        )


def _open_reader(dsn: str) -> Any:
    """Open the state store for reading."""
    # SQLAlchemy is loaded where a trigger runs, not where a DAG is parsed
    from airflow_cdc_provider.databases.engines import open_engine  # noqa: PLC0415 - see above
    from airflow_cdc_provider.state.reader import SqlStateReader  # noqa: PLC0415 - see above

    return SqlStateReader(open_engine(dsn))


def _cancel(dsn: str, name: PipelineName, request_id: str) -> None:
    """Cancel a request, if it still exists."""
    try:
        cancel_request(dsn, name, request_id)
    except RefusedError:
        return  # it is gone, and nothing is left to give up
