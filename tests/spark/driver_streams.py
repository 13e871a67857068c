"""Streams that the driver follows itself, with no Spark that could be started."""

from __future__ import annotations

import subprocess

from airflow_cdc_provider.core.jobspec import JobKind, JobSpec, StreamMode
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.in_process import run_in_process
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import ExitCode
from airflow_cdc_provider.systems import registry
from tests.servers.patience import wait_until
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import lease_of
from tests.spark.workload import TABLES, fill

NO_SPARK = "spark://127.0.0.1:1"


def handed_off(pipeline: Pipeline) -> Pipeline:
    """Bring a pipeline to where the stream starts; one table is never written to."""
    fill(pipeline, 300)
    pipeline.source.execute("CREATE TABLE spare LIKE parts", database=pipeline.source_database)
    pipeline.source.execute(
        "INSERT INTO spare SELECT * FROM parts", database=pipeline.source_database
    )
    pipeline.plan((*TABLES, "spare"))
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over(), split_rows=100)
    run_in_process(Job(spec, pipeline.servers(), pipeline.store, registry))
    pipeline.hand_off()
    return pipeline


def started(
    pipeline: Pipeline, *, master: str = NO_SPARK, **settings: object
) -> tuple[JobSpec, subprocess.Popen[bytes]]:
    settings = {"driver_log_bytes": 1 << 26, **settings}
    spec = pipeline.spec(
        JobKind.STREAM, pipeline.take_over(), stream_mode=StreamMode.CONTINUOUS, **settings
    )
    return spec, pipeline.start(spec, master=master)


def stopped(pipeline: Pipeline, process: subprocess.Popen[bytes]) -> bool:
    """Ask the stream to stop once nothing waits; tell whether it ended well.

    What a driver told that was killed says nothing of the one that follows it.
    """

    def has_all() -> bool:
        stream, owner = pipeline.store.stream(pipeline.name), pipeline.store.ensure(pipeline.name)
        return stream is not None and (stream.generation, stream.lag_us) == (owner.generation, 0)

    wait_until(has_all)
    pipeline.store.want(pipeline.name, Wanted.STOP)
    return process.wait(timeout=60) == ExitCode.FINE and not lease_of(pipeline)
