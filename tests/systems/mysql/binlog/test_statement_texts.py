"""A statement is understood as its session wrote it: its charset, its quotes, its backslashes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import captured_log

COLUMNS = "(id INT PRIMARY KEY)"
PARTED = f"CREATE TABLE parted {COLUMNS} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))"


@pytest.fixture
def server(request: pytest.FixtureRequest, family: str) -> SqlServer:
    found: SqlServer = request.getfixturevalue(f"{family}_server")
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(server)


def statements_of(
    server: SqlServer,
    database: str,
    table: str,
    *statements: str | bytes,
    charset: str = "utf8mb4",
    sql_mode: str = "",
) -> list[ChangeBatch]:
    """Make a captured table, run statements in one session, and return what the log says."""
    for made in (f"CREATE TABLE `{table}` {COLUMNS}", PARTED):
        server.execute(made, database=database)
    with captured_log(server) as log:
        connection = server.connect(database, charset=charset)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(f"SET SESSION sql_mode = '{sql_mode}'")
            for statement in statements:
                cursor.execute(statement)
        captured = frozenset({TableId(database, table)})
        return log().batches(captured=captured)


def concerned(batches: list[ChangeBatch], table: TableId) -> list[bool]:
    """Return for each barrier whether it concerns the table to whoever asks later."""
    return [each.barrier.effect.concerns(table) for each in batches if each.barrier is not None]


@FAMILIES
@pytest.mark.parametrize(
    ("charset", "name"),
    [("latin1", "größe"), ("gbk", "中文"), ("sjis", "ソ"), ("utf8mb4", "größe")],
)
@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE `{}`",
        "RENAME TABLE `{}` TO `elsewhere`",
        "ALTER TABLE {} ADD a INT",
        "DROP TABLE `{}`",
    ],
)
def test_a_captured_table_is_known_in_the_charset_of_whoever_changes_it(
    server: SqlServer, database: str, charset: str, name: str, statement: str
) -> None:
    batches = statements_of(server, database, name, statement.format(name), charset=charset)
    assert concerned(batches, TableId(database, name)) == [True]


@FAMILIES
@pytest.mark.parametrize("charset", ["latin1", "gbk"])
def test_names_that_the_server_writes_itself_are_utf_8(
    server: SqlServer, database: str, charset: str
) -> None:
    name = {"latin1": "größe", "gbk": "中文"}[charset]
    again = (f"DROP TABLE `{name}`", f"CREATE TABLE `{name}` SELECT 1 AS id")
    batches = statements_of(server, database, name, *again, charset=charset)
    assert concerned(batches, TableId(database, name)) == [True, True]


@FAMILIES
def test_the_second_byte_of_a_character_is_no_backslash(server: SqlServer, database: str) -> None:
    statement = "ALTER TABLE t COMMENT '縗', RENAME TO elsewhere"
    assert "縗".encode("gbk")[1:] == b"\\"
    batches = statements_of(server, database, "t", statement, charset="gbk")
    assert concerned(batches, TableId(database, "t")) == [True]


@FAMILIES
def test_a_backslash_ends_no_string_where_it_escapes_nothing(
    server: SqlServer, database: str
) -> None:
    statement = "ALTER TABLE t COMMENT 'c:\\', RENAME TO elsewhere"
    batches = statements_of(server, database, "t", statement, sql_mode="NO_BACKSLASH_ESCAPES")
    assert concerned(batches, TableId(database, "t")) == [True]


@FAMILIES
def test_a_table_in_double_quotes_is_known_to_whoever_asks_later(
    server: SqlServer, database: str
) -> None:
    statement = 'ALTER TABLE parted EXCHANGE PARTITION p WITH TABLE "t"'
    batches = statements_of(server, database, "t", statement, sql_mode="ANSI_QUOTES")
    assert concerned(batches, TableId(database, "t")) == [True]


@pytest.mark.mariadb
@pytest.mark.parametrize("family", ["mariadb"])
def test_a_database_that_is_replaced_loses_its_tables(server: SqlServer, database: str) -> None:
    statement = f"CREATE OR REPLACE DATABASE `{database}`"
    batches = statements_of(server, database, "t", statement)
    assert concerned(batches, TableId(database, "t")) == [True]


@FAMILIES
def test_a_statement_with_bytes_that_are_no_text_can_be_told_and_stored(
    server: SqlServer, database: str
) -> None:
    batches = statements_of(server, database, "t", b"ALTER TABLE t /* \xff */ ADD a INT")
    assert concerned(batches, TableId(database, "t")) == [True]
    (told,) = (each.barrier.sql for each in batches if each.barrier is not None)
    assert told.encode().decode() == "ALTER TABLE t /* \ufffd */ ADD a INT"
