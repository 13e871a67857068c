"""The compose file, as far as it can be checked without an engine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.accounts import MARIADB_SOURCE, MYSQL_SOURCE, SINK, rights

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
    assert granted - {("ALL", "cdc_state.*")} == listed


def test_the_image_copies_only_what_the_tree_has() -> None:
    tree = DOCKER.parent
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            for source in sources:
                assert (tree / source).exists(), source
