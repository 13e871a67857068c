"""The stream on a real Spark, between real servers."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.errors import (
    FencedError,
    LogPurgedError,
    SourceIdentityError,
)
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from airflow_cdc_provider.spark.main import run_job
from tests.servers.patience import wait_until
from tests.servers.replication import pair_of, part
from tests.servers.throwaway import MySqlServer
from tests.spark.conftest import MakePipeline
from tests.spark.pipelines import Pipeline
from tests.spark.shown_jobs import descriptions
from tests.spark.stream_jobs import (
    applied,
    arrived,
    change,
    ended,
    handed_off,
    lag_of,
    lease_of,
    run,
    started,
)
from tests.spark.workload import TABLES, fill, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM on a busy machine


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
    shown = descriptions(spark, f"cdc-stream-{pipeline.name}-{result.generation}")
    assert shown
    assert all(one.startswith(f"stream of {pipeline.name}: log up to ") for one in shown)
    assert shown[0].endswith("; the first micro-batch")


def test_a_bounded_run_with_nothing_new_ends(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    handed_off(pipeline, spark, 300)
    for _ in range(2):
        result = run(pipeline, spark, JobKind.STREAM)
        assert (result.outcome, result.changes) == (Outcome.FINISHED, 0)
        assert result.consistent
        assert not lease_of(pipeline)
    pipeline.assert_equal()


def test_a_continuous_stream_applies_within_a_second_and_stops_when_asked(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    handed_off(pipeline, spark, 300)
    spec, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(lambda: arrived(pipeline, 1))
        log_connection = log_connections(pipeline)
        delays = []
        for number in range(2, 12):
            began = time.monotonic()
            change(pipeline, number)
            wait_until(partial(arrived, pipeline, number), every_s=0.005)
            delays.append(time.monotonic() - began)
            time.sleep(0.3)
        print(f"seconds from commit to sink: {sorted(round(delay, 3) for delay in delays)}")
        assert len(log_connection) == 1
        assert log_connections(pipeline) == log_connection, "kept between micro-batches"
        assert sorted(delays)[5] < 5
        told = pipeline.store.stream(pipeline.name)
        assert told is not None
        wait_until(lambda: lag_of(pipeline) == 0)
        asked = time.monotonic()
        pipeline.store.want(pipeline.name, Wanted.STOP)
        assert process.wait(timeout=30) == ExitCode.FINE
        assert not lease_of(pipeline)
        print(f"seconds to stop: {time.monotonic() - asked:.1f}")
    result = pipeline.result_of(spec)
    assert (result.outcome, result.changes) == (Outcome.STOPPED, 11)
    assert result.transactions == 11
    pipeline.assert_equal()


def test_a_killed_driver_is_followed_by_one_that_misses_nothing(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    handed_off(pipeline, spark, 1000)
    with writing(pipeline, every_s=0.05):
        for _ in range(2):
            _, process = started(pipeline, max_batch_changes=5)
            with ended(pipeline, process):
                before = applied(pipeline)
                wait_until(lambda: applied(pipeline) > before + 50)  # noqa: B023
                process.kill()
                assert lease_of(pipeline)  # there was nobody to give it back
    result = run(pipeline, spark, JobKind.STREAM)
    assert result.consistent
    pipeline.assert_equal()


def test_of_two_streams_the_older_is_fenced(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline()
    handed_off(pipeline, spark, 300)
    spec, process = started(pipeline)
    with ended(pipeline, process), writing(pipeline, every_s=0.05):
        wait_until(lambda: applied(pipeline) > 0)
        run(pipeline, spark, JobKind.STREAM)
        assert process.wait(timeout=60) == ExitCode.FAILED
        assert pipeline.result_of(spec).error_code == FencedError.code
    run(pipeline, spark, JobKind.STREAM)
    pipeline.assert_equal()
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert state.phase is Phase.STOPPED


def test_the_stream_goes_on_when_the_source_was_killed_and_came_back(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    options = {"innodb_flush_log_at_trx_commit": 1, "sync_binlog": 1}
    with MySqlServer(options) as source:
        source.execute("CREATE DATABASE shop")
        pipeline = make_pipeline(source, "shop")
        handed_off(pipeline, spark, 300)
        _, process = started(pipeline)
        with ended(pipeline, process):
            change(pipeline, 1)
            wait_until(lambda: arrived(pipeline, 1))
            source.kill()
            time.sleep(2)
            source.start()
            change(pipeline, 2)
            wait_until(lambda: arrived(pipeline, 2))
            source.execute("FLUSH BINARY LOGS")
            change(pipeline, 3)
            wait_until(lambda: arrived(pipeline, 3))
            process.terminate()  # its driver is asked to end, as by Airflow
            assert process.wait(timeout=30) == ExitCode.FINE
            assert not lease_of(pipeline)
        pipeline.assert_equal()
        events = pipeline.store.events(pipeline.name)
        assert any("stream restarts" in event.text for event in events)


def test_a_purged_log_ends_the_stream_with_its_name(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    with MySqlServer() as source:
        source.execute("CREATE DATABASE shop")
        pipeline = make_pipeline(source, "shop")
        handed_off(pipeline, spark, 30)
        change(pipeline, 1)
        source.execute("FLUSH BINARY LOGS")
        file = source.execute("SHOW BINARY LOG STATUS")[0][0]
        source.execute("PURGE BINARY LOGS TO %s", (file,))
        spec = pipeline.spec(JobKind.STREAM, pipeline.take_over())
        result = run_job(spec, spark, servers=pipeline.servers())
    assert result.error_code == LogPurgedError.code, result.error
    assert result.exit_code is ExitCode.FAILED
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert state.phase is Phase.FAILED
    assert LogPurgedError.code in str(state.error)
    assert not state.lease_until_us


def test_a_failover_that_lost_what_one_split_has_read_is_refused_with_its_name(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    with pair_of("mysql") as (primary, replica):
        primary.execute("CREATE DATABASE shop")
        pipeline = make_pipeline(primary, "shop")
        fill(pipeline, 300)
        pipeline.plan(TABLES)
        run(pipeline, spark, JobKind.SNAPSHOT, split_rows=100)
        part(replica, primary)
        before = primary.execute("SELECT @@global.gtid_executed")[0][0]
        change(pipeline, 1)
        lost = primary.execute("SELECT GTID_SUBTRACT(@@global.gtid_executed, %s)", (before,))[0][0]
        read_again(pipeline, spark, "orders")
        pipeline.hand_off()
        pipeline.source_dsn = replica.dsn()
        spec = pipeline.spec(JobKind.STREAM, pipeline.take_over())
        result = run_job(spec, spark, servers=pipeline.servers())
    assert result.error_code == SourceIdentityError.code, result
    assert lost in result.error
    assert "shop.orders#" in result.error


def test_a_source_put_back_from_a_copy_is_not_read_on(
    spark: SparkSession, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    with MySqlServer() as source:
        source.execute("CREATE DATABASE shop")
        pipeline = make_pipeline(source, "shop")
        handed_off(pipeline, spark, 30)
        source.stop()
        shutil.copytree(source.datadir, tmp_path / "copy")
        source.start()
        change(pipeline, 1)
        assert run(pipeline, spark, JobKind.STREAM).consistent
        source.stop()
        shutil.rmtree(source.datadir)
        shutil.copytree(tmp_path / "copy", source.datadir)
        source.start()
        change(pipeline, 2)  # of the same size, under the same GTID
        spec = pipeline.spec(JobKind.STREAM, pipeline.take_over())
        result = run_job(spec, spark, servers=pipeline.servers())
    assert result.error_code == SourceIdentityError.code, result
    assert "not the one that was read" in result.error


def read_again(pipeline: Pipeline, spark: SparkSession, table: str) -> None:
    """Have the splits of one table read again, as after a sink that lost them."""
    pipeline.sink.execute(
        "DELETE FROM airflow_cdc.finished_split WHERE pipeline = %s AND table_name = %s",
        (str(pipeline.name), f"{pipeline.source_database}.{table}"),
    )
    phase = Phase.SNAPSHOT
    pipeline.store.move(pipeline.name, pipeline.take_over(), expected=phase, to=Phase.FAILED)
    run(pipeline, spark, JobKind.SNAPSHOT, split_rows=100)


def log_connections(pipeline: Pipeline) -> set[int]:
    rows = pipeline.source.execute(
        "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_COMMAND LIKE %s",
        ("Binlog Dump%",),
    )
    return {row[0] for row in rows}
