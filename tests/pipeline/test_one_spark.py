"""The jobs of one run share one process and one JVM, and fail and stop as they would alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import RetryableError, SnapshotRequiredError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.converging import Watcher, run_until_caught_up
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions, snapshot_spec, stream_spec
from airflow_cdc_provider.pipeline.steps.one_spark import OneSpark
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up, stream
from tests.pipeline.conftest import Shop
from tests.pipeline.one_spark import JVM, processes, seen
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.patience import wait_until

DRIVER = b"python", b"airflow_cdc_provider.spark.driver"


def options(shop: Shop) -> SparkOptions:
    # without our own options the JVM writes no class archive, and ends at once
    conf = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
    folder = shop.path.parent / "logs"
    return SparkOptions(master="local[2]", conf=conf, log_folder=folder, always=True)


def logs(shop: Shop) -> list[Path]:
    return sorted((shop.path.parent / "logs").rglob("*"))


def is_over(shop: Shop, run: Run, *, within_s: float = 60.0) -> bool:
    """Tell whether nothing the run started is left, and nobody holds the lease.

    A JVM that ends by itself has something to tidy up first.
    """
    deadline = time.monotonic() + within_s
    while processes(shop, DRIVER) | processes(shop, JVM) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = processes(shop, DRIVER) | processes(shop, JVM)
    return not left and run.store.ensure(run.name).lease_until_us == 0


@pytest.mark.spark
def test_a_run_that_reads_and_streams_starts_one_jvm(shop: Shop) -> None:
    run = shop.run()

    def on_step(name: str) -> None:
        if name == "hand-off":
            shop.at_source("INSERT INTO orders VALUES (4, 'four', 40)")

    with seen(shop, JVM) as jvms:
        done = run_until_caught_up(run, options(shop), Watcher(on_step))
    assert len(jvms) == 1
    assert done.snapshot is not None
    assert (done.snapshot.result["rows"], done.stream.result["changes"]) == (3, 1)
    assert done.snapshot.log == done.stream.log
    assert [path for path in logs(shop) if path.is_file()] == [done.stream.log]
    assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(4,)]
    assert is_over(shop, run)


@pytest.mark.spark
def test_jobs_of_one_process_fail_go_on_and_stop_as_jobs_of_their_own(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    with OneSpark() as spark:
        early = spark.start(run, stream_spec(run.model, made.generation), options(shop))
        with pytest.raises(SnapshotRequiredError, match="not handed off") as refused:
            early.wait()
        assert str(spark.log) in refused.value.where
        state = run.store.ensure(run.name)
        assert (state.phase, state.lease_until_us) == (Phase.FAILED, 0)

        made = plan(run)
        read = spark.start(run, snapshot_spec(run.model, made.generation), options(shop)).wait()
        assert (read.outcome, read.result["rows"]) == ("finished", 3)
        hand_off(run)
        shop.at_source("INSERT INTO orders VALUES (4, 'four', 40)")
        ended = catch_up(run, options(shop), start=spark.start)
        assert (ended.outcome, ended.result["changes"]) == ("finished", 1)

        def interrupt_once_it_streams() -> None:
            if run.store.ensure(run.name).phase is Phase.STREAMING:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stream(run, options(shop), on_tick=interrupt_once_it_streams, start=spark.start)
        assert run.store.ensure(run.name).phase is Phase.STOPPED
        # killed by now; the kernel takes a moment to give a JVM's memory back
        assert is_over(shop, run, within_s=10)


@pytest.mark.spark
def test_a_process_that_is_killed_leaves_no_result_and_its_job_is_worth_a_retry(
    shop: Shop,
) -> None:
    run = shop.run()
    made = plan(run)
    with OneSpark() as spark, seen(shop, DRIVER) as drivers:

        def kill() -> None:
            for driver in drivers:
                os.kill(driver, signal.SIGKILL)

        job = spark.start(run, snapshot_spec(run.model, made.generation), options(shop))
        with pytest.raises(RetryableError, match="ended with status -9 and without a result"):
            job.wait(on_tick=kill, every_s=0.1)


def test_a_run_without_a_job_starts_no_process(shop: Shop) -> None:
    with seen(shop, DRIVER) as drivers, OneSpark() as spark:
        spark.no_more_jobs()
    assert drivers == set()
    assert logs(shop) == []


def test_a_continuous_stream_ends_with_the_run_that_was_killed(shop: Shop) -> None:
    run_until_caught_up(shop.run(), SparkOptions(NO_SPARK))
    command = [sys.executable, "-m", "airflow_cdc_provider", "run", str(shop.path)]
    with subprocess.Popen(
        command,
        env={**os.environ, **shop.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            shop.at_source("INSERT INTO orders VALUES (4, 'four', 40)")
            wait_until(lambda: len(shop.sink_rows("SELECT 1 FROM orders")) == 4)
            assert processes(shop, DRIVER)
        finally:
            process.kill()
    wait_until(lambda: not processes(shop, DRIVER))
    run = shop.run()
    state = run.store.ensure(run.name)
    assert (state.phase, state.lease_until_us) == (Phase.STOPPED, 0)
