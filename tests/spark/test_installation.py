"""Two PySparks in one environment are noticed by their files, before Spark starts."""

from __future__ import annotations

import hashlib
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import SparkInstallationError
from airflow_cdc_provider.spark.installation import require_one_pyspark, require_supported

SHARED = ("pyspark/__init__.py", "pyspark/sql/functions.py")


def install(site: Path, name: str, version: str, *files: str) -> None:
    """Put a distribution's files into a made-up site-packages, over those that are there."""
    lines = []
    for file in files:
        content = f"# {file} of {version}\n".encode()
        place = site / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(content)}")
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("\n".join([*lines, f"{folder.name}/RECORD,,"]) + "\n")


def test_this_environment_has_one_pyspark() -> None:
    require_one_pyspark()


def test_no_pyspark_at_all_is_not_this_checks_business(tmp_path: Path) -> None:
    require_one_pyspark([str(tmp_path)])


def test_a_client_installed_over_another_version_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    install(tmp_path, "pyspark", "4.3.0", *SHARED, "pyspark/java_gateway.py")
    install(tmp_path, "pyspark-client", "4.2.0", *SHARED, "pyspark/only_here.py")
    with pytest.raises(SparkInstallationError) as refused:
        require_one_pyspark([str(tmp_path)])
    error = refused.value
    assert "2 files of pyspark 4.3.0" in error.what
    assert "pyspark-client 4.2.0, such as pyspark/__init__.py" in error.what
    assert error.where == str(tmp_path / "pyspark")
    assert "pip install --force-reinstall --no-deps pyspark==4.3.0" in error.remedy
    assert "pyspark-client==4.2.0 pyspark==4.2.0" in error.remedy


def test_one_foreign_file_among_many_is_enough(tmp_path: Path) -> None:
    install(tmp_path, "pyspark-client", "4.2.0", *SHARED)
    install(tmp_path, "pyspark", "4.3.0", *SHARED)
    (tmp_path / SHARED[1]).write_text("# of a third one\n")
    with pytest.raises(SparkInstallationError, match=r"1 files of .* pyspark/sql/functions\.py"):
        require_one_pyspark([str(tmp_path)])


def test_a_shared_file_that_is_gone_is_a_foreign_one(tmp_path: Path) -> None:
    install(tmp_path, "pyspark-client", "4.2.0", *SHARED)
    install(tmp_path, "pyspark", "4.3.0", *SHARED)
    (tmp_path / SHARED[1]).unlink()
    with pytest.raises(SparkInstallationError):
        require_one_pyspark([str(tmp_path)])


def test_the_full_package_over_an_older_client_is_whole(tmp_path: Path) -> None:
    install(tmp_path, "pyspark-client", "4.2.0", *SHARED)
    install(tmp_path, "pyspark", "4.3.0", *SHARED)
    require_one_pyspark([str(tmp_path)])


def test_both_of_one_version_are_not_looked_into(tmp_path: Path) -> None:
    install(tmp_path, "pyspark", "4.3.0", *SHARED)
    install(tmp_path, "pyspark-client", "4.3.0", *SHARED)
    (tmp_path / SHARED[1]).write_text("# patched by its owner\n")
    require_one_pyspark([str(tmp_path)])


def test_a_pyspark_taken_from_sparks_own_folder_is_not_judged_by_another(tmp_path: Path) -> None:
    site, spark_home = tmp_path / "site-packages", tmp_path / "spark" / "python"
    install(site, "pyspark", "4.3.0", *SHARED)
    install(site, "pyspark-client", "4.2.0", *SHARED)
    (spark_home / "pyspark").mkdir(parents=True)
    (spark_home / "pyspark" / "__init__.py").touch()
    require_one_pyspark([str(spark_home), str(site)])


def test_looking_needs_nothing_of_spark() -> None:
    module = sys.modules[require_one_pyspark.__module__]
    assert not any(getattr(value, "__name__", "") == "pyspark" for value in vars(module).values())


@pytest.mark.parametrize("version", ["3.5.0", "3.5.6-amzn-1", "4.0.0", "4.3.0", "10.0.0"])
def test_a_spark_from_3_5_on_is_taken(version: str) -> None:
    require_supported(version, where="here")


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4"])
def test_an_older_spark_is_refused_with_the_version_that_is_needed(version: str) -> None:
    with pytest.raises(SparkInstallationError, match=f"Spark {version} is too old: jobs need 3.5"):
        require_supported(version, where="here")
