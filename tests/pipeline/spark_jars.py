"""A Spark that the formats have jars of, from PyPI, and the jars, which Maven brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"
_SPARK = ("pyspark==4.0.1", "py4j==0.10.9.9")


def install_spark(folder: Path) -> None:
    """Install it into a folder of its own."""
    uv = shutil.which("uv") or ROOT / ".tools" / "uv" / "bin" / "uv"
    command = [uv, "pip", "install", "--quiet", "--no-config", "--python", sys.executable]
    command += ["--target", folder, "--no-deps", *_SPARK]
    subprocess.run(list(map(str, command)), check=True, timeout=600)


def jar(artifact: str) -> str:
    """Return the path of a jar that Maven has brought."""
    command = ["mvn", "-q", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
    subprocess.run(command, check=True, timeout=600)
    group, name, version = artifact.split(":")
    folder = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / name / version
    return str(folder / f"{name}-{version}.jar")


def run_sql(folder: Path, given: Mapping[str, Any]) -> None:
    """Run what `spark_sql` is given, in the Spark that was installed into a folder."""
    command = [sys.executable, "-m", "tests.pipeline.spark_sql", json.dumps(given)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
