"""What the text of a row change says that it writes, reads and calls."""

from __future__ import annotations

from contextlib import closing

import pymysql
import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.dialect.native_functions import (
    KEYWORDS_BEFORE_PARENTHESES,
    NATIVE_FUNCTIONS,
)
from airflow_cdc_provider.systems.mysql.dialect.row_statements import RowStatement
from tests.servers.given import SqlServer

NO_FUNCTION, NO_LOADABLE_FUNCTION = 1305, 1630


def read(sql: str) -> RowStatement:
    return LoggedStatement("db", sql, ansi_quotes=False, backslash_escapes=True).rows


CLEAR: list[tuple[str, str, set[str], set[str]]] = [
    ("INSERT INTO t VALUES (1, 'FROM x')", "db.t", set(), set()),
    ("INSERT LOW_PRIORITY IGNORE t (a, b) VALUES (1, 2), (3, 4)", "db.t", set(), set()),
    ("INSERT INTO a.t SET x = (SELECT MAX(i) FROM b.u)", "a.t", {"b.u"}, set()),
    (
        "INSERT INTO t(a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a), b = 2",
        "db.t",
        set(),
        set(),
    ),
    (
        "REPLACE INTO `p`.`c` (x) SELECT COUNT(*) FROM `s`.`o` FORCE INDEX(`PRIMARY`) "
        "WHERE (`i` > 1)",
        "p.c",
        {"s.o"},
        set(),
    ),
    (
        "INSERT INTO t SELECT * FROM a, b AS c LEFT JOIN d ON a.x = d.x AND f(a.y) "
        "JOIN (e) USING (x)",
        "db.t",
        {"db.a", "db.b", "db.d", "db.e"},
        {"f"},
    ),
    (
        "INSERT INTO t SELECT * FROM a USE INDEX FOR ORDER BY (k), b ORDER BY x, y",
        "db.t",
        {"db.a", "db.b"},
        set(),
    ),
    (
        "INSERT INTO t SELECT EXTRACT(YEAR FROM d), TRIM('x' FROM e) FROM (SELECT * FROM u) AS v",
        "db.t",
        {"db.u"},
        set(),
    ),
    (
        "INSERT INTO t SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT * FROM u WHERE g.h(1))",
        "db.t",
        {"db.u"},
        {"h"},
    ),
    (
        "INSERT INTO t SELECT x FROM a UNION ALL SELECT y FROM b LIMIT 3",
        "db.t",
        {"db.a", "db.b"},
        set(),
    ),
    (
        "INSERT INTO t VALUES (`lower`(1), Checked (2), CAST(3 AS CHAR(10)))",
        "db.t",
        set(),
        {"lower", "checked"},
    ),
    ("UPDATE t SET a = 1 WHERE b IN (SELECT c FROM u)", "db.t", {"db.u"}, set()),
    ("UPDATE LOW_PRIORITY a.t AS x SET a = IF(b, 1, 2) ORDER BY a LIMIT 1", "a.t", set(), set()),
    ("DELETE FROM t", "db.t", set(), set()),
    ("DELETE QUICK FROM a.t WHERE x = (SELECT MIN(y) FROM a.t)", "a.t", set(), set()),
    ("SET STATEMENT max_statement_time = 3 FOR INSERT INTO t VALUES (1)", "db.t", set(), set()),
    (
        "INSERT INTO t SELECT * FROM ((a JOIN b) JOIN (c, d))",
        "db.t",
        {"db.a", "db.b", "db.c", "db.d"},
        set(),
    ),
    (
        "INSERT INTO t SELECT 1 FROM a WHERE MATCH (x) AGAINST ('FROM b')",
        "db.t",
        {"db.a"},
        {"against"},
    ),
]


@pytest.mark.parametrize(("sql", "writes", "reads", "calls"), CLEAR)
def test_a_plain_statement_is_read(sql: str, writes: str, reads: set[str], calls: set[str]) -> None:
    found = read(sql)
    assert found.writes == TableId.parse(writes)
    assert {str(table) for table in found.reads} == reads
    assert set(found.calls) == calls


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE a JOIN b ON a.x = b.x SET a.y = 1",
        "UPDATE a, b SET a.y = b.y",
        "UPDATE (SELECT 1) x, t SET t.a = 1",
        "DELETE a FROM a JOIN b",
        "DELETE FROM a, b USING a JOIN b",
        "DELETE FROM a USING a JOIN b",
        "WITH x AS (SELECT 1) UPDATE t SET a = 1",
        "INSERT INTO t TABLE v",
        "INSERT INTO t SELECT * FROM f(1) AS x",
        "INSERT INTO t SELECT * FROM JSON_TABLE('[]', '$' COLUMNS (x INT PATH '$')) AS j",
        "INSERT INTO t SELECT * FROM 'x'",
        "INSERT INTO t /*!80000 SELECT f() */ VALUES (1)",
        "INSERT INTO t\u00a0VALUES (1)",
        "LOAD DATA INFILE 'x' INTO TABLE t",
        "CALL p()",
        "SELECT f()",
        "INSERT",
        "DELETE FROM",
        "UPDATE",
    ],
)
def test_what_another_form_writes_is_not_guessed(sql: str) -> None:
    assert read(sql).writes is None


@pytest.mark.parametrize("family", ["mysql", "mariadb"])
def test_no_name_of_the_lists_can_be_a_stored_function(
    family: str, request: pytest.FixtureRequest, fresh_database: object
) -> None:
    """A server has its own function of each name, or lets nobody make one of it."""
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    database = fresh_database(server)  # type: ignore[operator]
    server.execute("SET GLOBAL log_bin_trust_function_creators = 1")
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:

        def error_of(sql: str) -> int:
            try:
                cursor.execute(sql)
            except pymysql.Error as error:
                return int(error.args[0])
            return 0

        others = {NO_FUNCTION, NO_LOADABLE_FUNCTION}
        unknown = {
            name
            for name in NATIVE_FUNCTIONS
            if {error_of(f"SELECT {name}()"), error_of(f"SELECT {name}(1,2,3,4,5,6,7)")} & others
        }
        assert not unknown
        made = {
            word
            for word in KEYWORDS_BEFORE_PARENTHESES
            if error_of(f"CREATE FUNCTION {word}() RETURNS INT RETURN 1") == 0
        }
        assert not made
