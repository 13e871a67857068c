"""What a condition on rows may hold: what says the same of the same row each time, and no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.conditions import condition_of
from airflow_cdc_provider.systems.mysql.dialect.sql import chosen_predicate
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.value_cuts import value_cuts
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import BOTH_FAMILIES

COLUMNS = (
    "id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(9,2), made DATETIME, at TIME, doc JSON, "
    "`odd name` INT, twice INT AS (id * 2) VIRTUAL, KEY (note)"
)
"""Generated columns are not copied."""

FINE = [
    "id = 2",
    "id IN (1, 3) AND NOT (note IS NULL)",
    "note LIKE 'tw\\_%' ESCAPE '\\\\' OR note = 'it''s; -- /* not a comment */ @x'",
    'note = "two words" COLLATE utf8mb4_bin',
    "note = 'zwölf 🐍'",
    "amount BETWEEN -1.50 AND 1e3 XOR amount % 2 = 0x1F",
    "made >= DATE '2026-01-01' AND made < TIMESTAMP '2026-02-01 00:00:00'",
    "made + INTERVAL 1 DAY > '2026-01-01'",
    "DATE_SUB(made, INTERVAL 3 MONTH) < '2026-01-01' AND DAYOFWEEK(made) = 1",
    "at < '10:00:00' AND HOUR(at) = 9",
    "CASE WHEN `odd name` = 1 THEN TRUE ELSE id DIV 2 = 0 END",
    "JSON_UNQUOTE(JSON_EXTRACT(doc, '$.a')) = 'x'",
    "COALESCE(CHAR_LENGTH(TRIM(note)), 0) = 0",
    "CAST(note AS UNSIGNED) <=> NULL",
    "`id` = 1 AND ((ID = 2))",
    "note = X'41'",
]
REFUSED = [
    ("", "1 to 4,000 characters"),
    ("  ", "1 to 4,000 characters"),
    ("id = 1" + " OR id = 1" * 500, "1 to 4,000 characters"),
    ("id = 1; DROP TABLE t", "';' is not known"),
    ("id = 1 -- and no more", "a comment"),
    ("id = 1 /* hm */", "a comment"),
    ("id = 1 /*!80000 OR TRUE */", "a comment"),
    ("id = 1 # hm", "a comment"),
    ("id = 1) OR (id = 2", "closed that was not opened"),
    ("(id = 1", "not closed"),
    ("note = 'x", "a quote is not closed"),
    ("note = 'x\\'", "a quote is not closed"),
    ("`id = 1", "a quote is not closed"),
    ("id\u00a0= 1", "cannot be shown"),
    ("id = 1\nOR TRUE", "cannot be shown"),
    ("RAND() < 0.5", "RAND(...) is not known to give the same"),
    ("made < NOW()", "NOW(...) is not known"),
    ("made < CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP is no column"),
    ("made < SYSDATE()", "SYSDATE(...)"),
    ("made < UNIX_TIMESTAMP()", "UNIX_TIMESTAMP(...)"),
    ("note = UUID()", "UUID(...)"),
    ("note = USER()", "USER(...)"),
    ("note = CURRENT_USER", "CURRENT_USER is no column"),
    ("id = @x", "'@' is not known"),
    ("id = @@server_id", "'@' is not known"),
    ("SLEEP(1)", "SLEEP(...)"),
    ("id IN (SELECT 1)", "SELECT is no column"),
    ("EXISTS (SELECT 1)", "EXISTS(...)"),
    ("id = (TABLE other)", "TABLE is no column"),
    ("id = t.id", "t is no column"),
    ("shop.f(id)", "shop is no column"),
    ("mine(id)", "mine(...)"),
    ("`ABS`(id) = 1", "ABS(...)"),
    ("ABS (id) = 1", "write ABS( without a blank"),
    ("twice = 2", "twice is no column that is copied"),
    ("idd = 2", "idd is no column that is copied"),
    ("MATCH (note) AGAINST ('x')", "MATCH(...)"),
    ("COUNT(id) > 1", "COUNT(...)"),
    ("at < made", "a time of day with a date, which is today's then"),
    ("at < '2026-01-01' AND DAY(at) = 1", "today's then"),
    ("CAST(at AS DATETIME) > '2026-01-01'", "today's then"),
    ("made > TIME '10:00:00'", "today's then"),
    ("id = 1 LIMIT 5", "LIMIT is no column"),
    ("id = 1 INTO OUTFILE 'x'", "INTO is no column"),
    ("id = {d '2026-01-01'}", "'{' is not known"),
]


@pytest.fixture(params=BOTH_FAMILIES)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> TableId:
    database = fresh_database(server)
    server.execute(f"CREATE TABLE t ({COLUMNS})", database=database)
    return TableId(database, "t")


def test_what_a_condition_may_hold_both_families_know(server: SqlServer, table: TableId) -> None:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        schema = read_schema(connection, table)
        for text in FINE:
            condition = condition_of(schema, f" {text} ")
            assert condition.text == text
            query(connection, f"SELECT 1 FROM {table} WHERE {chosen_predicate(condition)}")


def test_what_may_say_something_else_of_the_same_row_is_refused(
    server: SqlServer, table: TableId
) -> None:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        schema = read_schema(connection, table)
    for text, why in REFUSED:
        assert why in wrong(schema, text), text


def wrong(schema: TableSchema, text: str) -> str:
    try:
        condition_of(schema, text)
    except ValueError as error:
        return str(error)
    return ""


def test_few_rows_that_an_index_finds_are_one_piece(server: SqlServer, table: TableId) -> None:
    rows = ", ".join(f"({number}, 'n{number}')" for number in range(500))
    server.execute(f"INSERT INTO t (id, note) VALUES {rows}", database=table.database)
    server.execute("ANALYZE TABLE t", database=table.database)
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        schema = read_schema(connection, table)

        def is_one(text: str) -> bool:
            return value_cuts(connection, table, condition_of(schema, text), 100) is not None

        assert is_one("note = 'n7'")
        assert is_one("id IN (3, 4)")
        assert not is_one("amount = 5")
        assert not is_one("id > 4")
