"""The quick start, followed to the letter: its SQL, its files and its commands, in their order."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.airflow.real_airflow import RealAirflow
from tests.docs.pages import DOCS, blocks
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer

PAGE = DOCS / "quick_start.md"
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Reader:
    """Somebody who follows the page with two servers and names of their own."""

    source: SqlServer
    sink: SqlServer
    airflow: RealAirflow
    tag: str

    @property
    def shop(self) -> str:
        return f"qs_{self.tag}"

    @property
    def dr_shop(self) -> str:
        return f"qs_dr_{self.tag}"

    def own(self, text: str) -> str:
        """Put in the servers, databases and account that there are here."""
        text = re.sub(r"\bdr_shop\b", self.dr_shop, text)
        text = re.sub(r"\bshop\b(?=[.`])", self.shop, text)
        text = text.replace("'cdc'@'%'", f"'{self.shop}'@'%'")
        text = text.replace("//cdc:", f"//{self.shop}:")
        for name, server in (("db1", self.source), ("db2", self.sink)):
            at = re.search(r"@([^/]+)/", server.dsn())
            assert at is not None
            text = text.replace(f"@{name}:3306/", f"@{at[1]}/")
        return text

    def statements(self) -> None:
        """Make the accounts as the page does."""
        for server, block in zip((self.source, self.sink), blocks(PAGE, "sql"), strict=True):
            for statement in filter(str.strip, self.own(block).split(";")):
                server.execute(statement)

    def files(self) -> None:
        """Write the pipeline file and the DAG file."""
        (pipeline,), (dag,) = blocks(PAGE, "yaml"), blocks(PAGE, "python")
        self.airflow.dags.joinpath("pipelines").mkdir()
        self.airflow.dags.joinpath("pipelines/shop_to_dr.yaml").write_text(self.own(pipeline))
        self.airflow.dags.joinpath("cdc.py").write_text(dag)

    def commands(self, block: str) -> str:
        """Run a block of commands as a shell does, and return what was said."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.own(block)],
            cwd=self.airflow.home,
            env={**self.airflow.environment(), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def rows(self, server: SqlServer, database: str) -> list[object]:
        return server.execute(f"SELECT * FROM {database}.orders ORDER BY id")


@pytest.fixture
def new_server() -> Iterator[SqlServer]:
    """A MySQL as it is after its installation: with its defaults, and no setting for a copy."""
    defaults = {
        "gtid_mode": "OFF",
        "enforce_gtid_consistency": "OFF",
        "binlog_row_metadata": "MINIMAL",
    }
    with MySqlServer(defaults) as server:
        yield server


@pytest.fixture
def reader(new_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path) -> Iterator[Reader]:
    airflow = RealAirflow(tmp_path / "home")
    airflow.migrate()
    made = Reader(new_server, mysql_sink, airflow, secrets.token_hex(3))
    new_server.execute(f"CREATE DATABASE {made.shop}")
    new_server.execute(f"CREATE TABLE {made.shop}.orders (id INT PRIMARY KEY, note VARCHAR(9))")
    new_server.execute(f"INSERT INTO {made.shop}.orders VALUES (1, 'one'), (2, NULL)")
    try:
        yield made
    finally:
        mysql_sink.execute(f"DROP DATABASE IF EXISTS {made.dr_shop}")
        mysql_sink.execute(f"DROP USER IF EXISTS '{made.shop}'@'%'")


def test_whoever_follows_the_page_has_equal_tables(reader: Reader) -> None:
    reader.statements()
    reader.files()
    alone, in_airflow = blocks(PAGE, "sh")
    assert "equal" in reader.commands(alone)
    assert reader.rows(reader.sink, reader.dr_shop) == [(1, "one"), (2, None)]
    reader.source.execute(f"DELETE FROM {reader.shop}.orders WHERE id = 1")
    said = reader.commands(f"{in_airflow}\nairflow dags test shop_to_dr__sync")
    assert "1/1 tables consistent" in said
    assert reader.rows(reader.sink, reader.dr_shop) == [(2, None)]
