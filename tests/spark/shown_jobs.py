"""What Spark's UI shows of jobs, asked of the store that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def descriptions(spark: SparkSession, group: str) -> list[str]:
    """Return the descriptions of a group's jobs, oldest first."""
    context = spark.sparkContext
    jobs = sorted(context.statusTracker().getJobIdsForGroup(group))
    context._jsc.sc().listenerBus().waitUntilEmpty()
    store = context._jsc.sc().statusStore()
    return [str(store.job(job).description().get()) for job in jobs]
