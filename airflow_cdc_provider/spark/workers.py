"""Which Python workers of Spark's a function runs in.

Spark keeps idle Python workers by the environment that they were started with, and hands them out
in turn. With one environment for all, the log's reader, its writer and the readers of a snapshot
would change places, and none could keep its connection open. So each has a name in its environment.
Over Spark Connect the server alone decides that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_cdc_provider.spark.session import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VARIABLE = "AIRFLOW_CDC_WORKER"
_naming = threading.Lock()


@contextmanager
def workers_named(spark: SparkSession, name: str) -> Iterator[None]:
    """Have functions of frames built in the block run in Python workers of this name."""
    context = context_of(spark)
    if context is None:
        yield
        return
    with _naming:  # the context has one environment, and requests are read beside the stream
        context.environment[_VARIABLE] = name
        try:
            yield
        finally:
            del context.environment[_VARIABLE]
