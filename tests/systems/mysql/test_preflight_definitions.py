"""A definition is read with every character it has, or the table is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import sink_create_statement
from airflow_cdc_provider.systems.mysql.preflight.definitions import definition_findings
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import BOTH_FAMILIES, sink, source


@pytest.fixture(params=BOTH_FAMILIES)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, SqlServer)
    return found


@pytest.fixture
def table(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> TableId:
    return TableId(fresh_database(server), "t")


def create(server: SqlServer, table: TableId, *definitions: str) -> None:
    columns = ", ".join(("id INT PRIMARY KEY", "v VARCHAR(20)", *definitions))
    server.execute(f"CREATE TABLE {table} ({columns}) DEFAULT CHARSET utf8mb4")


def findings(server: SqlServer, table: TableId, *, needs_defaults: bool = True) -> list[Finding]:
    with source(server) as connection:
        schema = read_schema(connection, table, with_statement=True)
        return list(definition_findings(connection, [schema], needs_defaults=needs_defaults))


def test_expressions_keep_characters_of_four_bytes(server: SqlServer, table: TableId) -> None:
    create(
        server,
        table,
        "g VARCHAR(20) AS (CONCAT(v, '😀?é')) STORED",
        "d VARCHAR(9) DEFAULT (CONCAT('😀?'))",
        "CONSTRAINT k CHECK (v <> '😀')",
    )
    assert findings(server, table) == []
    target = TableId(table.database, "copy")
    with sink(server) as connection:
        schema = read_schema(connection, table, with_statement=True)
        server.execute(f"DROP TABLE {table}")  # names of checks are unique in a database
        family = schema.flavour
        query(connection, sink_create_statement(schema, target, sink_flavour=family))
        query(connection, f"INSERT INTO {target} (id, v) VALUES (1, 'b')")
        assert query(connection, f"SELECT g, d FROM {target}") == [("b😀?é", "😀?")]
        assert query(connection, "SELECT @@character_set_results") == [("utf8mb4",)]
    with pytest.raises(Exception, match=r"(?i)constraint"):
        server.execute(f"INSERT INTO {target} (id, v) VALUES (2, '😀')")


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_members_that_are_printed_alike_refuse_the_table(
    server: SqlServer, table: TableId, kind: str
) -> None:
    create(server, table, f"e {kind}('a', '😀', '?')")
    (found,) = findings(server, table)
    assert (found.level, found.code, found.subject) == (
        Level.BLOCK,
        "table.definition",
        str(table),
    )
    assert "column e" in found.observed
    assert f'put "{table}" into source.exclude' in found.fix


@pytest.mark.parametrize(("kind", "value"), [("ENUM", "😀"), ("SET", "a,😀")])
def test_a_row_shows_the_member_that_is_printed_as_a_question_mark(
    server: SqlServer, table: TableId, kind: str, value: str
) -> None:
    create(server, table, f"e {kind}('a', 'b', '😀')")
    server.execute(f"INSERT INTO {table} (id, e) VALUES (1, 'a'), (2, '{value}')")
    (found,) = findings(server, table)
    assert (found.level, found.code) == (Level.BLOCK, "table.definition")
    assert "'😀'" in found.observed


@pytest.mark.parametrize(("kind", "value"), [("ENUM", "?"), ("SET", "a,?,b")])
def test_a_member_that_is_a_question_mark_passes(
    server: SqlServer, table: TableId, kind: str, value: str
) -> None:
    create(server, table, f"e {kind}('a', '?', 'b')")
    server.execute(f"INSERT INTO {table} (id, e) VALUES (1, 'a'), (2, '{value}')")
    assert findings(server, table) == []


def test_a_doubtful_member_without_a_row_is_said_and_does_not_refuse(
    server: SqlServer, table: TableId
) -> None:
    create(server, table, "e ENUM('a', 'why?')")
    (found,) = findings(server, table)
    assert (found.level, found.code) == (Level.WARN, "table.members")
    assert "'why?'" in found.observed


def test_a_charset_without_large_characters_leaves_no_doubt(
    server: SqlServer, table: TableId
) -> None:
    create(server, table, "e ENUM('a', '?') CHARACTER SET latin1")
    assert findings(server, table) == []


def test_a_default_is_read_exactly_or_refused(server: SqlServer, table: TableId) -> None:
    create(server, table, "d VARCHAR(9) DEFAULT '😀'", "q VARCHAR(9) DEFAULT 'why?'")
    assert findings(server, table, needs_defaults=False) == []  # of a sink without defaults
    found = findings(server, table)
    if "mariadb" in server.version.lower():
        (lost,) = found
        assert (lost.level, lost.code) == (Level.BLOCK, "table.definition")
        assert "column d has the default '😀'" in lost.observed
        return
    assert found == []
    target = TableId(table.database, "copy")
    with sink(server) as connection:
        schema = read_schema(connection, table, with_statement=True)
        query(connection, sink_create_statement(schema, target, sink_flavour="mysql"))
        query(connection, f"INSERT INTO {target} (id) VALUES (1)")
        assert query(connection, f"SELECT d, q FROM {target}") == [("😀", "why?")]


@pytest.mark.mysql
def test_bytes_that_are_no_text_refuse_the_table_and_keep_the_session(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = TableId(mysql_database, "t")
    mysql_server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARBINARY(9), "
        "g VARBINARY(20) AS (CONCAT(v, _latin1 x'FF')) STORED)"
    )
    with source(mysql_server) as connection:
        with pytest.raises(UnsupportedTableError, match=str(table)):
            read_schema(connection, table, with_statement=True)
        assert query(connection, "SELECT 'é😀'") == [("é😀",)]
