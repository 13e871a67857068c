"""What Spark's UI says of a job, and the name by which a job is cancelled.

Classic Spark has job groups, and a description for each job. Spark Connect has tags instead, which
its server shows beside the operation; it has no descriptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_cdc_provider.spark.failures import SPARK_FAILURES
from airflow_cdc_provider.spark.session import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_EVERY_S = 0.2
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class NamedJobs:
    """Groups a pipeline's Spark jobs, with a description for each, so they can be cancelled."""

    def __init__(self, spark: SparkSession, group: str) -> None:
        self._spark = spark
        self._group = group

    @contextmanager
    def described(self, description: str) -> Iterator[None]:
        """Put the jobs that this thread starts in the block into the group, with a description."""
        context = context_of(self._spark)
        if context is None:
            self._spark.addTag(self._group)
            try:
                yield
            finally:
                self._spark.removeTag(self._group)
            return
        before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
        context.setJobGroup(self._group, description)
        try:
            yield
        finally:
            with suppress(*SPARK_FAILURES):  # a JVM that is gone has forgotten them
                for name, value in before.items():
                    context.setLocalProperty(name, value)  # type: ignore[arg-type]

    @contextmanager
    def cancelled_once(self, is_due: Callable[[], bool]) -> Iterator[None]:
        """Cancel the group's jobs once `is_due` is true, also those that start a moment later."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_EVERY_S):
                if is_due():
                    with suppress(*SPARK_FAILURES):
                        self._cancel()

        watcher = threading.Thread(target=watch, name="cdc-cancel", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _cancel(self) -> None:
        """Cancel the group's running jobs."""
        context = context_of(self._spark)
        if context is None:
            self._spark.interruptTag(self._group)
        else:
            context.cancelJobGroup(self._group)
