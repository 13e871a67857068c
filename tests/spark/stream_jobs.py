"""Streams that run in a thread or a process: begun, waited for and asked how far they are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.jobspec import JobKind, JobSpec, StreamMode
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.spark.main import run_job
from tests.spark.pipelines import Pipeline
from tests.spark.workload import TABLES, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(pipeline: Pipeline, spark: SparkSession, kind: JobKind, **settings: object) -> JobResult:
    spec = pipeline.spec(kind, pipeline.take_over(), **settings)
    result = run_job(spec, spark, servers=pipeline.servers())
    assert result.outcome is not Outcome.FAILED, result.error
    return result


def handed_off(pipeline: Pipeline, spark: SparkSession, rows: int) -> None:
    """Bring a pipeline to where the stream starts."""
    fill(pipeline, rows)
    pipeline.plan(TABLES)
    run(pipeline, spark, JobKind.SNAPSHOT, split_rows=rows // 3)
    pipeline.hand_off()


def started(pipeline: Pipeline, **settings: object) -> tuple[JobSpec, subprocess.Popen[bytes]]:
    """Start a continuous stream as a process of its own."""
    settings = {"stream_mode": StreamMode.CONTINUOUS, **settings}
    spec = pipeline.spec(JobKind.STREAM, pipeline.take_over(), **settings)
    return spec, pipeline.start(spec)


@contextmanager
def ended(pipeline: Pipeline, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process behind; if the test fails, show what the job said."""
    try:
        yield
    except BaseException:
        for log in sorted(pipeline.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-8000:]}")
        raise
    finally:
        process.kill()
        process.wait()


def lease_of(pipeline: Pipeline) -> int:
    """Return when the pipeline's lease ends, 0 if it was given back."""
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    return state.lease_until_us


def change(pipeline: Pipeline, number: int) -> None:
    pipeline.source.execute(
        "INSERT INTO orders VALUES (%s, 'new', 1)",
        (1_000_000 + number,),
        database=pipeline.source_database,
    )


def arrived(pipeline: Pipeline, number: int) -> bool:
    return bool(
        pipeline.sink.execute(
            "SELECT 1 FROM orders WHERE id = %s",
            (1_000_000 + number,),
            database=pipeline.sink_database,
        )
    )


def applied(pipeline: Pipeline) -> int:
    stream = pipeline.store.stream(pipeline.name)
    return 0 if stream is None else stream.changes


def lag_of(pipeline: Pipeline) -> int | None:
    stream = pipeline.store.stream(pipeline.name)
    return None if stream is None else stream.lag_us
