"""The compose file, as far as it can be checked without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cdc_provider.pipeline.connection_fields import ConnectionFields
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from tests.end_to_end import data
from tests.end_to_end.in_containers import SINK as SINK_DSN
from tests.end_to_end.in_containers import SOURCE as SOURCE_DSN
from tests.servers.accounts import MARIADB_SOURCE, MYSQL_SOURCE, SINK, rights
from tests.servers.given import SqlServer

DOCKER = Path(__file__).resolve().parents[2] / "docker"
TEXT = (DOCKER / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
_GRANT = re.compile(r"^GRANT (.+) ON (\S+) TO 'cdc'@'%';$", re.MULTILINE)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_the_demos_servers_spark_and_airflow_on_postgres_are_there() -> None:
    images = {name: service["image"].split(":")[0] for name, service in SERVICES.items()}
    assert images["mysql-source"] == images["mysql-sink"] == "mysql"
    assert images["mariadb-source"] == "mariadb"
    assert images["postgres"] == "postgres"
    commands = {name: " ".join(service.get("command", [])) for name, service in SERVICES.items()}
    assert "master.Master" in commands["spark-master"]
    assert "worker.Worker" in commands["spark-worker"]
    for part in ("api-server", "scheduler", "dag-processor", "triggerer"):
        assert any(command == f"airflow {part}" or part in command for command in commands.values())


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_only_for_what_tells_that_it_is_ready(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        assert needed in SERVICES, f"{name} waits for {needed}, which is not there"
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[needed], f"{needed} never tells that it is healthy"
        else:
            assert SERVICES[needed].get("restart") == "no", f"{needed} never ends"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_listens_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:"), port


def test_no_two_services_take_one_port() -> None:
    ports = [p.split(":")[1] for s in SERVICES.values() for p in s.get("ports", [])]
    assert len(ports) == len(set(ports))


def test_every_volume_secret_and_mounted_file_exists() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DOCKER / source).is_file(), source
            else:
                assert source in COMPOSE["volumes"], source
        for secret in service.get("secrets", []):
            assert (DOCKER / COMPOSE["secrets"][secret]["file"]).is_file(), secret


def test_every_variable_is_in_the_example_and_no_password_is_in_the_file() -> None:
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT))
    example = (DOCKER / ".env.example").read_text()
    given = set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    assert wanted == given
    for uri in re.findall(r"://[^@\s]+@", TEXT):
        assert re.search(r":\$\{\w+(:\?[^}]*)?\}@$", uri), uri


def test_the_sources_log_what_the_stream_needs() -> None:
    mysql = SERVICES["mysql-source"]["command"]
    assert {"--gtid-mode=ON", "--binlog-row-metadata=FULL"} <= set(mysql)
    mariadb = SERVICES["mariadb-source"]["command"]
    assert {"--binlog-format=ROW", "--binlog-row-metadata=FULL", "--log-bin=binlog"} <= set(mariadb)
    ids = [part for s in SERVICES.values() for part in s.get("command", []) if "server-id" in part]
    assert len(ids) == len(set(ids)) == 3


@pytest.mark.parametrize("script", sorted((DOCKER / "init").glob("*.sh")), ids=lambda p: p.name)
def test_an_init_script_is_valid_shell(script: Path) -> None:
    checked = subprocess.run(
        ["bash", "-n", str(script)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("script", "heading"),
    [("source.sh", MYSQL_SOURCE), ("mariadb.sh", MARIADB_SOURCE), ("sink.sh", SINK)],
)
def test_an_account_has_the_rights_that_readme_lists(script: str, heading: str) -> None:
    text = (DOCKER / "init" / script).read_text()
    granted = {
        (privilege.strip(), level)
        for privileges, level in re.findall(
            r"^GRANT (.+) ON (\S+) TO 'cdc'@'%';$", text, re.MULTILINE
        )
        for privilege in privileges.split(",")
    }
    listed: set[tuple[str, str]] = set()
    for right in rights(heading):
        level = right.level.replace("`", "")
        databases = ("tpch.*", "extras.*") if level in {"shop.*", "dr_shop.*"} else (level,)
        listed |= {(right.privilege, database) for database in databases}
    assert granted == listed


def test_the_file_is_what_compose_reads() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run(
        [*checker, str(DOCKER / "compose.yaml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_of_a_named_version(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].partition(":")
    assert tag == "local" if "build" in SERVICES[name] else re.fullmatch(r"\d[\d.]*", tag)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_goes_on_tells_whether_it_is_healthy(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) != (service.get("restart") == "no")


def test_the_state_is_a_database_of_its_own_on_postgres() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    stored = environment["AIRFLOW_CONN_CDC_DEMO_STATE"].replace("${CDC_PASSWORD}", "pw")
    assert ConnectionFields.read("state", stored).dsn() == (
        "postgresql://cdc:pw@postgres:5432/cdc_state?sslmode=disable"
    )
    assert "/airflow" in environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert "CREATE DATABASE cdc_state" in (DOCKER / "init" / "postgres.sh").read_text()


def test_the_demos_pipeline_differs_from_that_of_the_checkout_in_where_spark_is_only() -> None:
    here = load_pipeline(DOCKER / "pipelines" / "demo.yaml").model
    there = load_pipeline(DOCKER.parent / "dags" / "pipelines" / "demo.yaml").model
    assert here.model_copy(update={"spark": there.spark}) == there
    assert here.spark.conf["spark.driver.host"] in {
        service.get("hostname") for service in SERVICES.values()
    }
    environment = SERVICES["airflow-scheduler"]["environment"]
    fields = ConnectionFields.read("spark_default", environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert fields.spark_master() == "spark://spark-master:7077"
    for reference in (here.source, here.sink.reference, here.state):
        assert reference is not None
        assert f"AIRFLOW_CONN_{str(reference.conn_id).upper()}" in environment


def test_what_the_image_installs_is_in_the_lock() -> None:
    (line,) = re.findall(r"RUN uv sync (.*)", (DOCKER / "Dockerfile").read_text())
    uv = shutil.which("uv") or str(DOCKER.parent / ".tools" / "uv" / "bin" / "uv")
    words = [word for word in line.split() if word != "--no-editable"]
    said = subprocess.check_output([uv, "export", "--quiet", "--no-hashes", *words], text=True)
    named = {row.partition("==")[0].partition("[")[0] for row in said.splitlines()}
    assert {"psycopg", "psycopg2-binary", "asyncpg", "tpchgen-cli", "pyspark"} <= named
    assert "apache-airflow-providers-apache-spark" in named
    assert not {"pyspark-client", "pytest"} & named


def test_the_demos_data_is_written_and_compared_by_what_the_container_runs(
    mysql_server: SqlServer, mysql_sink: SqlServer
) -> None:
    dsns = {SOURCE_DSN: mysql_server.dsn(), SINK_DSN: mysql_sink.dsn()}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.end_to_end.in_containers", *words]
        return subprocess.run(
            command, env={**os.environ, **dsns}, capture_output=True, text=True, check=False
        )

    databases = (data.TPCH, data.EXTRAS)
    try:
        for side in (mysql_server, mysql_sink):
            data.load(side, 0.001)
            side.execute("UPDATE text_key SET seen = '2026-01-01'", database=data.EXTRAS)
        assert run("compare").returncode == 0
        mysql_sink.execute("DELETE FROM composite_key LIMIT 1", database=data.EXTRAS)
        differing = run("compare")
        assert differing.returncode == 1
        assert "extras.composite_key: 1 rows are not in" in differing.stdout
        for name in databases:
            mysql_server.execute(f"DROP DATABASE {name}")
        loaded = run("load", "--scale", "0.001", "--write-s", "1")
        assert loaded.returncode == 0, loaded.stderr
        assert "transactions were written" in loaded.stdout
    finally:
        for side in (mysql_server, mysql_sink):
            for name in databases:
                side.execute(f"DROP DATABASE IF EXISTS {name}")


def test_the_image_copies_only_what_the_tree_has() -> None:
    tree = DOCKER.parent
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            for source in sources:
                assert (tree / source).exists(), source
