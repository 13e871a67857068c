"""The long steps: snapshot and stream, each a Spark job in a process of its own.

What is small the task's own process does, without Spark, and it ends with it.

A try first ends what an earlier try of the same task may have left running, then starts its own
job under a new generation. Nothing is lost by that: the ledger in the sink says which splits are
done and how far the stream is, and whatever the old job still does is refused there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import FencedError, PausedError, RetryableError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.spark_place import SparkPlace
from airflow_cdc_provider.hooks.job_handle import (
    JobHandle,
    TaskStateStore,
    end_earlier_job,
    remember,
    stop_group,
)
from airflow_cdc_provider.hooks.job_log import log_shown_on_failure
from airflow_cdc_provider.hooks.metrics import send_metrics
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.early import push_links
from airflow_cdc_provider.links.spark import CdcSparkLink
from airflow_cdc_provider.operators.base import CdcOperator, skip_if_paused
from airflow_cdc_provider.views.lineage import LineageWork
from airflow_cdc_provider.views.progress import Pace, is_begun
from airflow_cdc_provider.views.summaries import (
    PROGRESS_KEY,
    progress,
    snapshot_summary,
    stream_summary,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.jobs import JobEnd, JobProcess
    from airflow_cdc_provider.pipeline.steps.small_work import InProcessJob
    from airflow_cdc_provider.views.status import PipelineStatus

StartedT = TypeVar("StartedT", bound="JobProcess | InProcessJob | None")
KILL_PATIENCE_S = 3.0
"""Airflow waits five seconds for `on_kill` before it kills the task's own process."""
_GIVE_BACK_PATIENCE_S = 1.0
_POLL_S = 0.5
_FIRST_COMMIT_S = 60.0
"""How long a stream that is alive may take over its first commit before it is believed."""


