"""The built wheel, installed where nothing of the sources can be seen, is a provider to Airflow.

The clean environment takes Airflow and the other dependencies from this one, file by file through
links, so that nothing is downloaded twice; of the provider it has what the wheel brought.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tomllib
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from airflow_cdc_provider.get_provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
OURS = ("airflow_provider_cdc", "_editable_impl_airflow_provider_cdc", "airflow_cdc_provider")


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=env,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def uv() -> Path:
    found = shutil.which("uv") or ROOT / ".tools" / "uv" / "bin" / "uv"
    if not Path(found).exists():
        pytest.skip("no uv to build the wheel with; make setup brings one")
    return Path(found)


@pytest.fixture(scope="module")
def wheel(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(uv: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel in it; returns its folder of programs."""
    folder = tmp_path_factory.mktemp("clean")
    run(uv, "venv", "--quiet", "--python", sysconfig.get_python_version(), folder / "venv")
    programs = folder / "venv" / "bin"
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS) and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", programs / "python", wheel)
    return programs


@pytest.fixture(scope="module")
def environment(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("airflow")
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": f"{clean}:/usr/bin:/bin",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONWARNINGS": "ignore",
    }


def airflow(clean: Path, environment: Mapping[str, str], *words: str) -> str:
    return run(clean / "python", "-m", "airflow", *words, env=environment)


def as_shown(value: Any) -> Any:
    """Write scalars as text, as Airflow's command does with some of them."""
    match value:
        case dict():
            return {key: as_shown(item) for key, item in value.items()}
        case list():
            return [as_shown(item) for item in value]
        case _:
            return str(value)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"airflow_cdc_provider"}
    assert "airflow_cdc_provider/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_holds_the_files_of_the_page_and_the_licence_of_what_is_not_ours(
    wheel: Path,
) -> None:
    folder = ROOT / "airflow_cdc_provider/web/static"
    files = {f"{path.relative_to(ROOT)}" for path in folder.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        assert files - set(archive.namelist()) == set()
    assert f"{(folder / 'vendor/LICENSE.uPlot').relative_to(ROOT)}" in files


def requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(archive.read(name).decode())
    return list(map(Requirement, told.get_all("Requires-Dist", [])))


def test_what_the_wheel_asks_for_brings_one_pyspark_and_a_pandas_that_spark_supports(
    wheel: Path,
) -> None:
    always = (one for one in requirements(wheel) if "extra" not in str(one.marker))
    asked = {one.name: one for one in always}
    assert {name for name in asked if "spark" in name} == {"pyspark"}
    assert asked["pandas"].marker is None
    assert not asked["pandas"].specifier.contains("3.0.0")
    assert asked["pandas"].specifier.contains("2.2.0")  # what Spark asks for at least


def test_nothing_that_is_installed_with_it_brings_another_pyspark() -> None:
    """The lock overrides that one demand: of the tests, and of the extra that has it on purpose."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pyspark,) = [one for one in project["project"]["dependencies"] if one.startswith("pyspark")]
    uv = project["tool"]["uv"]
    assert uv == {"override-dependencies": ["pyspark-client; python_version < '0'", pyspark]}
    locked = tomllib.loads((ROOT / "uv.lock").read_text())
    packages = {package["name"]: package for package in locked["package"]}
    assert [name for name in packages if name.startswith("pyspark")] == ["pyspark"]
    assert Version(packages["pandas"]["version"]) < Version("3")
    asking = [name for name in installed_with_it(packages) if asks_for_client(name)]
    assert asking == []


def installed_with_it(packages: Mapping[str, Any]) -> set[str]:
    """Give all that the wheel asks for, its other extras too, and what that asks for."""
    ours = packages["airflow-provider-cdc"]
    extras = ours["optional-dependencies"]
    others = (extras[name] for name in extras if name != "spark-provider")
    waiting = [*ours["dependencies"], *chain(*others)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()["name"]
        if name not in found:
            found.add(name)
            package = packages[name]
            waiting += package.get("dependencies", [])
            waiting += chain(*package.get("optional-dependencies", {}).values())
    return found


def asks_for_client(name: str) -> bool:
    try:
        asked = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return False  # for another platform
    return any(Requirement(one).name == "pyspark-client" for one in asked)


def test_the_clean_environment_has_the_wheels_package(
    clean: Path, environment: dict[str, str]
) -> None:
    where = run(
        clean / "python",
        "-c",
        "import airflow_cdc_provider; print(airflow_cdc_provider.__file__)",
        env=environment,
    )
    assert Path(where.strip()).is_relative_to(clean.parent)


def test_airflow_lists_the_installed_provider(clean: Path, environment: dict[str, str]) -> None:
    shown = airflow(
        clean, environment, "providers", "get", "airflow-provider-cdc", "--full", "-o", "yaml"
    )
    (provider,) = yaml.safe_load(shown)
    wanted = get_provider_info()
    wanted["description"] = wanted["description"].rstrip(".")  # Airflow shows it so
    assert as_shown({key: provider[key] for key in wanted}) == as_shown(wanted)


def test_airflow_loads_the_plugin_by_its_entry_point(
    clean: Path, environment: dict[str, str]
) -> None:
    plugins = yaml.safe_load(airflow(clean, environment, "plugins", "-o", "yaml"))
    (ours,) = [plugin for plugin in plugins if plugin["name"] == "cdc"]
    assert "airflow-provider-cdc" in ours["source"]


def test_airflows_command_line_has_the_commands(clean: Path, environment: dict[str, str]) -> None:
    shown = airflow(clean, environment, "cdc", "--help")
    for command in ("check", "plan", "run", "status", "verify"):
        assert command in shown
