"""SELECT and the log decode to the same value, for every type of both servers."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import TableId
from tests.columnar.binlog.captured import captured_log, rows_after
from tests.columnar.raw_select import select_rows
from tests.columnar.test_select_decoding import differences, fill_every_type
from tests.columnar.type_cases import MARIADB, MYSQL, every_type_schema, expected_rows
from tests.servers.given import SqlServer


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
