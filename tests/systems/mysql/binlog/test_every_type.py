"""SELECT and the log decode to the same value, for every type of both servers."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import captured_log, rows_after
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.selected_rows import differences, fill_every_type
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, every_type_schema, expected_rows


def check(server: SqlServer, database: str, kind: str) -> None:
    schema = every_type_schema(TableId(database, "every_type"), kind)
    with captured_log(server) as log:
        fill_every_type(server, database, kind)
        batches = log().batches(schemas=lambda _table: schema)
    found = rows_after(batches, "every_type")
    selected = select_rows(server, schema, order_by="id")
    canonical = expected_rows(kind)
    assert differences(found, selected.to_pylist()) == []
    if kind == MYSQL:
        assert differences(found, canonical) == []
    types = batches[-1].tables[0].after.schema
    assert [(f.name, f.type) for f in types] == [(f.name, f.type) for f in selected.schema]


def test_select_and_log_of_mysql_decode_to_the_same_values(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    check(mysql_server, mysql_database, MYSQL)


def test_select_and_log_of_mariadb_decode_to_the_same_values(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    check(mariadb_server, mariadb_database, MARIADB)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
@pytest.mark.parametrize("between", ["geometry", "longblob", "json", "enum('a')", "binary(4)"])
def test_a_charset_belongs_to_its_column_whatever_stands_before_it(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str, between: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    with captured_log(server) as log:
        server.execute(
            f"CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB, x {between}, v VARCHAR(9) CHARACTER "
            "SET latin1, w TEXT CHARACTER SET utf8mb4, y LONGBLOB)",
            database=database,
        )
        server.execute(
            "INSERT INTO t VALUES (1, x'ff', NULL, '\u20ac', 'é', x'fe')", database=database
        )
        batches = log().batches()
    (row,) = rows_after(batches, "t")
    assert list(row.values()) == [1, b"\xff", None, "\u20ac", "é", b"\xfe"]
