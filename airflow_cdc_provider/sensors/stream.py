"""The sensor that keeps a continuous stream alive.

It waits without a worker: a trigger looks into the state store and wakes it when the goal is
reached, the stream has stopped, or nobody is at work any more. Then it starts the stream again
under a new generation, which fences whatever may be left of the old one, and goes on waiting. A
stream that never gets well is given up after a number of restarts in a row, and the task fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, assert_never

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from airflow_cdc_provider.core.errors import AccessDeniedError, CdcError, RetryableError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.hooks.job_handle import JobHandle, end_earlier_job, remember
from airflow_cdc_provider.hooks.job_log import log_shown_on_failure
from airflow_cdc_provider.hooks.lineage import LineageMixin
from airflow_cdc_provider.hooks.notify import notify_arguments, notifying_task
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.page import CdcPageLink, page_url
from airflow_cdc_provider.links.progress import CdcProgressLink
from airflow_cdc_provider.operators.base import WORTH_A_RETRY, airflow_errors, owner_of
from airflow_cdc_provider.operators.jobs import KILL_PATIENCE_S, await_streaming
from airflow_cdc_provider.triggers.places import place_of_state
from airflow_cdc_provider.triggers.stream import CdcStreamTrigger
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
from airflow_cdc_provider.views.lineage import LineageWork
from airflow_cdc_provider.views.summaries import PROGRESS_KEY, progress, stream_summary
from airflow_cdc_provider.views.watch_lines import watch_lines

_US = 1_000_000
_LATEST_EVENTS = 200
_HEARD_OF_NONE = 1
"""A table that came before the watch began asks for a look, too."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a waiting task carries over a deferral."""

    since_us: int
    """When the stream was last started, or the wait began."""
    restarts: int
    deadline_us: int
    told_us: int = 0
    """Up to when the task's log says what happened; 0 is up to now."""
    is_refused: bool = False
    """The stream was last started because a server refused the account of the job before."""


