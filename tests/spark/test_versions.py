"""The oldest and the newest PySpark copy and follow, and lose nothing of what is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib import metadata

import psutil
import pytest

from airflow_cdc_provider.core.jobspec import JobKind, StreamMode
from airflow_cdc_provider.engine.in_process import run_in_process
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from airflow_cdc_provider.systems import registry
from tests.servers.patience import wait_until
from tests.spark.conftest import MakePipeline
from tests.spark.stream_jobs import applied, ended
from tests.spark.versions import oldest_pyspark, pyspark
from tests.spark.workload import TABLES, fill, writing

__all__ = ["oldest_pyspark", "pyspark"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

CLUSTER = "local-cluster[2,1,1024]"
EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "pyspark.daemon"


@pytest.mark.sample(2, of="ways to run Spark")
def test_what_is_killed_in_a_cluster_loses_and_doubles_nothing(
    make_pipeline: MakePipeline, pyspark: dict[str, str]
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 1000)
    pipeline.plan(TABLES)
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over(), split_rows=300)
    if pyspark:  # the newest is what all other tests copy with
        process = pipeline.start(spec, more=pyspark)
        with ended(pipeline, process), writing(pipeline):
            assert process.wait(timeout=280) == ExitCode.FINE
        assert pipeline.result_of(spec).outcome is Outcome.FINISHED
    else:
        job = Job(spec, pipeline.servers(), pipeline.store, registry)
        assert run_in_process(job).outcome is Outcome.FINISHED
    pipeline.hand_off()
    spec = pipeline.spec(
        JobKind.STREAM,
        pipeline.take_over(),
        stream_mode=StreamMode.CONTINUOUS,
        max_batch_changes=5,
    )
    process = pipeline.start(spec, master=CLUSTER, more=pyspark)
    with ended(pipeline, process), writing(pipeline, every_s=0.05):
        for kill in (kill_tasks, kill_executor, psutil.Process.kill):
            before = applied(pipeline)
            wait_until(lambda: applied(pipeline) > before + 30)  # noqa: B023
            kill(psutil.Process(process.pid))
    log = pipeline.log_of(spec).read_text()
    assert f"pyspark={'3.5.0' if pyspark else metadata.version('pyspark')} " in log
    spec = pipeline.spec(JobKind.STREAM, pipeline.take_over())
    result = run_in_process(Job(spec, pipeline.servers(), pipeline.store, registry))
    assert result.consistent
    assert result.outcome is Outcome.FINISHED
    pipeline.assert_equal()


def kill_tasks(driver: psutil.Process) -> None:
    """Kill the Python workers of all executors, busy or idle."""
    daemons = running(driver, WORKER)
    workers = [each for each in daemons if each.ppid() in {one.pid for one in daemons}]
    assert workers
    for worker in workers:
        worker.kill()


def kill_executor(driver: psutil.Process) -> None:
    """Kill the executor that has run most."""
    executors = running(driver, EXECUTOR)
    assert len(executors) == 2
    max(executors, key=lambda each: len(each.children(recursive=True))).kill()


def running(parent: psutil.Process, words: str) -> list[psutil.Process]:
    """Return the processes under another whose command line has these words."""
    found = []
    for child in parent.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if words in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_the_oldest_is_told_that_it_cannot_read_a_change_log(
    oldest_pyspark: dict[str, str],
) -> None:
    code = "from airflow_cdc_provider.spark.reading import register; register(None)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **oldest_pyspark},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "CDC-CFG-008 PySpark 3.5.0 has no data sources in Python" in done.stderr
