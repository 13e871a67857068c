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

COLUMNS = {
    "t": ("TINYINT", "-1", "127"),
    "tu": ("TINYINT UNSIGNED", "255", "254"),
    "m": ("MEDIUMINT", "-8388608", "8388607"),
    "bg": ("BIGINT UNSIGNED", "18446744073709551615", "9223372036854775807"),
    "bi": ("BIGINT", "-9223372036854775808", "-1"),
    "z": ("INT(8) ZEROFILL", "5", "50"),
    "b": ("BIT(64)", "b'1011'", "b'1010'"),
    "y": ("YEAR", "0", "2000"),
    "d": ("DECIMAL(65,30)", "-0.000000000000000000000000000001", "0"),
    "dw": ("DECIMAL(38,0)", "1000000000000000000", "1000000000000000001"),
    "f": ("FLOAT", "16777216", "16777218"),
    "fs": ("FLOAT(7,3)", "12.345", "12.346"),
    "g": ("DOUBLE", "0.1e0+0.2e0", "0.3e0"),
    "gs": ("DOUBLE(9,2)", "1.25", "1.26"),
    "c": ("CHAR(5) CHARACTER SET latin1", "'é '", "'e'"),
    "v": ("VARCHAR(9) CHARACTER SET utf8mb4", "'a '", "'a'"),
    "cs": ("VARCHAR(9) CHARACTER SET sjis", "'漢'", "'感'"),
    "e": ("ENUM('a','b','0')", "0", "3"),
    "s": ("SET('p','q')", "'p,q'", "'p'"),
    "tx": ("TEXT CHARACTER SET utf16", "'漢字'", "'漢'"),
    "lt": ("LONGTEXT", "REPEAT('x', 300000)", "CONCAT(REPEAT('x', 299999), 'y')"),
    "bn": ("BINARY(4)", "x'01'", "x'02'"),
    "vb": ("VARBINARY(5)", "x'6100'", "x'61'"),
    "bl": ("BLOB", "x'00ff'", "x''"),
    "da": ("DATE", "'0000-00-00'", "'2024-02-31'"),
    "dt": ("DATETIME(3)", "'2024-00-00 01:02:03.120'", "'2024-00-00 01:02:03.121'"),
    "dm": ("DATETIME(6)", "'9999-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999998'"),
    "ts": ("TIMESTAMP(6) NULL", "'2038-01-19 03:14:07.999999'", "'2038-01-19 03:14:07'"),
    "ti": ("TIME(6)", "'-838:59:58.000001'", "'838:59:58.000001'"),
    "p": ("POINT", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(2 1)')"),
    "js": ("LONGTEXT", """'[1.50]'""", """'[1.5]'"""),
}
"""By name: a type, a value, and another one that is not the same."""


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