class CdcStreamSensor(LineageMixin, BaseSensorOperator):
    """
    Wait for a stream to reach a goal, and restart it if it fails until then.

    Judges by heartbeat, position and lag in the state store, not by process life. Pausing the
    pipeline ends the wait: with success if that was the goal, else the task is skipped.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param goal: `consistent`, `caught_up` or `stopped`.
    :param max_restarts: restarts of the stream in a row before the task fails.
    :param healthy_s: a stream that ran for so many seconds may be restarted as often again.
    :param start_s: seconds that a stream has to begin.
    :param stale_s: seconds without a heartbeat after which a stream is lost.
    :param stall_s: seconds without a move of the position, while something waits, after which a
        stream is lost.
    :param new_tables_s: seconds between looks for new tables at the source; each takes a worker for
        a moment.
    """

    template_fields: Sequence[str] = ("pipeline", "goal")
    operator_extra_links = (CdcPageLink(), CdcProgressLink())
    ui_color = "#e8f1f5"

    def __init__(  # noqa: PLR0913 - each is one a DAG's author may set
        self,
        *,
        pipeline: str,
        goal: str = Goal.STOPPED.value,
        max_restarts: int = 5,
        healthy_s: float = 900.0,
        start_s: float = START_S,
        stale_s: float = STALE_S,
        stall_s: float = STALL_S,
        new_tables_s: float = 300.0,
        poke_interval: float = 5.0,
        timeout: float = 10 * 365 * 86400.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.pipeline = pipeline
        self.goal = goal
        self.max_restarts = max_restarts
        self.healthy_s = healthy_s
        self.new_tables_s = new_tables_s
        self.patience = Patience(start_s=start_s, stale_s=stale_s, stall_s=stall_s)
        self._standing: Mapping[str, str] = {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the stream, and defer unless there is something to do."""
        with airflow_errors(self.pipeline), self._open() as steps:
            self.see(steps)
            now = steps.run.store.now_us()
            wait = _Wait(now, restarts=0, deadline_us=now + int(self.timeout * _US))
            return self._act(context, steps, self._first_look(steps, now), wait)

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], wait: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Act on the trigger's event."""
        with airflow_errors(self.pipeline), self._open() as steps:
            self.see(steps)
            seen = StreamEvent.from_payload(event)
            self._standing = seen.standing
            self._tell(steps, wait.get("told_us", 0))
            return self._act(context, steps, seen, _Wait(**wait))

    def _tell(self, steps: CdcSteps, since_us: int) -> None:
        """Log what happened since the task was deferred."""
        status = steps.status()
        events = steps.run.store.events(steps.run.name, _LATEST_EVENTS)
        for level, line in watch_lines(status, events, since_us or status.at_us):
            self.log.log(level, "%s", line)

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables."""
        return LineageWork()

    @contextmanager
    def _open(self) -> Iterator[CdcSteps]:
        """Open the pipeline as its DAG, and notify its receivers meanwhile."""
        with (
            CdcSteps(self.pipeline, owner=owner_of(self.dag_id)) as steps,
            notifying_task(
                steps,
                link=page_url(self.dag_id),
                file=self.pipeline,
                fails_run=True,
                retried=WORTH_A_RETRY,
            ),
        ):
            yield steps

    def _first_look(self, steps: CdcSteps, now: int) -> StreamEvent:
        """Check the stream at the task's start; a failed or ownerless one is to be restarted.

        A task that was cleared, or a run that comes later, may find a stream that has failed or
        that has no owner any more: trying again is what the task was started for.
        """
        status = steps.status()
        verdict, detail = judge(
            status.state,
            status.stream,
            goal=Goal(self.goal),
            watch=Watch(since_us=now, is_gone=status.owner_gone),
            patience=self.patience,
            now_us=now,
        )
        is_idle = verdict is Verdict.WAITING and not status.is_owned
        if status.state.phase is Phase.FAILED or is_idle:
            verdict, detail = Verdict.LOST, detail or "nobody is at work"
        error = failure_of(verdict, detail, status.state).text
        return StreamEvent(str(steps.run.name), verdict, detail, at_us=now, error=error)

    def _act(
        self, context: Context, steps: CdcSteps, event: StreamEvent, wait: _Wait
    ) -> dict[str, Any]:
        """Act on a verdict: return, skip, fail, restart the stream, or defer."""
        match event.verdict:
            case Verdict.WAITING:
                self._watch(steps, wait)
            case Verdict.REACHED:
                return self._summary(context, steps)
            case Verdict.STOPPED:
                if Goal(self.goal) is Goal.STOPPED:
                    return self._summary(context, steps)
                raise AirflowSkipException(f"pipeline {event.pipeline} was paused before that")
            case Verdict.TIMEOUT:
                raise AirflowSensorTimeout(f"pipeline {event.pipeline}: {event.detail}")
            case Verdict.FAILED:
                is_refused = self._require_worth_a_restart(event, wait)
                self._restart(context, steps, event, replace(wait, is_refused=is_refused))
            case Verdict.LOST:
                self._restart(context, steps, event, wait)
            case Verdict.ENDED:  # as it was asked to: no failure that counts
                self.log.info("stream starts again: %s", event.detail)
                self._start(context, steps, wait)
            case Verdict.LOOK:
                self._look(context, steps, wait)
        assert_never(event.verdict)

    def _require_worth_a_restart(self, event: StreamEvent, wait: _Wait) -> bool:
        """Raise an error that a restart cannot fix; return whether an account was refused."""
        error = _named(event)
        # a job has the password of its start: a new one reads the connection again
        is_refused = isinstance(error, AccessDeniedError)
        is_first = not wait.is_refused or self._was_healthy(event, wait)
        if not (isinstance(error, RetryableError) or (is_refused and is_first)):
            raise error
        return is_refused

    def _restart(
        self, context: Context, steps: CdcSteps, event: StreamEvent, wait: _Wait
    ) -> NoReturn:
        """Restart the stream and defer, unless it was restarted too often in a row."""
        tried = 0 if self._was_healthy(event, wait) else wait.restarts
        if tried >= self.max_restarts:
            raise RetryableError(
                f"the stream does not stay alive after {tried} restarts: {event.detail}",
                where=f"pipeline {event.pipeline}",
                risk="the sink falls behind the source; nothing is lost while the log is kept",
                remedy="the logs of its jobs say why; run the task again",
            )
        self.log.warning("stream starts again: pipeline=%s cause=%s", event.pipeline, event.detail)
        self._start(context, steps, replace(wait, restarts=tried + 1))

    def _was_healthy(self, event: StreamEvent, wait: _Wait) -> bool:
        """Tell whether the stream ran for so long that what failed before does not count."""
        return (event.at_us - wait.since_us) / _US >= self.healthy_s

    def _look(self, context: Context, steps: CdcSteps, wait: _Wait) -> NoReturn:
        """Add, remove and reset tables as requested or as the source has them, then defer."""
        heard_us = steps.run.store.now_us()
        if not steps.end_for_tables():
            self._watch(steps, wait, heard_us=heard_us)
        for text in steps.plan().changed:
            self.log.info("%s", text)
        self._start(context, steps, wait, heard_us=heard_us)

    def _start(
        self, context: Context, steps: CdcSteps, wait: _Wait, *, heard_us: int = 0
    ) -> NoReturn:
        """Start the stream job, after stopping an earlier one, and defer to watch it."""
        store = context["task_state_store"]
        end_earlier_job(store, patience_s=KILL_PATIENCE_S)
        job = steps.start_stream(mode="continuous")
        remember(store, JobHandle.of(job.spec, job.pid, job.log))
        started = steps.run.store.now_us()
        with log_shown_on_failure(job.log, self.log):
            await_streaming(steps, job, timeout_s=self.patience.start_s)
        self._watch(steps, replace(wait, since_us=started), heard_us=heard_us or started)

    def _watch(self, steps: CdcSteps, wait: _Wait, *, heard_us: int = 0) -> NoReturn:
        """Defer the task to watch the stream."""
        trigger = CdcStreamTrigger(
            pipeline=str(steps.run.name),
            state=place_of_state(steps),
            goal=self.goal,
            since_us=wait.since_us,
            poll_s=float(self.poke_interval),
            deadline_us=wait.deadline_us,
            look_us=steps.run.store.now_us() + int(self.new_tables_s * _US),
            heard_us=heard_us or _HEARD_OF_NONE,
            standing=self._standing,
            notify=notify_arguments(steps, link=page_url(self.dag_id), file=self.pipeline),
            **asdict(self.patience),
        )
        self.defer(
            trigger=trigger,
            method_name=self.execute_complete.__name__,
            kwargs={"wait": asdict(replace(wait, told_us=steps.run.store.now_us()))},
        )

    def _summary(self, context: Context, steps: CdcSteps) -> dict[str, Any]:
        """Return the stream's summary, and store its progress for the page."""
        status = steps.status()
        context["task_state_store"].set(PROGRESS_KEY, progress(status))
        return stream_summary(status)


def _named(event: StreamEvent) -> CdcError:
    """Return the error that a failed stream stored, in its own class."""
    # a triggerer of an earlier release tells only what was printed
    return StoredError(event.error or event.detail).read().located("log of the stream")
