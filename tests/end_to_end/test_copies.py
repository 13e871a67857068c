"""The whole pipeline from the command line, on real servers, while the source is written to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import data
from tests.end_to_end.compare import differences
from tests.end_to_end.writer import Writer
from tests.servers.accounts import sink_account, source_account
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

PIPELINE = """
pipeline: copies
source: {dsn_env: COPY_SOURCE, tables: ["tpch.*", "extras.*"], server_id: 5400-5409}
sink: {type: mysql, dsn_env: COPY_SINK, route: {"tpch.*": "copy_of_tpch.*"}}
state: {dsn_env: COPY_STATE}
snapshot: {split_rows: 2000, max_connections: 4}
stream: {mode: bounded}
spark:
  always: true
  conf:
    spark.master: "local[2]"
    # Rows travel as bytes that Spark does not look into: none of these may change a value.
    spark.sql.session.timeZone: America/New_York
    spark.sql.ansi.enabled: false
    spark.sql.timestampType: TIMESTAMP_NTZ
    spark.sql.datetime.java8API.enabled: true
    spark.sql.execution.arrow.useLargeVarTypes: true
    spark.sql.execution.arrow.maxRecordsPerBatch: 7
    spark.sql.binaryOutputStyle: HEX
"""
TABLES = {f"tpch.{name}": f"copy_of_tpch.{name}" for name in data.TPCH_TABLES} | {
    "extras.text_key": "extras.text_key",
    "extras.composite_key": "extras.composite_key",
}


class CommandLine:
    """The command line with one pipeline file."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.file = folder / "copies.yaml"
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.environment = environment

    def __call__(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run a command with `--json`; returns exit code, result and what it told meanwhile."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cdc_provider", *words, "--json", str(self.file)],
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        form: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
        return done.returncode, form, done.stderr


def command_line(folder: Path, source: SqlServer, sink: SqlServer) -> CommandLine:
    return CommandLine(
        folder,
        {
            **os.environ,
            "COPY_SOURCE": source_account(source, "tpch", "extras").dsn,
            "COPY_SINK": sink_account(sink, "copy_of_tpch", "extras").dsn,
            "COPY_STATE": f"sqlite:///{folder}/state.db",
        },
    )


@pytest.mark.timeout(600)
@pytest.mark.spark
@pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
@pytest.mark.sample(1, of="whole copies")
def test_a_database_is_copied_while_it_is_written_to_and_kept_in_step(
    kind: type[ThrowawayServer], tmp_path: Path
) -> None:
    with kind() as source, MySqlServer() as sink:
        data.load(source, 0.005)
        run = command_line(tmp_path, source, sink)
        with Writer(source, transactions_per_s=40) as writer:
            code, _, told = run("run", "--until", "caught-up")
            assert code == 0, told
            writer.stop()
        assert writer.transactions > 0
        code, _, told = run("run", "--until", "caught-up")
        assert code == 0, told
        assert differences(source, sink, TABLES) == [], f"seed {writer.seed}"
        code, verdict, told = run("verify")
        assert (code, verdict["equal"]) == (0, True), told
        _check_that_a_difference_is_found(run, sink)
        _check_the_keys(sink)


def _check_that_a_difference_is_found(run: CommandLine, sink: SqlServer) -> None:
    sink.execute("DELETE FROM copy_of_tpch.lineitem ORDER BY l_orderkey, l_linenumber LIMIT 1")
    sink.execute("UPDATE extras.text_key SET label = 'spoilt' LIMIT 1")
    sink.execute("INSERT INTO extras.composite_key VALUES ('main', 18446744073709551615, 'a', '')")
    code, verdict, told = run("verify")
    assert (code, verdict["equal"]) == (1, False), told
    counted = {
        table["table"]: (table["missing"], table["extra"], table["different"])
        for table in verdict["tables"]
        if not table["equal"]
    }
    assert counted == {
        "tpch.lineitem": (1, 0, 0),
        "extras.text_key": (0, 0, 1),
        "extras.composite_key": (0, 1, 0),
    }


def _check_the_keys(sink: SqlServer) -> None:
    """Secondary unique keys and foreign keys are there, now that the tables are consistent."""
    keys = sink.execute(
        "SELECT table_name, constraint_type FROM information_schema.table_constraints "
        "WHERE constraint_schema = 'copy_of_tpch' AND constraint_type <> 'PRIMARY KEY'"
    )
    assert ("supplier", "UNIQUE") in keys
    assert ("lineitem", "FOREIGN KEY") in keys
