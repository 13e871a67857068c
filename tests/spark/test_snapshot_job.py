"""Snapshots on a real Spark, between real servers."""

from __future__ import annotations

import dataclasses
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.errors import FencedError, ValueRefusedError
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from airflow_cdc_provider.spark import snapshot_job
from airflow_cdc_provider.spark.main import run_job
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.patience import wait_until
from tests.spark.conftest import MakePipeline
from tests.spark.killing import (
    BETWEEN_COMMIT_AND_TELLING,
    BETWEEN_ROWS_AND_REPORT,
    KillingSink,
)
from tests.spark.shown_jobs import descriptions
from tests.spark.snapshot_jobs import finished_splits
from tests.spark.workload import TABLES, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM on a busy machine


def test_a_snapshot_of_a_still_database_is_the_database(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 2000})
    fill(pipeline, 10_000)
    pipeline.plan(TABLES)
    started = time.monotonic()
    result = run_job(
        pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over()), spark, servers=pipeline.servers()
    )
    print(f"{time.monotonic() - started:.2f} s: {result}")
    assert result.outcome is Outcome.FINISHED, result.error
    assert (result.tables, result.rows) == (3, 30_000)
    assert result.splits >= 15
    pipeline.assert_equal()
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert state.phase is Phase.SNAPSHOT
    assert {table.phase for table in pipeline.store.tables(pipeline.name)} == {TablePhase.READ}


def test_a_reader_that_has_worked_for_long_is_followed_by_another_and_sparks_ui_tells_how_far_it_is(
    spark: SparkSession, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_job, "READER_S", 0.0)  # a split each
    pipeline = make_pipeline(overrides={"split_rows": 1000, "max_connections": 2})
    fill(pipeline, 3000)
    pipeline.plan(TABLES)
    generation = pipeline.take_over()
    spec = pipeline.spec(JobKind.SNAPSHOT, generation)
    result = run_job(spec, spark, servers=pipeline.servers())
    assert (result.outcome, result.rows) == (Outcome.FINISHED, 9000)
    pipeline.assert_equal()
    shown = descriptions(spark, f"cdc-snapshot-{pipeline.name}-{generation}")
    assert len(shown) == result.splits + 1
    told = f"snapshot of {pipeline.name}: 1 readers; {result.splits} splits with 9,000 rows before"
    assert shown[-1].startswith(told), shown
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_second_snapshot_job_reads_nothing_again(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 2000})
    fill(pipeline, 3000)
    pipeline.plan(TABLES)
    for expected in (9000, 0):
        spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
        result = run_job(spec, spark, servers=pipeline.servers())
        assert (result.outcome, result.rows) == (Outcome.FINISHED, expected), result.error


@pytest.mark.parametrize("moment", [BETWEEN_ROWS_AND_REPORT, BETWEEN_COMMIT_AND_TELLING])
def test_a_reader_killed_while_it_publishes_leaves_no_stale_row(
    spark: SparkSession, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    # One reader: a second one may have published a later split before the rows are deleted.
    pipeline = make_pipeline(overrides={"split_rows": 1000, "max_connections": 2})
    fill(pipeline, 3000)
    pipeline.plan(["orders"])
    died = pipeline.folder / "died"
    deleted = f"DELETE FROM `{pipeline.source_database}`.orders WHERE id >= 9"

    def killing_sink(sink_type: str, *facts: Any, **options: Any) -> KillingSink:
        sink = open_sink(sink_type, *facts, **options)
        assert isinstance(sink, MySqlSink)
        fields = {f.name: getattr(sink, f.name) for f in dataclasses.fields(sink)}
        source = pipeline.servers().source
        return KillingSink(**fields, source=source, before_death=deleted, died=died, moment=moment)

    monkeypatch.setattr("airflow_cdc_provider.systems.registry.open_sink", killing_sink)
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    result = run_job(spec, spark, servers=pipeline.servers())
    assert died.exists()
    assert result.outcome is Outcome.FINISHED, result.error
    assert len(pipeline.rows(pipeline.sink, pipeline.sink_database, "orders")) == 2
    pipeline.assert_equal()
    assert max(state.attempt for state in pipeline.store.splits(pipeline.name)) == 2


def test_a_killed_driver_is_followed_by_one_that_goes_on(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 50})
    fill(pipeline, 5_000)
    pipeline.plan(TABLES)
    first = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    driver = pipeline.start(first)
    try:
        wait_until(lambda: finished_splits(pipeline) >= 5)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    second = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    result = run_job(second, spark, servers=pipeline.servers())
    assert result.outcome is Outcome.FINISHED, result.error
    assert 0 < result.rows < 15_000
    pipeline.assert_equal()


def test_of_two_drivers_the_older_is_fenced_and_writes_nothing_more(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 50})
    fill(pipeline, 5_000)
    pipeline.plan(TABLES)
    old = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    driver = pipeline.start(old)
    try:
        wait_until(lambda: finished_splits(pipeline) >= 5)
        new = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
        result = run_job(new, spark, servers=pipeline.servers())
        assert driver.wait(timeout=60) == ExitCode.FAILED
    finally:
        driver.kill()
        driver.wait()
    assert pipeline.result_of(old).error_code == FencedError.code
    assert result.outcome is Outcome.FINISHED, result.error
    pipeline.assert_equal()
    owners = pipeline.sink.execute(
        "SELECT generation, COUNT(*) FROM airflow_cdc.finished_split WHERE pipeline = %s "
        "GROUP BY generation",
        (str(pipeline.name),),
    )
    assert {row[0] for row in owners} == {old.generation, new.generation}


def test_a_split_that_is_too_big_is_cut_until_it_fits(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 4000, "max_split_bytes": 60_000})
    fill(pipeline, 4000)
    pipeline.plan(["orders", "names"])
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    result = run_job(spec, spark, servers=pipeline.servers())
    assert result.outcome is Outcome.FINISHED, result.error
    assert result.splits >= 4
    pipeline.assert_equal()


def test_a_snapshot_that_is_asked_to_stop_goes_on_later(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 1000})
    fill(pipeline, 3000)
    pipeline.plan(["orders"])
    pipeline.store.want(pipeline.name, Wanted.STOP)
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over(), split_rows=10)
    result = run_job(spec, spark, servers=pipeline.servers())
    assert result.outcome is Outcome.STOPPED
    assert result.exit_code is ExitCode.FINE
    pipeline.store.want(pipeline.name, Wanted.RUN)
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    assert run_job(spec, spark, servers=pipeline.servers()).outcome is Outcome.FINISHED
    pipeline.assert_equal()


def test_a_table_that_cannot_be_read_ends_the_job_with_the_code_of_what_is_wrong(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 30)
    unreadable = "INSERT INTO names VALUES ('Zero', '0000-00-00')"
    with pipeline.source.connect(pipeline.source_database) as connection:
        connection.cursor().execute("SET sql_mode = ''")
        connection.cursor().execute(unreadable)
    pipeline.plan(["orders", "names"])
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    result = run_job(spec, spark, servers=pipeline.servers())
    assert (result.outcome, result.error_code) == (Outcome.FAILED, ValueRefusedError.code)
    assert "column born, key name='Zero'" in result.error
    assert len(pipeline.rows(pipeline.sink, pipeline.sink_database, "orders")) == 30
