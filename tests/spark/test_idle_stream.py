"""A stream that has nothing to do commits nothing, on one server for source and sink too."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.spark.conftest import MakePipeline
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import arrived, change, ended, handed_off, lag_of, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM on a busy machine

_WATCHED_S = 20.0


def commits(pipeline: Pipeline) -> int:
    """How often the stream has committed."""
    (row,) = pipeline.sink.execute(
        "SELECT batch FROM airflow_cdc.stream WHERE pipeline = %s", (str(pipeline.name),)
    )
    return int(row[0])


def python_workers(job: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The Python processes of a job in which Spark runs tasks."""
    daemons = {
        process.pid: process
        for process in psutil.Process(job.pid).children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE and process.cmdline()[-1:] == ["pyspark.worker"]
    }
    return [each for each in daemons.values() if each.ppid() in daemons]


@pytest.mark.sample(1, of="long streams")
def test_a_stream_into_its_own_source_goes_idle(
    spark: SparkSession,
    make_pipeline: MakePipeline,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    pipeline = make_pipeline(mysql_sink, fresh_database(mysql_sink))
    handed_off(pipeline, spark, 300)
    _, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(lambda: arrived(pipeline, 1))
        wait_until(lambda: lag_of(pipeline) == 0)
        before = commits(pipeline)
        # what it wrote to the copy is no ledger's: the position follows it once
        wait_until(lambda: commits(pipeline) > before)
        time.sleep(_WATCHED_S)
        print(f"commits in {_WATCHED_S:g} s: {commits(pipeline) - before - 1}")
        assert commits(pipeline) == before + 1
        assert lag_of(pipeline) == 0
        workers = python_workers(process)
        assert workers, "they were idle for seconds, and Spark keeps them for a minute"
        for worker in workers:
            worker.kill()
        change(pipeline, 2)
        wait_until(lambda: arrived(pipeline, 2))
        pipeline.assert_equal()
