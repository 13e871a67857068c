"""The oldest PySpark that jobs run on, beside the newest, which this environment has.

It is put before this environment's packages by `PYTHONPATH`, so that a job's process and its
workers import it and share all else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = Path(__file__).with_name("oldest_pyspark.txt")
OLDEST, NEWEST = "oldest", "newest"


@pytest.fixture(scope="session")
def oldest_pyspark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the oldest one; returns the environment of its jobs."""
    uv = shutil.which("uv") or ROOT / ".tools" / "uv" / "bin" / "uv"
    folder = tmp_path_factory.mktemp("oldest")
    command = [uv, "pip", "install", "--quiet", "--no-config", "--python", sys.executable]
    command += ["--target", folder, "--no-deps", "--require-hashes", "-r", LOCKED]
    subprocess.run(list(map(str, command)), check=True, timeout=240)
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


@pytest.fixture(params=[OLDEST, NEWEST])
def pyspark(request: pytest.FixtureRequest) -> dict[str, str]:
    """Run a test on the oldest and on the newest."""
    if request.param == NEWEST:
        return {}
    environment: dict[str, str] = request.getfixturevalue("oldest_pyspark")
    return environment
