"""The sinks' world on a server of MySQL's protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from tests.behaviours.sink_world import Row, SinkWorld
from tests.servers.given import SqlServer

INT = mysql_type("int")
TEXT = mysql_type("varchar", length=200, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")


@dataclass
class MySqlSinkWorld(SinkWorld):
    """One sink server and a database on it."""

    types = {TypeKind.INTEGER: INT, TypeKind.TEXT: TEXT}  # noqa: RUF012 - as in the base

    server: SqlServer
    database: str
    local_files: bool = True
    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1

    def make_tables(self) -> None:
        text = "VARCHAR(200) CHARACTER SET utf8mb4"
        self.server.execute(
            f"CREATE TABLE `{self.database}`.orders (id INT PRIMARY KEY, name {text})"
        )
        self.server.execute(
            f"CREATE TABLE `{self.database}`.seats "
            "(id INT PRIMARY KEY, seat INT NOT NULL, UNIQUE KEY seat (seat))"
        )

    def take_long_texts(self) -> None:
        """Let `orders` have texts of any length, as if the source had them, too."""
        self.server.execute(f"ALTER TABLE `{self.database}`.orders MODIFY name LONGTEXT")
        schema = self.orders.schema
        long = mysql_type("longtext", charset=TEXT.charset, collation=TEXT.collation)
        columns = (schema.columns[0], replace(schema.columns[1], type=long))
        wider = replace(schema, columns=columns)
        self.orders = TablePlan.alike(wider, self.orders.sink_table, 0)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.parse(self.server.dsn())

    def under(self, generation: int, **options: Any) -> MySqlSink:
        settings: dict[str, Any] = {
            "local_files": self.local_files,
            "apply": self.apply,
            "writers": self.writers,
        }
        settings |= options
        return MySqlSink(
            self.endpoint,
            Owner(self.pipeline, generation),
            (self.orders, self.seats),
            SinkSettings(**settings),
        )

    def held(self, table: str = "orders") -> list[Row]:
        return self.server.execute(f"SELECT * FROM `{self.database}`.{table} ORDER BY 1")

    def put(self, *rows: Row, table: str = "orders") -> None:
        """Write rows into the sink behind the pipeline's back."""
        for row in rows:
            marks = ", ".join(["%s"] * len(row))
            self.server.execute(f"INSERT INTO `{self.database}`.{table} VALUES ({marks})", row)