class CdcJobOperator(CdcOperator):
    """
    The base of operators that start a job and wait for it.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param progress_every_s: seconds between lines of progress in the task's log.
    """

    notifies = True

    operator_extra_links = (*CdcOperator.operator_extra_links, CdcSparkLink())

    def __init__(self, *, progress_every_s: float = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.progress_every_s = progress_every_s
        self.spark_place: SparkPlace | None = None
        self._job: JobProcess | InProcessJob | None = None
        self._steps: CdcSteps | None = None
        self._is_killed = False

    @contextmanager
    def opened(self, *, owner: str = "") -> Iterator[CdcSteps]:
        """Open the pipeline; its lease is given back if the task is killed."""
        with super().opened(owner=owner) as steps:
            self._steps = steps
            yield steps

    def on_kill(self) -> None:
        """Stop the job and give the lease back when the task is killed."""
        self._is_killed = True
        self._end_job()
        if self._steps is not None:
            # in a thread: what was interrupted may hold what this waits for
            thread = threading.Thread(target=self._steps.give_back, daemon=True)
            thread.start()
            thread.join(_GIVE_BACK_PATIENCE_S)

    def _end_job(self) -> None:
        """Stop the job that this task has started."""
        job = self._job
        if job is not None and job.pid is not None:
            stop_group(job.pid, patience_s=KILL_PATIENCE_S)
        elif job is not None:
            job.stop(patience_s=KILL_PATIENCE_S)

    def start_job(self, context: Context, start: Callable[[], StartedT]) -> StartedT:
        """Stop a job that an earlier try left, start the new one, and remember it."""
        store = context["task_state_store"]
        left = end_earlier_job(store, patience_s=KILL_PATIENCE_S)
        if left is not None:
            self.log.warning("ended the job of an earlier try: job=%s", left.job_id)
        started = start()
        self._job = started
        if self._is_killed:  # before there was a job that could be ended
            self._end_job()
            raise RetryableError(
                "the task was ended while its job was being started",
                where=f"pipeline {self.pipeline}",
                risk="none: what is committed stays, the rest is done by the next try",
                remedy="run the task again",
            )
        push_links(context, self)
        if started is not None:
            self._note(store, left, started)
        return started

    def _note(
        self, store: TaskStateStore, left: JobHandle | None, job: JobProcess | InProcessJob
    ) -> None:
        """Remember a job that outlives this process, so that the next try can stop it."""
        pid, log = job.pid, job.log
        if pid is None or log is None:
            self.log.info("little to do: this task does it itself, without Spark")
            return
        handle = JobHandle.of(job.spec, pid, log)
        if left is not None and not left.does_the_same_as(handle):
            self.log.warning(
                "the pipeline file has changed since the earlier try: its job was told to do "
                "something else"
            )
        remember(store, handle)
        self.log.info(
            "job started: job=%s generation=%d log=%s",
            handle.job_id,
            handle.generation,
            handle.log,
        )

    def wait(
        self,
        context: Context,
        steps: CdcSteps,
        job: JobProcess | InProcessJob,
        look: Callable[[], None] = lambda: None,
    ) -> JobEnd:
        """Wait for the job's end, logging progress; `look` is called as often as that."""
        last, pace = "", Pace()

        def tell(*, ended: str = "") -> None:
            nonlocal last
            look()
            status = steps.status()
            send_metrics(status)
            self.show_spark(context, status, job.spec.generation)
            is_told = ended or is_begun(status)
            text = pace.line(status, ended=ended) if is_told else "starting"
            if text != last:
                last = text
                self.log.info("%s", text)
                context["task_state_store"].set(PROGRESS_KEY, progress(status, text))

        with log_shown_on_failure(job.log, self.log):
            end = job.wait(on_tick=tell, every_s=self.progress_every_s)
        tell(ended=job.spec.kind.value)
        if end.outcome == "stopped" and not steps.is_paused:
            raise RetryableError(
                f"the {job.spec.kind.value} job was stopped from outside",
                where=f"log {job.log or 'of this task'}",
                risk="none: what is committed stays, the rest is done by the next try",
                remedy="run the task again",
            )
        return end

    def show_spark(self, context: Context, status: PipelineStatus, generation: int) -> None:
        """Link to the job's Spark UI once its driver has recorded the address."""
        found = SparkPlace.find(status.events, generation)
        if found is not None and found != self.spark_place:
            self.spark_place = found
            self.log.info("%s", found)
            push_links(context, self)

    def catch_up(self, context: Context, steps: CdcSteps) -> None:
        """Stream up to the end that the log has now, and wait; no job if nothing is to do."""
        job = self.start_job(context, steps.start_catching_up)
        if job is None:
            self.log.info("nothing to stream: the sink has all of the source's log")
        else:
            self.wait_for_all(context, steps, job)

    def wait_for_all(
        self, context: Context, steps: CdcSteps, job: JobProcess | InProcessJob
    ) -> None:
        """Wait for the job's end; skip the rest of the run if the job was stopped."""
        if self.wait(context, steps, job).outcome == "stopped":
            raise AirflowSkipException(f"pipeline {steps.run.name} was paused meanwhile")


class CdcSnapshotOperator(CdcJobOperator):
    """
    Read every split that is not in the sink yet, and wait for that.

    Does nothing once the stream has taken over.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param progress_every_s: seconds between lines of progress in the task's log.
    """

    fails_run = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the snapshot job, if it has anything to read, and wait for it."""
        with self.opened() as steps:
            skip_if_paused(steps)
            job = self.start_job(context, steps.start_snapshot)
            if job is None:
                self.log.info("nothing to read: the stream has taken over")
            else:
                self.wait_for_all(context, steps, job)
            return snapshot_summary(steps.status(), ran=job is not None)

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables, with the rows it read."""
        return LineageWork(is_snapshot=self._job is not None)


class CdcStreamOperator(CdcJobOperator):
    """
    Run the stream: catch up with the log if `bounded`, else start a continuous job.

    `bounded` catches up with where the log ends now, and waits for it. `continuous` starts a job
    that outlives the task, for a `CdcStreamSensor` to watch, and ends when the job is streaming.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param mode: `bounded` or `continuous`; the file's if None (templated). A pipeline that ends is
        always bounded.
    :param detach: False keeps a continuous stream inside the task, for workers that end whatever
        a task started, such as Kubernetes pods. The task then ends when the stream is paused.
    :param start_timeout_s: seconds that a detached job has to begin.
    :param progress_every_s: seconds between lines of progress in the task's log.
    :param shown: what the CDC page finds the pipeline by, as `ShownPipeline` writes it; without it
        the page reads the pipeline file, which the API server must then have.
    """

    fails_run = True

    template_fields = ("pipeline", "mode")

    def __init__(
        self,
        *,
        mode: str | None = None,
        detach: bool = True,
        start_timeout_s: float = 300.0,
        shown: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mode = mode
        self.shown = shown
        self.detach = detach
        self.start_timeout_s = start_timeout_s

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Have Airflow keep the field `shown` with the serialised DAG, for the CDC page."""
        return frozenset(super().get_serialized_fields() | {"shown"})  # type: ignore[no-untyped-call]

    def execute(self, context: Context) -> dict[str, Any]:
        """Catch up with the log, or start the continuous stream and wait until it streams."""
        with self.opened() as steps:
            skip_if_paused(steps)
            stream = steps.run.model.stream
            if (self.mode or stream.mode) != "continuous" or stream.stops_at:
                self.catch_up(context, steps)
                return stream_summary(steps.status())
            job = self.start_job(context, lambda: steps.start_stream(mode=self.mode))
            if self.detach:
                with log_shown_on_failure(job.log, self.log):
                    await_streaming(steps, job, timeout_s=self.start_timeout_s)
                self.show_spark(context, steps.status(), job.spec.generation)
                self._job = self._steps = None  # from here on it is not this task's to end
            else:
                self._follow(context, steps, job)
            return stream_summary(steps.status())

    def _follow(self, context: Context, steps: CdcSteps, job: JobProcess) -> None:
        """Wait for the stream's end; restart it where tables are added, removed or reset."""
        while True:
            later = steps.later_tables()
            try:
                self.wait(context, steps, job, later.look)
            except FencedError:
                if not later.is_found:
                    raise
            else:
                return
            try:
                for text in steps.go_on_with(later).changed:
                    self.log.info("%s", text)
                job = self.start_job(context, lambda: steps.start_stream(mode=self.mode))
            except PausedError:  # between two streams, as it might have been in one
                return

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables."""
        return LineageWork()


_detached: list[JobProcess] = []
"""Jobs that outlive their task are kept here, or Python would complain while it ends."""


class _Heard:
    """Watches whether the stream of one generation has begun, by its heartbeats."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._first: tuple[str, float] | None = None

    @property
    def is_alive(self) -> bool:
        """Tell whether a heartbeat of this generation was seen."""
        return self._first is not None

    def streams(self, status: PipelineStatus, now_s: float) -> bool:
        """Tell whether this generation's stream works: it has committed, or lived for a while."""
        state, stream = status.state, status.stream
        is_its = state.phase is Phase.STREAMING and state.generation == self._generation
        if not is_its or stream is None or stream.generation != self._generation:
            return False
        if not stream.heartbeat_us:
            return False
        position = str(stream.position)
        self._first = self._first or (position, now_s)
        since, since_s = self._first
        return position != since or stream.lag_us == 0 or now_s - since_s >= _FIRST_COMMIT_S


def await_streaming(steps: CdcSteps, job: JobProcess, *, timeout_s: float) -> None:
    """Wait until a job streams; raise the error with which it ends before that.

    It streams when it was heard of and has committed something, or nothing waits. One whose first
    commit takes long is believed when it has lived for a while.
    """
    deadline = time.monotonic() + timeout_s
    heard = _Heard(job.spec.generation)
    while job.is_running:
        if heard.streams(steps.status(), time.monotonic()):
            _detached.append(job)
            return
        if time.monotonic() >= deadline and not heard.is_alive:
            job.stop()
            raise RetryableError(
                f"the stream job did not begin within {timeout_s:.0f} s",
                where=f"log {job.log}",
                risk="none: nothing was lost",
                remedy="the log says what it waited for; run the task again",
            )
        time.sleep(_POLL_S)
    job.end()
