"""What several tests need of `test_verify`."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import source

MYSQL = pytest.param("mysql_server", "mysql_sink", marks=pytest.mark.mysql)


TO_MARIADB = pytest.param("mysql_server", "mariadb_server", marks=pytest.mark.mariadb)


FROM_MARIADB = pytest.param("mariadb_server", "mysql_sink", marks=pytest.mark.mariadb)


class Pair:
    """The same table on two servers."""

    def __init__(
        self,
        here: SqlServer,
        there: SqlServer,
        left: str,
        right: str,
        *,
        by_columns: bool = False,
    ) -> None:
        self.here, self.there, self.by_columns = here, there, by_columns
        self.table, self.target = TableId(left, "t"), TableId(right, "copy")

    def both(self, statement: str) -> None:
        """Run a statement on both; `{}` is the table."""
        self.at_source(statement)
        self.at_sink(statement)

    def at_source(self, statement: str) -> None:
        with source(self.here) as connection:
            query(connection, statement.format(self.table))

    def at_sink(self, statement: str) -> None:
        with source(self.there) as connection:
            query(connection, statement.format(self.target))

    def plan(self) -> TablePlan:
        with source(self.here) as connection:
            return TablePlan.alike(read_schema(connection, self.table), self.target, 0)

    def verify(self, **options: Any) -> VerifyReport:
        return verify(
            MySqlSource(Endpoint.parse(self.here.dsn())),
            MySqlSink(Endpoint.parse(self.there.dsn()), Owner(PipelineName("verify"), 1)),
            [self.plan()],
            **{"by_columns": self.by_columns, **options},
        )
