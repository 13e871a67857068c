"""What each command loads, seen in a fresh interpreter that runs it.

A command that has little to do answers at once only if it brings little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import Shop, shop

__all__ = ["shop"]

COLUMNS = {"numpy", "pandas", "pyarrow"}
STATE = {"alembic", "sqlalchemy"}
FILE = {"pydantic", "yaml"}
SERVERS = {"pymysql", "pymysqlreplication"}
SPARK = {"py4j", "pyspark"}
EVERYTHING = COLUMNS | STATE | FILE | SERVERS | SPARK | {"cryptography", "rich"}

RUN = """
import json, sys
from airflow_cdc_provider.cli.main import main
try:
    code = int(main(sys.argv[1:]))
except SystemExit as ended:
    code = ended.code or 0
names = sorted(name for name in sys.modules)
sys.stderr.write("\\n" + json.dumps([code, names]) + "\\n")
"""

UNREACHED = """\
pipeline: quiet
source: {dsn_env: QUIET_DSN, tables: ["a.b"]}
sink: {type: mysql, dsn_env: QUIET_DSN, route: {"a.b": "c.b"}}
"""


def loaded_by(*words: str, environment: dict[str, str] | None = None) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a command that went well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(names)


@pytest.fixture
def quiet(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Give a pipeline file whose servers nobody needs to reach."""
    path = tmp_path / "quiet.yaml"
    path.write_text(UNREACHED, encoding="utf-8")
    return str(path), {"QUIET_DSN": "mysql://nobody@127.0.0.1:1/?ssl_disabled=true"}


@pytest.mark.parametrize("words", [("--help",), ("run", "--help")])
def test_help_loads_no_library_at_all(words: tuple[str, ...]) -> None:
    loaded = loaded_by(*words)
    assert loaded & EVERYTHING == set()
    outside = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert outside <= {"__main__", "airflow_cdc_provider"} | _startup_modules()


def test_a_wrong_option_is_refused_before_anything_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "airflow_cdc_provider", "run", "--no-such"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pydantic" not in done.stderr


@pytest.mark.parametrize("command", ["status", "requests"])
def test_status_and_requests_load_the_file_and_the_state_store_and_no_more(
    quiet: tuple[str, dict[str, str]], command: str
) -> None:
    path, environment = quiet
    loaded = loaded_by(command, path, environment=environment)
    assert loaded & (COLUMNS | SERVERS | SPARK | {"alembic", "cryptography", "rich"}) == set()
    assert loaded & {"sqlalchemy.dialects.mysql", "airflow_cdc_provider.systems.registry"} == set()
    assert {"sqlalchemy", "pydantic"} <= loaded


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_pause_and_resume_load_no_columns_and_no_driver_of_servers(
    quiet: tuple[str, dict[str, str]], command: str
) -> None:
    path, environment = quiet
    loaded = loaded_by(command, path, environment=environment)
    assert loaded & (COLUMNS | SERVERS | SPARK) == set()


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_check_and_a_plan_look_at_servers_without_columns_or_spark(
    shop: Shop, command: str
) -> None:
    loaded = loaded_by(command, str(shop.path), environment=dict(shop.environment))
    assert loaded & (COLUMNS | SPARK | {"pymysqlreplication"}) == set()
    assert "pymysql" in loaded


def test_a_check_loads_nothing_of_planning_of_jobs_or_of_windows(shop: Shop) -> None:
    loaded = loaded_by("check", str(shop.path), environment=dict(shop.environment))
    steps = "airflow_cdc_provider.pipeline.steps."
    needless = {"planning", "table_membership", "jobs", "windows", "backfilling", "estimating"}
    assert loaded & {steps + name for name in needless} == set()
    engine = {name for name in loaded if name.startswith("airflow_cdc_provider.engine.")}
    # the port of a sink, and the rules by which any sink's ledger is read, are part of each sink
    port = {f"airflow_cdc_provider.engine.{name}" for name in ("sink", "sink.port")}
    assert {name for name in engine if ".engine.ledger" not in name} - port == set()


def _startup_modules() -> set[str]:
    """Return what this environment loads into every interpreter."""
    listing = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", listing], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
