"""What a statement does to the copied rows decides whether the stream goes on behind it.

The statements are run on real servers, between writes, and their logs are applied to a sink.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from pymysql.err import MySQLError

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import TableChangedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import sink_create_statement
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import position_of
from tests.systems.mysql.sessions import BOTH_FAMILIES, source

TABLE = """
CREATE TABLE t (
    id INT NOT NULL, a INT, b VARCHAR(20) DEFAULT 'x', c INT, parent INT,
    PRIMARY KEY (id), UNIQUE KEY uniq (a), KEY plain (b), KEY second (c),
    CONSTRAINT positive CHECK (a > 0), CONSTRAINT small CHECK (c < 1000000),
    CONSTRAINT child FOREIGN KEY (parent) REFERENCES parents (id)
)
"""
BOTH = [
    "CREATE TABLE IF NOT EXISTS t (id INT)",
    "CREATE TABLE IF NOT EXISTS t LIKE parents",
    "CREATE TABLE IF NOT EXISTS t (x INT) SELECT 1 AS x",
    "DROP INDEX plain ON t",
    "CREATE INDEX plain ON t (b, c)",
    "ALTER TABLE t RENAME INDEX plain TO simple",
    "ALTER TABLE t DROP INDEX simple, ADD INDEX other (c)",
    "ALTER TABLE t DROP KEY second",
    "ALTER TABLE t ALTER COLUMN b SET DEFAULT 'y', ALTER c SET DEFAULT 7",
    "ALTER TABLE t ALTER COLUMN b DROP DEFAULT",
    "ALTER TABLE t DROP CONSTRAINT positive",
    "ALTER TABLE t DROP CONSTRAINT child",
    "ALTER TABLE t DEFAULT CHARACTER SET latin1",
    "ALTER TABLE t CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='z'",
    "ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    "ALTER TABLE t FORCE",
]
PASSED = {
    "mysql": [
        *BOTH,
        "ALTER TABLE t DROP CHECK small",
        "ALTER TABLE t SECONDARY_ENGINE=NULL",
        "ALTER TABLE t ALTER INDEX other INVISIBLE",
    ],
    "mariadb": [
        *BOTH,
        "ALTER TABLE t DROP CONSTRAINT IF EXISTS small",
        "CREATE OR REPLACE INDEX other ON t (c, b)",
        "DROP INDEX IF EXISTS other ON t",
        "ALTER TABLE t /*M! COMMENT='q' */",
    ],
}
STOPPED = [
    "DROP INDEX uniq ON t",
    "DROP INDEX `PRIMARY` ON t",
    "ALTER TABLE t DROP INDEX plain, DROP COLUMN c",
    "ALTER TABLE t DROP INDEX plain, DROP KEY UNIQ",
    "ALTER TABLE t DROP CONSTRAINT uniq",
    "ALTER TABLE t RENAME INDEX uniq TO simple",
    "ALTER TABLE t ALTER b SET DEFAULT 'y', MODIFY c BIGINT",
    "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE t ADD (INDEX more (c), d INT)",
    "ALTER TABLE t DROP FOREIGN KEY child, ADD CONSTRAINT child2 FOREIGN KEY (parent) "
    "REFERENCES parents (id) ON DELETE CASCADE",
    "DROP TABLE IF EXISTS missing, t",
    "RENAME TABLE t TO t2",
    "TRUNCATE TABLE t",
]


@dataclass
class Copy:
    """One table at a source and its copy, kept in step by hand."""

    server: SqlServer
    database: str
    plan: TablePlan
    sink: MySqlSink
    start: MySqlPosition
    family: str
    rows: int = 0

    def write(self) -> None:
        """Insert two rows, and change and delete one of those before."""
        first = self.rows
        self.rows += 2
        self.server.execute(
            f"INSERT INTO {self.database}.t (id, a, b, c) VALUES ({first}, {first + 1}, 'q', 1), "
            f"({first + 1}, {first + 2}, 'r', 2)"
        )
        if first:
            self.server.execute(f"UPDATE {self.database}.t SET c = {first} WHERE id = {first - 1}")
            self.server.execute(f"DELETE FROM {self.database}.t WHERE id = {first - 2}")

    def apply(self) -> None:
        """Bring everything the log has now to the sink."""
        schema = self.plan.schema
        reader = LogReader(
            Endpoint.parse(self.server.dsn()),
            server_id=7911,
            start=self.start,
            captured={schema.table},
            schemas={schema.table: schema}.get,
        )
        end = position_of(self.server).binlog
        with closing(reader), closing(self.sink.open_changes(arrow_schemas([schema]))) as changes:
            for batch in reader.read_to(end):
                changes.apply(batch)

    def held(self) -> list[Any]:
        table = self.plan.sink_table
        return self.server.execute(f"SELECT * FROM {table} ORDER BY id")


@pytest.fixture(params=BOTH_FAMILIES)
def copy(
    request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Iterator[Copy]:
    server: SqlServer = request.getfixturevalue(request.param)
    database = fresh_database(server)
    server.execute("CREATE TABLE parents (id INT PRIMARY KEY)", database=database)
    server.execute(TABLE, database=database)
    target = TableId(fresh_database(server), "copy")
    with source(server) as connection:
        schema = read_schema(connection, TableId(database, "t"), with_statement=True)
    family = "mariadb" if request.param.startswith("mariadb") else "mysql"
    server.execute(sink_create_statement(schema, target, sink_flavour=family))
    start = position_of(server)
    plan = TablePlan.alike(schema, target, 0)
    owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    sink = MySqlSink(Endpoint.parse(server.dsn()), owner, (plan,))
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(sink.open_ledger()))
        ledger.take_over(1)
        ledger.start_plan("a plan")
        ledger.store_stream(StreamSplit(start, None, (TableProgress(schema.table, start),)))
        yield Copy(server, database, plan, sink, start, family)


def test_the_stream_goes_on_behind_statements_that_change_nothing_it_copies(copy: Copy) -> None:
    copy.write()
    for statement in PASSED[copy.family]:
        try:
            copy.server.execute(statement, database=copy.database)
        except MySQLError as error:
            raise AssertionError(statement) from error
        copy.write()
    copy.apply()
    assert copy.held() == copy.server.execute(f"SELECT * FROM {copy.database}.t ORDER BY id")
    assert len(copy.held()) > len(BOTH)


@pytest.mark.parametrize("statement", STOPPED)
def test_the_stream_stops_at_a_statement_that_changes_what_it_copies(
    copy: Copy, statement: str
) -> None:
    copy.write()
    before = copy.server.execute(f"SELECT * FROM {copy.database}.t ORDER BY id")
    copy.server.execute(statement, database=copy.database)
    with pytest.raises(TableChangedError, match="a statement changed"):
        copy.apply()
    assert copy.held() == before
