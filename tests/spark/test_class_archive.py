"""The classes kept for the next JVM: used when whole, written when not, done without otherwise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from airflow_cdc_provider.spark.class_archive import archive_options
from airflow_cdc_provider.spark.java_home import find_java_home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "airflow-provider-cdc" / "class-archives"


def starts(options: str, *, required: bool = False) -> bool:
    """Tell whether a JVM starts; where the archive is `required`, only with it."""
    share = "-Xshare:on" if required else "-Xshare:auto"
    command = [str(find_java_home() / "bin" / "java"), *options.split(), share, "-version"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def archive_in(options: str) -> Path:
    return Path(options.split()[0].partition("=")[2])


def test_the_first_jvm_writes_an_archive_and_the_second_takes_it(cache: Path) -> None:
    home = find_java_home()
    if not (home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no classes of its own archived, so it writes none")
    first = archive_options(home)
    assert first.startswith("-XX:ArchiveClassesAtExit=")
    assert archive_in(first).parent == cache
    assert starts(first)
    assert archive_in(first).exists()
    second = archive_options(home)
    assert second.startswith(f"-XX:SharedArchiveFile={archive_in(first)}")
    assert starts(second, required=True)


def test_an_archive_that_was_cut_short_is_written_anew_and_harms_no_jvm(cache: Path) -> None:
    home = find_java_home()
    archive = archive_in(archive_options(home))
    archive.write_bytes(bytes(1 << 20))
    assert archive_options(home).startswith("-XX:ArchiveClassesAtExit=")
    cut_short = f"-XX:SharedArchiveFile={archive}"
    assert starts(cut_short)
    assert not starts(cut_short, required=True)


def test_another_java_has_another_archive(cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "java"
    other.mkdir()
    (other / "release").write_text('JAVA_VERSION="21"')
    assert archive_in(archive_options(other)) != archive_in(archive_options(find_java_home()))


def test_archives_that_nobody_used_for_long_are_removed(cache: Path) -> None:
    cache.mkdir(parents=True)
    old, used = cache / "old.jsa", cache / "used.jsa"
    for archive in (old, used):
        archive.write_bytes(b"x")
    os.utime(old, (0, 0))
    archive_options(find_java_home())
    assert (old.exists(), used.exists()) == (False, True)


def test_a_cache_that_cannot_be_written_to_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert archive_options(find_java_home()) == ""


def test_a_cache_with_a_blank_in_its_name_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    assert archive_options(find_java_home()) == ""
