"""Snapshot and stream over Spark Connect, with a server of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from airflow_cdc_provider.core.jobspec import JobKind, StreamMode
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from tests.servers.patience import wait_until
from tests.servers.throwaway import free_port
from tests.spark.conftest import MakePipeline
from tests.spark.standalone import SPARK_HOME
from tests.spark.stream_jobs import applied, arrived, change, ended, lag_of
from tests.spark.workload import TABLES, fill, writing

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start Spark's own server; gives its address."""
    port, log = free_port(), folder / "connect.log"
    command = [SPARK_HOME / "sbin/start-connect-server.sh", "--master", "local[2]"]
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOG_DIR": str(folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while "server started at" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.sample(2, of="ways to run Spark")
def test_a_connect_server_copies_and_follows_and_a_killed_client_loses_nothing(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 1000)
    pipeline.plan(TABLES)
    with connect_server(tmp_path) as master:
        spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over(), split_rows=300)
        process = pipeline.start(spec, master=master)
        with ended(pipeline, process), writing(pipeline):
            assert process.wait(timeout=200) == ExitCode.FINE
        pipeline.hand_off()
        stream = partial(pipeline.spec, JobKind.STREAM, stream_mode=StreamMode.CONTINUOUS)
        process = pipeline.start(stream(pipeline.take_over(), max_batch_changes=5), master=master)
        with ended(pipeline, process), writing(pipeline, every_s=0.05):
            before = applied(pipeline)
            wait_until(lambda: applied(pipeline) > before + 30)
            process.kill()
        spec = stream(pipeline.take_over())
        process = pipeline.start(spec, master=master)
        with ended(pipeline, process):
            change(pipeline, 1)
            wait_until(lambda: arrived(pipeline, 1))
            wait_until(lambda: lag_of(pipeline) == 0)
            pipeline.store.want(pipeline.name, Wanted.STOP)
            assert process.wait(timeout=60) == ExitCode.FINE
    assert pipeline.result_of(spec).outcome is Outcome.STOPPED
    pipeline.assert_equal()
