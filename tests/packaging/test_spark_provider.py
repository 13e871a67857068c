"""The extra `spark-provider`, installed by pip into a fresh environment, brings one whole PySpark.

pip decides by itself about everything that has to do with Spark. The rest is linked from this
environment and held where it is by constraints, as Airflow's own instructions do it. The PySpark
that the extra pins comes through uv, which keeps it built: it is pip that must find it right.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.test_wheel import OURS, requirements, run, uv, wheel

__all__ = ["uv", "wheel"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LEFT_TO_PIP = ("pyspark", "py4j", "apache_airflow_providers_apache_spark")
OPERATOR = "airflow.providers.apache.spark.operators.spark_submit"


def is_left_to_pip(name: str) -> bool:
    return name.replace("-", "_").startswith((*OURS, *LEFT_TO_PIP))


@pytest.fixture(scope="module")
def fresh(uv: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel and its extra; returns its Python."""
    folder = tmp_path_factory.mktemp("fresh")
    python = folder / "venv/bin/python"
    run(Path(sysconfig.get_path("scripts")) / "python", "-m", "venv", folder / "venv")
    (packages,) = (folder / "venv/lib").glob("python3*/site-packages")
    ours = Path(sysconfig.get_path("purelib"))
    for entry in ours.iterdir():
        if not is_left_to_pip(entry.name) and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    held = [found for found in distributions(path=[str(ours)]) if not is_left_to_pip(found.name)]
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{one.name}=={one.version}\n" for one in held))
    (pinned,) = [
        f"pyspark{one.specifier}"
        for one in requirements(wheel)
        if one.name == "pyspark" and "spark-provider" in str(one.marker)
    ]
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, pinned)
    install: list[Path | str] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    run(*install, "--constraint", constraints, f"{wheel}[spark-provider]")
    return python


def installed(python: Path, name: str) -> Distribution:
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    (found,) = distributions(name=name, path=[str(packages)])
    return found


def test_pip_finds_nothing_missing_or_of_a_wrong_version(fresh: Path) -> None:
    assert "No broken requirements" in run(fresh, "-m", "pip", "check")


def test_the_client_is_there_and_of_the_version_of_the_whole(fresh: Path) -> None:
    client, full = installed(fresh, "pyspark-client"), installed(fresh, "pyspark")
    provider = installed(fresh, "apache-airflow-providers-apache-spark")
    assert client.version == full.version
    asked = {one.name: one for one in map(Requirement, provider.requires or ())}
    assert asked["pyspark-client"].specifier.contains(client.version)


def test_each_file_that_both_bring_is_the_same_in_both(fresh: Path) -> None:
    of_client, of_full = (
        {str(file): file.hash.value for file in installed(fresh, name).files or () if file.hash}
        for name in ("pyspark-client", "pyspark")
    )
    shared = [name for name in of_client if name in of_full and not name.endswith(".pyc")]
    assert len(shared) > 100
    assert [name for name in shared if of_client[name] != of_full[name]] == []


def test_the_operator_and_our_session_can_be_imported_side_by_side(fresh: Path) -> None:
    shown = run(
        fresh,
        "-W",
        "ignore",
        "-c",
        f"from {OPERATOR} import SparkSubmitOperator\n"
        "from airflow_cdc_provider.spark import installation, session\n"
        "installation.require_one_pyspark()\n"
        "print(SparkSubmitOperator.__name__, 'beside', session.DEFAULT_MASTER)",
    )
    assert shown.splitlines()[-1] == "SparkSubmitOperator beside local[*]"
