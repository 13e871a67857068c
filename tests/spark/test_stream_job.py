"""The stream on a real Spark, between real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.spark.job_result import JobResult, Outcome
from airflow_cdc_provider.spark.main import run_job
from tests.spark.conftest import MakePipeline
from tests.spark.pipelines import Pipeline
from tests.spark.workload import TABLES, fill, writing

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


def test_a_database_that_is_written_to_is_copied_and_caught_up(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 4000)
    pipeline.plan(TABLES)
    with writing(pipeline):
        snapshot = run(pipeline, spark, JobKind.SNAPSHOT, split_rows=1000)
        pipeline.hand_off()
        run(pipeline, spark, JobKind.STREAM)
    print(snapshot)
    result = run(pipeline, spark, JobKind.STREAM)
    print(result)
    pipeline.assert_equal()
    assert result.outcome is Outcome.FINISHED
    assert result.consistent
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert state.phase is Phase.STOPPED
    assert {t.phase for t in pipeline.store.tables(pipeline.name)} == {TablePhase.CONSISTENT}


def test_a_bounded_run_with_nothing_new_ends(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    handed_off(pipeline, spark, 300)
    for _ in range(2):
        result = run(pipeline, spark, JobKind.STREAM)
        assert (result.outcome, result.changes) == (Outcome.FINISHED, 0)
        assert result.consistent
    pipeline.assert_equal()
