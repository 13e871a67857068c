"""Tables that the sink makes, and looks at."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer

CUSTOMERS = """CREATE TABLE customers (
  id INT PRIMARY KEY, mail VARCHAR(80) COLLATE utf8mb4_bin NOT NULL, UNIQUE KEY mail (mail),
  upper_mail VARCHAR(80) AS (UPPER(mail)) STORED)"""
ORDERS = """CREATE TABLE orders (
  id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT, price DECIMAL(12,2),
  CONSTRAINT of_customer FOREIGN KEY (customer) REFERENCES customers (id) ON DELETE CASCADE)"""


class Tables:
    """Tables of one database on their way to another of the same server."""

    def __init__(self, server: SqlServer, source: str, sink: str) -> None:
        self.server, self.source, self.sink = server, source, sink
        self.endpoint = Endpoint.parse(server.dsn())
        self.owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)

    def at_source(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement, database=self.source)

    def at_sink(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement, database=self.sink)

    def plans(self, *names: str) -> list[TablePlan]:
        tables = [TableId(self.source, name) for name in names]
        with closing(connect(self.endpoint, purpose="tests")) as connection:
            schemas = read_schemas(connection, tables)
        return [
            TablePlan.alike(schemas[table], TableId(self.sink, table.table), 0) for table in tables
        ]

    def opened(self, plans: Sequence[TablePlan] = ()) -> Any:
        return open_sink("mysql", self.endpoint, self.owner, plans)

    def create(self, plans: Sequence[TablePlan]) -> dict[str, bool]:
        with closing(self.opened().open_tables()) as builder:
            created = builder.create_missing(plans)
        return {table.table: new for table, new in created.items()}

    def finish(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        with closing(self.opened().open_tables()) as builder:
            remarks: tuple[str, ...] = builder.finish(plans)
        return remarks

    def keys(self, table: str) -> set[str]:
        rows = self.server.execute(
            "SELECT constraint_name FROM information_schema.table_constraints "
            "WHERE table_schema = %s AND table_name = %s",
            (self.sink, table),
        )
        return {row[0] for row in rows}
