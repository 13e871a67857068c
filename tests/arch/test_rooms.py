"""Each room is imported in a fresh interpreter, and loads no library it may not.

import-linter reads what our own files say; this sees what really gets loaded, by whomever.
Executors load `core`, `columns`, `engine` and `systems` once a task, Airflow the rest at each
parse.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import airflow_cdc_provider
from airflow_cdc_provider.systems.kinds import KINDS

PACKAGE = "airflow_cdc_provider"
ROOT = Path(airflow_cdc_provider.__file__).parent
COLUMNS = {"numpy", "pandas", "pyarrow"}
CONTROL = {"airflow", "alembic", "pydantic", "rich", "sqlalchemy", "yaml"}
AIRFLOW_ROOMS = (
    "hooks",
    "links",
    "notifications",
    "operators",
    "plugins",
    "sensors",
    "triggers",
)
FORBIDDEN: dict[str, set[str]] = {
    "alerts": {"airflow", "pyspark"} | COLUMNS,
    "columns": CONTROL | {"pandas", "pymysql", "pyspark"},
    "databases": {"airflow", "pyspark"} | COLUMNS,
    "engine": CONTROL | {"pandas", "pyspark"},
    "systems": CONTROL | {"pandas", "pyspark"},
    "views": {"airflow", "pyspark"},
    "spark": {"airflow", "pydantic", "yaml"},
    "state": {"airflow", "pyspark"} | COLUMNS,
    "pipeline": {"airflow", "pyspark", "sqlalchemy"} | COLUMNS,
    "cli": {"pyspark"},
    "web": {"pyspark", "pymysql", "pymysqlreplication"} | COLUMNS,
} | {room: {"pyspark", "pymysqlreplication"} | COLUMNS for room in AIRFLOW_ROOMS}
# Only a driver speaks to the state store, so only these may bring SQLAlchemy into Spark's room.
SPARK_DRIVER_MODULES = {f"{PACKAGE}.spark.main"}
# Sections of the pipeline file are loaded by the file's model alone, never by a job.
SECTIONS = {kind.file for kind in KINDS.values()}
WITH_SECTIONS = f"{PACKAGE}.systems.sections"
# The file and its model are read at each DAG parse; its steps work on servers and state.
WORKING_MODULES = (f"{PACKAGE}.pipeline.run", f"{PACKAGE}.pipeline.steps")

LOADED = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
COMMITTERS = {
    f"{PACKAGE}.systems.lake.tables.catalogs": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.iceberg": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.iceberg_commits": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.iceberg_layout": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.iceberg_files": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.rest_views": "pyiceberg",
    f"{PACKAGE}.systems.lake.tables.delta": "deltalake",
}
"""They have the libraries of their formats, which load what they like."""


def loaded_by(*modules: str) -> set[str]:
    """Give the top-level packages a fresh interpreter has loaded after importing `modules`."""
    command = [sys.executable, "-W", "ignore", "-c", LOADED, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(room: str) -> list[str]:
    """Give every module of `room`."""
    found = pkgutil.walk_packages([str(ROOT / room)], prefix=f"{PACKAGE}.{room}.")
    # Alembic alone can run its migrations, so nothing else imports them.
    names = [module.name for module in found if ".migrations" not in module.name]
    return [f"{PACKAGE}.{room}", *(name for name in names if not name.endswith(".__main__"))]


def rooms() -> list[str]:
    return sorted(p.parent.name for p in ROOT.glob("*/__init__.py"))


def test_the_packages_own_module_loads_nothing() -> None:
    assert loaded_by(PACKAGE) - loaded_by("json") == {PACKAGE}


def test_core_loads_the_standard_library_only() -> None:
    extra = loaded_by(*modules_of("core")) - loaded_by("json") - sys.stdlib_module_names
    assert extra == {PACKAGE}


def test_the_provider_info_loads_the_standard_library_only() -> None:
    extra = loaded_by(f"{PACKAGE}.get_provider_info") - loaded_by("json") - sys.stdlib_module_names
    assert extra == {PACKAGE}


@pytest.mark.parametrize("room", sorted(set(rooms()) & set(FORBIDDEN)))
def test_a_room_loads_no_library_it_may_not(room: str) -> None:
    apart = (*WORKING_MODULES, WITH_SECTIONS)
    modules = [name for name in modules_of(room) if not name.startswith(apart)]
    modules = [name for name in modules if name not in (*SECTIONS, *COMMITTERS)]
    assert loaded_by(*modules) & FORBIDDEN[room] == set()


def test_a_lakes_library_is_loaded_by_the_committer_of_its_format_alone() -> None:
    others = [name for name in modules_of("systems") if name not in COMMITTERS]
    assert loaded_by(*others) & {"pyiceberg", "deltalake"} == set()
    for module, library in COMMITTERS.items():
        assert library in loaded_by(module)


def test_sections_of_the_pipeline_file_load_pydantic_and_no_other_library() -> None:
    shared = [name for name in modules_of("systems") if name.startswith(WITH_SECTIONS)]
    assert shared
    loaded = loaded_by(*shared, *SECTIONS)
    assert "pydantic" in loaded
    assert loaded & (FORBIDDEN["systems"] | COLUMNS | {"pymysql"}) == {"pydantic"}


def test_the_steps_of_a_pipeline_load_neither_airflow_nor_spark() -> None:
    steps = [name for name in modules_of("pipeline") if name.startswith(WORKING_MODULES)]
    assert steps
    assert loaded_by(*steps) & {"airflow", "pyspark"} == set()


def test_modules_of_spark_that_run_on_executors_load_no_sqlalchemy() -> None:
    modules = sorted(set(modules_of("spark")) - SPARK_DRIVER_MODULES)
    if "sqlalchemy" in loaded_by(*modules):
        assert [name for name in modules if "sqlalchemy" in loaded_by(name)] == []
        pytest.fail("modules load SQLAlchemy together, and none of them alone")


def test_openlineage_is_loaded_by_the_module_that_its_provider_asks_for_alone() -> None:
    asked = f"{PACKAGE}.hooks.openlineage"
    others = [name for room in AIRFLOW_ROOMS for name in modules_of(room) if name != asked]
    assert "openlineage" not in loaded_by(*others)
    assert "openlineage" in loaded_by(asked)


def test_every_room_is_judged() -> None:
    without_modules = {room for room in rooms() if len(modules_of(room)) == 1}
    assert set(rooms()) - without_modules - set(FORBIDDEN) - {"core", "docs"} == set()


def test_every_forbidden_name_is_one_that_can_be_imported() -> None:
    """Guard the test itself: a misspelt name would never be found loaded."""
    assert set.union(*FORBIDDEN.values()) <= set(metadata.packages_distributions())
