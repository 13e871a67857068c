"""Jobs that Airflow's Spark provider submits to a standalone cluster with two workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import psutil
import pytest

from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError
from airflow_cdc_provider.hooks.spark_submit import SubmittedJob
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.pipeline.steps.jobs import snapshot_spec, submit
from tests.airflow.shop import Shop, open_shop
from tests.servers.given import SqlServer
from tests.servers.throwaway import free_port
from tests.spark.standalone import cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
ON_CLUSTER = """
spark:
  conn_id: spark_cluster
  always: true
  assigner_port: {port}
  conf:
    spark.ui.enabled: false
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as url:
        yield url


@pytest.fixture(scope="module")
def shop(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with open_shop(mysql_server, mysql_sink, folder, "submitted") as made:
        yield made


@pytest.fixture
def pipeline(shop: Shop, master: str, monkeypatch: pytest.MonkeyPatch) -> str:
    connect_to(monkeypatch, master)
    path = shop.write_pipeline("continuous")
    text = path.read_text().partition("spark:")[0]
    path.write_text(text + ON_CLUSTER.format(port=free_port()))
    return str(path)


def connect_to(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    host, _, port = master.rpartition(":")
    form = {"conn_type": "spark", "host": host, "port": int(port), "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps(form))


@pytest.mark.sample(2, of="ways to run Spark")
def test_a_copy_and_a_stream_go_through_the_provider_and_end_when_they_are_told_to(
    pipeline: str, shop: Shop
) -> None:
    with CdcSteps(pipeline, owner="test") as steps:
        steps.plan()
        job = steps.start_snapshot()
        assert isinstance(job, SubmittedJob)
        assert job.wait().outcome == "finished"
        log = job.log.read_text()
        assert shop.reads.password not in log
        steps.hand_off()
        stream = steps.start_stream()
        try:
            shop.change(1)
            deadline = time.monotonic() + 600
            while not shop.is_equal():
                assert stream.is_running, stream.log.read_text()[-5000:]
                assert time.monotonic() < deadline, stream.log.read_text()[-5000:]
                time.sleep(0.5)
            group = psutil.Process(stream.pid).children(recursive=True)
            assert any("java" in process.name() for process in group)
        finally:
            stream.stop(patience_s=20.0)
        assert stream.end().outcome == "stopped"
        assert not [each for each in group if is_alive(each)]


def is_alive(process: psutil.Process) -> bool:
    """Tell a process from one that has ended and whose new parent has not looked yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_cluster_mode_on_a_standalone_cluster_is_refused_with_what_to_do(
    pipeline: str, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to(monkeypatch, master, **{"deploy-mode": "cluster"})
    with CdcSteps(pipeline, owner="test") as steps:
        options = steps.spark_options()
        with pytest.raises(RefusedError, match="deploy mode client"):
            submit(steps.run, snapshot_spec(steps.run.model, 1), options)


def test_a_spark_connection_that_is_not_there_is_refused_by_name_and_line(
    pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_CLUSTER")
    with CdcSteps(pipeline, owner="test") as steps, pytest.raises(PipelineFileError) as caught:
        steps.spark_options()
    assert "there is no connection 'spark_cluster'" in str(caught.value)
    assert "spark.conn_id" in str(caught.value)
