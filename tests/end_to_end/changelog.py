"""What several tests need of `test_changelog`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PIPELINE = """
pipeline: changes
source: {dsn_env: LOG_SOURCE, tables: [%s], server_id: 5700-5709}
sink: {type: changelog, path: %s, format: %s}
state: {dsn_env: LOG_STATE}
snapshot: {split_rows: 700, max_connections: 4}
stream: {mode: bounded}
spark: {always: true, conf: {spark.master: "local[2]"}}
"""


class CommandLine:
    """The command line with one pipeline file."""

    def __init__(self, folder: Path, dsn: str, *tables: str, form: str) -> None:
        self.log = folder / "log"
        self.file = folder / "changes.yaml"
        named = ", ".join(f'"{table}"' for table in tables)
        self.file.write_text(PIPELINE % (named, self.log, form), encoding="utf-8")
        self.environment = {
            **os.environ,
            "LOG_SOURCE": dsn,
            "LOG_STATE": f"sqlite:///{folder}/state.db",
        }

    def __call__(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cdc_provider", *words, str(self.file)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr
