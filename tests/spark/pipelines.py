"""A pipeline of a test: real servers, a SQLite state store, jobs as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId, quote_table
from airflow_cdc_provider.core.jobspec import (
    SINK_DSN_ENV,
    SOURCE_DSN_ENV,
    STATE_DSN_ENV,
    JobKind,
    JobSpec,
    StreamMode,
)
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, TableShape
from airflow_cdc_provider.engine.job import JobServers
from airflow_cdc_provider.engine.job_result import JobResult
from airflow_cdc_provider.engine.sink.port import Owner, Sink
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer

CONSTANT: dict[str, Any] = {
    "source_options": {"server_ids": [61_000, 61_009]},
    "max_connections": 5,
}


@dataclass
class Pipeline:
    """One pipeline; `plan` first, then jobs."""

    name: PipelineName
    source: SqlServer
    sink: SqlServer
    source_database: str
    sink_database: str
    folder: Path
    source_dsn: str = ""
    sink_dsn: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    store: SqlStateStore = field(init=False)

    def __post_init__(self) -> None:
        self.source_dsn = self.source_dsn or self.source.dsn()
        self.sink_dsn = self.sink_dsn or self.sink.dsn()
        self.state_dsn = f"sqlite:///{self.folder / 'state.db'}"
        self.store = open_store(self.state_dsn)

    @property
    def environment(self) -> dict[str, str]:
        return {
            SOURCE_DSN_ENV: self.source_dsn,
            SINK_DSN_ENV: self.sink_dsn,
            STATE_DSN_ENV: self.state_dsn,
        }

    def servers(self) -> JobServers:
        return JobServers.from_environment(self.spec(JobKind.SNAPSHOT, 0), self.environment)

    def plan(
        self, tables: Iterable[str], shapes: Mapping[str, TableShape] | None = None
    ) -> tuple[TablePlan, ...]:
        """Create the sink's tables and store a plan without splits."""
        ids = [TableId(self.source_database, table) for table in tables]
        with closing(connect(Endpoint.parse(self.source.dsn()), purpose="test")) as connection:
            schemas = read_schemas(connection, ids)
        plans = tuple(
            self._plan(
                schemas[i], SAME_SHAPE if shapes is None else shapes.get(i.table, SAME_SHAPE)
            )
            for i in ids
        )
        for plan in plans:
            self.sink.execute(plan.target.create_statement, database=self.sink_database)
        generation = self.take_over()
        with closing(self.open(generation).open_ledger()) as ledger:
            ledger.take_over(generation)
            ledger.start_plan("plan-1")
        self.store.start_plan(self.name, generation, "plan-1", plans)
        self.store.move(self.name, generation, expected=Phase.NEW, to=Phase.PLANNING)
        return plans

    def _plan(self, schema: TableSchema, shape: TableShape) -> TablePlan:
        """Return the plan of a table."""
        target = TableId(self.sink_database, schema.table.table)
        return TablePlan(schema, self.open(0).target_of(schema, target, shape), 0, shape)

    def take_over(self) -> int:
        return self.store.take_over(self.name, "test").generation

    def open(self, generation: int) -> Sink:
        plans = [table.plan for table in self.store.tables(self.name)]
        owner = Owner(self.name, generation)
        return open_sink("mysql", Endpoint.parse(self.sink.dsn()), owner, plans)

    def spec(self, kind: JobKind, generation: int, **settings: Any) -> JobSpec:
        spec = JobSpec(self.name, generation, kind, stream_mode=StreamMode.BOUNDED, **CONSTANT)
        return replace(spec, **{**self.overrides, **settings})

    def hand_off(self) -> StreamSplit:
        """Hand off under a new generation, as the step between the two jobs does."""
        generation = self.take_over()
        with closing(self.open(generation).open_ledger()) as ledger:
            ledger.take_over(generation)
            finished = [
                FinishedSplit.of(split, report, backfilled=split.is_backfilled(wanted=True))
                for split, report in ledger.reports()
            ]
            stream = hand_off(finished)
            ledger.store_stream(stream)
        self.store.store_hand_off(self.name, generation, stream)
        self.store.move(self.name, generation, expected=Phase.SNAPSHOT, to=Phase.HANDED_OFF)
        return stream

    # --- jobs in processes of their own --------------------------------------------------------

    def start(
        self, spec: JobSpec, *, master: str = "local[2]", more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a job as a process; its output goes to `log_of(spec)`."""
        command = [sys.executable, "-m", "airflow_cdc_provider.spark.main"]
        command += ["--job", spec.to_json(), "--master", master]
        with self.log_of(spec).open("ab") as log:
            return subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log_of(self, spec: JobSpec) -> Path:
        return self.folder / f"{spec.kind.value}-{spec.generation}.log"

    def result_of(self, spec: JobSpec) -> JobResult:
        last = self.log_of(spec).read_text().strip().splitlines()[-1]
        return JobResult.from_json(last)

    # --- the oracle ----------------------------------------------------------------------------

    def rows(self, server: SqlServer, database: str, table: str) -> list[Any]:
        columns = [column.name for column in self.plan_of(table).schema.copied_columns]
        listed = ", ".join(f"`{name}`" for name in columns)
        key = ", ".join(f"`{name}`" for name in self.plan_of(table).schema.primary_key)
        where = quote_table(TableId(database, table))
        return server.execute(f"SELECT {listed} FROM {where} ORDER BY {key}")

    def plan_of(self, table: str) -> TablePlan:
        return next(
            state.plan
            for state in self.store.tables(self.name)
            if state.plan.schema.table.table == table
        )

    def assert_equal(self) -> None:
        """Source and sink hold the same rows, of tables that are the same at both."""
        for state in self.store.tables(self.name):
            table = state.plan.schema.table.table
            if not state.plan.shape.is_identity:
                continue
            ours = self.rows(self.source, self.source_database, table)
            theirs = self.rows(self.sink, self.sink_database, table)
            missing, extra = set(ours) - set(theirs), set(theirs) - set(ours)
            assert ours == theirs, (
                f"{table}: missing {sorted(missing)[:3]}, extra {sorted(extra)[:3]}"
            )
