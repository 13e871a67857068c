"""The command line with a pipeline into a folder, for several tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PIPELINE = """
pipeline: changes
source: {dsn_env: LOG_SOURCE, tables: [%s], server_id: 5700-5709}
sink: {path: %s, %s}
state: {dsn_env: LOG_STATE}
snapshot: {split_rows: 700, max_connections: 4}
stream: {mode: bounded}
spark: {always: true, conf: {spark.master: "local[2]"}}
"""


class CommandLine:
    """The command line with one pipeline file."""

    def __init__(
        self, folder: Path, dsn: str, *tables: str, form: str = "json", sink: str = ""
    ) -> None:
        self.log = folder / "log"
        sink = sink or f"type: changelog, format: {form}"
        self.file = folder / "changes.yaml"
        named = ", ".join(f'"{table}"' for table in tables)
        self.file.write_text(PIPELINE % (named, self.log, sink), encoding="utf-8")
        self.environment = {
            **os.environ,
            "LOG_SOURCE": dsn,
            "LOG_STATE": f"sqlite:///{folder}/state.db",
        }

    def started(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on until it is killed."""
        return subprocess.Popen(self._command(words), env=self.environment)

    def queries(self) -> dict[str, str]:
        """Return the queries of the current rows that `show` prints, by table."""
        (shown,) = json.loads(self("show", "--json")[1])["pipelines"]
        found: dict[str, str] = shown["current_rows"]
        return found

    def _command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "airflow_cdc_provider", *words, str(self.file)]

    def __call__(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            self._command(words),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr
