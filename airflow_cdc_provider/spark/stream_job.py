"""The stream job: micro-batches of Spark's, or of its driver's, that follow the log into the sink.

What a stream job does, when it tries again and when it ends is `engine.stream.follow`'s.

A micro-batch of Spark's takes a quarter of a second, most of it to plan it and to pass it on. So a
continuous stream is followed by the driver's own process, and by Spark only while more log waits
than that should read alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.stream import follow
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.stream_task import StreamTask
from airflow_cdc_provider.spark.micro_batches import SparkFollower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_stream(
    job: Job, spark: Callable[[], SparkSession], *, back_off: BackOff | None = None
) -> JobResult:
    """Run the stream by Spark, or in the driver while little log waits, until bound or stop."""

    def by_spark(task: StreamTask, following: Following) -> SparkFollower:
        return SparkFollower(job, spark(), task, following)

    def by_turns(task: StreamTask, following: Following) -> _AlternatingFollower:
        return _AlternatingFollower(job, task, following, by_spark)

    follower = by_turns if job.spec.may_need_no_spark else by_spark
    return follow.run_stream(job, follower, back_off=back_off)


class _AlternatingFollower:
    """Follows the log in this process while little waits, and by Spark when much does.

    Spark is started when it is needed first, and stays.
    """

    def __init__(
        self,
        job: Job,
        task: StreamTask,
        following: Following,
        by_spark: Callable[[StreamTask, Following], SparkFollower],
    ) -> None:
        self._job = job
        self._following = following
        self._own = OwnFollower(task, following, job.spec.driver_log_bytes)
        self._open_by_spark = partial(by_spark, task, following)
        self._by_spark: SparkFollower | None = None
        self._much_waits = False

    def follow(self, start: LogPosition) -> bool:
        """Follow the log until the other follower is to take over; True at the run's end."""
        if not self._much_waits:
            is_over = self._own.follow(start)
            self._much_waits = not is_over
            return is_over
        self._much_waits = False
        if self._by_spark is None:
            self._by_spark = self._open_by_spark()
        with closing(self._job.source().log_end(purpose="end of the log")) as log_end:
            bound = log_end.now()
        self._by_spark.run(start, bound)
        return self._following.ending.is_set()
