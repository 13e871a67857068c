"""Where `make demo` copies to: another MySQL server, or a lake in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb

from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.current_rows import current_rows
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from tests.end_to_end.airflow_server import REPOSITORY
from tests.end_to_end.compare import differences
from tests.servers.accounts import sink_account
from tests.servers.patience import wait_until
from tests.servers.throwaway import MySqlServer, Options
from tests.systems.lake.reading import table_of

KINDS = ("mysql", "iceberg", "delta")
_DAGS = REPOSITORY / "dags"
_TO_SERVER = "  type: mysql\n  conn_id: cdc_demo_sink\n"


class DemoSink(Protocol):
    """What the demo copies to."""

    dags: Path
    """The DAG folder whose `pipelines/demo.yaml` copies there."""
    connections: dict[str, str]

    @property
    def shown(self) -> str:
        """What it is, for people."""

    def where(self) -> str:
        """Return how a person looks at it."""

    def differences(self, source: MySqlServer, run: Run) -> list[str]:
        """Compare some tables whole, by none of the product's code; returns what differs."""


@dataclass
class OtherServer:
    """Another MySQL server."""

    server: MySqlServer
    dags: Path
    connections: dict[str, str]

    @property
    def shown(self) -> str:
        return f"MySQL {self.server.version} on port {self.server.port}"

    def where(self) -> str:
        return f"mysql --host=127.0.0.1 --user=root --port={self.server.port} tpch"

    def differences(self, source: MySqlServer, run: Run) -> list[str]:
        tables = ("extras.text_key", "extras.composite_key", "tpch.orders")
        return differences(source, self.server, {table: table for table in tables})


@dataclass
class Lake:
    """A folder of tables of one format."""

    form: str
    folder: Path
    dags: Path
    connections: dict[str, str]

    @property
    def shown(self) -> str:
        return f"tables of {self.form} in {self.folder}"

    def where(self) -> str:
        return f"{self.folder}; `show dags/pipelines/demo.yaml` prints queries for such a lake"

    def differences(self, source: MySqlServer, run: Run) -> list[str]:
        """Compare by the query that `show` prints, in DuckDB, over the format's own library."""
        sink = sink_of(run)
        assert isinstance(sink, CommitsLater)
        wait_until(lambda: not sink.has_unpublished(), seconds=60)
        queries, found = current_rows(run), []
        for table in ("extras.composite_key", "tpch.orders"):
            there = Counter(self._rows(table, queries[table]))
            mine = Counter(source.execute(f"SELECT * FROM {table}"))
            if mine != there:
                missing, extra = (mine - there).total(), (there - mine).total()
                found.append(f"{table}: {missing} rows are not in the lake, {extra} only there")
        return found

    def _rows(self, table: str, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield a table's current rows."""
        with closing(duckdb.connect()) as connection:
            connection.register("changes", table_of(self.form, self.folder, table))
            named = ".".join(f'"{part}"' for part in table.split("."))
            yield from connection.sql(query.replace(named, "changes")).fetchall()


@contextmanager
def demo_sink(kind: str, options: Options, *databases: str) -> Iterator[DemoSink]:
    """Make what the demo copies to, and take it away at the end."""
    if kind == "mysql":
        with MySqlServer(options) as server:
            account = sink_account(server, *databases)
            yield OtherServer(server, _DAGS, {"cdc_demo_sink": account.dsn})
        return
    with tempfile.TemporaryDirectory(prefix="cdc-demo-") as folder:
        lake, dags = Path(folder) / "lake", Path(folder) / "dags"
        shutil.copytree(_DAGS, dags)
        file = dags / "pipelines" / "demo.yaml"
        text = file.read_text(encoding="utf-8")
        if _TO_SERVER not in text:
            raise ValueError(f"{file} has no sink of type mysql")
        own = f"  type: {kind}\n  path: {lake}\n  commit_seconds: 5\n"
        file.write_text(text.replace(_TO_SERVER, own), encoding="utf-8")
        yield Lake(kind, lake, dags, {})


def chosen_kind() -> str:
    """Return the kind of sink that `SINK` names; ends the program if there is none such."""
    kind = os.environ.get("SINK") or "mysql"
    if kind not in KINDS:
        raise SystemExit(f"SINK={kind} is none of {', '.join(KINDS)}")
    return kind
