"""What is submitted to clusters that cannot be run here: the exact words, and what is refused."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.sdk import BaseHook

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import (
    ENCODED,
    SINK_DSN_ENV,
    SOURCE_DSN_ENV,
    STATE_DSN_ENV,
    JobKind,
    JobSpec,
)
from airflow_cdc_provider.hooks.dsn import fields_of
from airflow_cdc_provider.hooks.spark_order import Deployment, SubmitOrder, require_possible
from airflow_cdc_provider.hooks.spark_submit import DriverFiles, SubmitByProvider, launcher_of
from airflow_cdc_provider.hooks.spark_submitter import OrderedHook
from airflow_cdc_provider.pipeline.steps import job_files
from airflow_cdc_provider.pipeline.steps.job_files import make_job_files
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions

SPEC = JobSpec(PipelineName("shop"), 3, JobKind.STREAM)
DSNS = {
    SOURCE_DSN_ENV: "mysql://cdc:pl4nted@db1/",
    SINK_DSN_ENV: "mysql://cdc:pl4nted@db2/",
    STATE_DSN_ENV: "postgresql://cdc:pl4nted@pg/cdc",
}
SECRETS = {
    f"spark.kubernetes.driver.secretKeyRef.{name}": f"cdc-shop:{key}"
    for name, key in zip(DSNS, ("source", "sink", "state"), strict=True)
}
UPLOADS = {"spark.kubernetes.file.upload.path": "s3a://bucket/uploads"}
MAIN = "airflow_cdc_provider/spark/main.py"


def order_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], **connection: Any
) -> tuple[SubmitOrder, DriverFiles]:
    """Give what would be ordered of the process that submits."""
    form = {"conn_type": "spark", **connection}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(form))
    stored = BaseHook.get_connection("cluster")
    launcher = launcher_of(stored, fields_of(stored, stored.extra_dejson))
    assert isinstance(launcher, SubmitByProvider)
    master = fields_of(stored, {}).spark_master()
    files, output = make_job_files(tmp_path / "jobs", SPEC)
    output.close()
    deployment = Deployment.of(master, launcher.extra, conf)
    carried = DriverFiles(files.log)
    options = SparkOptions(master, conf)
    order = launcher.order(SPEC, options, deployment, files, carried.what(deployment, DSNS))
    assert SubmitOrder.from_json(order.to_json()) == order
    assert "pl4nted" not in order.to_json()
    return order, carried


def command_of(order: SubmitOrder) -> list[str]:
    words = OrderedHook(order).command()
    assert "pl4nted" not in " ".join(words)
    return words


def test_yarn_in_cluster_mode_gets_the_connections_settings_and_the_dsns_as_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = base64.b64encode(b"a keytab").decode()
    extra = {
        "deploy-mode": "cluster",
        "queue": "etl",
        "principal": "cdc@EXAMPLE",
        "keytab": keytab,
        "spark-binary": "spark3-submit",
        "yarn_resourcemanager_webapp_address": "http://rm:8088",
    }
    conf = {"spark.executor.memory": "2g"}
    order, carried = order_of(tmp_path, monkeypatch, conf, host="yarn", extra=extra)
    words = command_of(order)
    stem = carried.log.with_suffix("")
    encoded = ENCODED + base64.b64encode(SPEC.to_json().encode()).decode()
    assert words == [
        *("spark3-submit", "--master", "yarn", "--conf", "spark.log.level=WARN"),
        *("--conf", "spark.executor.memory=2g"),
        *("--conf", "spark.yarn.submit.waitAppCompletion=false"),
        *("--files", f"{stem}.servers"),
        *("--py-files", f"{stem}.package/airflow_cdc_provider.zip"),
        *("--keytab", words[words.index("--keytab") + 1], "--principal", "cdc@EXAMPLE"),
        *("--name", "cdc shop", "--queue", "etl", "--deploy-mode", "cluster"),
        *(str(Path(__file__).parents[2] / MAIN), "--job", encoded),
        *("--servers", f"{stem.name}.servers"),
    ]
    servers = Path(order.files)
    assert stat.S_IMODE(servers.stat().st_mode) == 0o600
    assert json.loads(servers.read_text()) == DSNS
    carried.remove()
    assert [path.suffix for path in stem.parent.iterdir() if path.suffix != ".json"] == [".log"]


def test_the_file_of_dsns_goes_when_yarn_has_taken_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"deploy-mode": "cluster"}
    order, _ = order_of(tmp_path, monkeypatch, {}, host="yarn", extra=extra)
    servers, there = Path(order.files), []
    staging = "hdfs://nn/user/cdc/.sparkStaging/application_1_2"
    said = [
        f"INFO Client: Uploading resource file:{servers} -> {staging}/{servers.name}\n",
        "INFO YarnClientImpl: Submitted application application_1_2\n",
    ]

    def lines() -> Iterator[str]:
        for line in said:
            there.append(servers.exists())
            yield line
        there.append(servers.exists())

    OrderedHook(order)._process_spark_submit_log(lines())
    assert there == [True, True, False]


def test_kubernetes_in_cluster_mode_is_told_the_names_of_secrets_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "etl"}
    conf = {**SECRETS, **UPLOADS}
    order, carried = order_of(
        tmp_path, monkeypatch, conf, host="k8s://https://k8s", port=6443, extra=extra
    )
    stem = carried.log.with_suffix("")
    encoded = ENCODED + base64.b64encode(SPEC.to_json().encode()).decode()
    assert command_of(order) == [
        *("spark-submit", "--master", "k8s://https://k8s:6443"),
        *("--conf", "spark.log.level=WARN"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *("--conf", "spark.kubernetes.namespace=etl"),
        *("--py-files", f"{stem}.package/airflow_cdc_provider.zip"),
        *("--name", "cdc shop", "--deploy-mode", "cluster"),
        *("--conf", "spark.kubernetes.submission.waitAppCompletion=false"),
        *(str(Path(__file__).parents[2] / MAIN), "--job", encoded),
    ]
    assert order.files == ""


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"host": "spark://m", "port": 7078}, "spark://m:7078"),
        ({"host": "m"}, "spark://m:7077"),
        ({"host": "yarn"}, "yarn"),
    ],
)
def test_in_client_mode_the_driver_reads_its_job_from_the_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], master: str
) -> None:
    order, carried = order_of(tmp_path, monkeypatch, {}, **connection)
    words = command_of(order)
    job = f"@{carried.log.with_suffix('.json')}"
    assert words[:3] == ["spark-submit", "--master", master]
    assert words[words.index("--job") + 1] == job
    assert (order.files, order.py_files, words[words.index("--deploy-mode") + 1]) == (
        "",
        "",
        "client",
    )


@pytest.mark.parametrize(
    ("master", "mode", "conf", "state", "words"),
    [
        ("spark://m:7077", "cluster", {}, "postgresql://pg/cdc", "make the connection's deploy"),
        ("yarn", "cluster", {}, "sqlite:////state.db", "keep the state in MySQL or PostgreSQL"),
        ("yarn", "beside", {}, "postgresql://pg/cdc", "client or cluster"),
        ("k8s://k", "client", {}, "postgresql://pg/cdc", "cncf-kubernetes"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    master: str, mode: str, conf: dict[str, str], state: str, words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        require_possible(
            "here", Deployment.of(master, {"deploy-mode": mode}, conf), SPEC, conf, state
        )


@pytest.mark.parametrize("without", [*SECRETS, *UPLOADS])
def test_kubernetes_without_a_secret_or_a_place_for_uploads_is_refused_by_name(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cdc_provider.hooks.spark_order._is_there", lambda _: True)
    conf = {name: value for name, value in {**SECRETS, **UPLOADS}.items() if name != without}
    wanted = Deployment.of("k8s://k", {"deploy-mode": "cluster"}, conf)
    with pytest.raises(RefusedError, match=without):
        require_possible("here", wanted, SPEC, conf, "postgresql://pg/cdc")


def test_a_deploy_mode_of_the_file_counts_where_the_connection_has_none() -> None:
    conf = {"spark.submit.deployMode": "cluster"}
    assert Deployment.of("yarn", {}, conf).is_cluster
    assert not Deployment.of("yarn", {"deploy-mode": "client"}, conf).is_cluster


@pytest.mark.parametrize("field", ["queue", "namespace", "principal", "keytab", "deploy-mode"])
def test_without_the_provider_a_connection_that_asks_for_more_than_a_master_is_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cdc_provider.hooks.spark_submit.has_provider", lambda: False)
    form = {"conn_type": "spark", "host": "spark://m", "port": 7077}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(form))
    plain = BaseHook.get_connection("cluster")
    assert launcher_of(plain, fields_of(plain, plain.extra_dejson)) is None
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(form | {"extra": {field: "cluster"}}))
    asking = BaseHook.get_connection("cluster")
    with pytest.raises(RefusedError, match=field):
        launcher_of(asking, fields_of(asking, asking.extra_dejson))


def test_a_file_of_dsns_whose_starter_was_killed_goes_with_the_next_job(tmp_path: Path) -> None:
    files, output = make_job_files(tmp_path / "jobs", SPEC)
    left = DriverFiles(files.log).servers(DSNS)
    job_files._remove_old(left.parent)
    assert left.exists()  # its submitter may not have read it yet
    output.close()
    job_files._remove_old(left.parent)
    assert not left.exists()
