"""Rows selected from real servers decode to the value model's canonical values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pymysql
import pytest

from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.selected_rows import differences, fill_every_type
from tests.systems.mysql.wire.type_cases import (
    MARIADB,
    MYSQL,
    every_type_schema,
    expected_rows,
)


def test_every_mysql_type_decodes_to_its_canonical_value(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = fill_every_type(mysql_server, mysql_database, MYSQL)
    rows = select_rows(mysql_server, every_type_schema(table, MYSQL), order_by="id")
    assert differences(rows.to_pylist(), expected_rows(MYSQL)) == []


def test_every_mariadb_type_decodes_to_its_canonical_value(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = fill_every_type(mariadb_server, mariadb_database, MARIADB)
    rows = select_rows(mariadb_server, every_type_schema(table, MARIADB), order_by="id")
    assert differences(rows.to_pylist(), expected_rows(MARIADB)) == []


def _charset_table(server: SqlServer, database: str, charset: str) -> TableSchema:
    """Store every single byte that is a character, and what all of the charset's letters become."""
    table = TableId(database, f"in_{charset}")
    width = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}.get(charset, 1)
    order = "little" if charset == "utf16le" else "big"
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
            cursor.execute(
                f"CREATE TABLE {quote_table(table)} "
                f"(id int primary key, c varchar(9) CHARACTER SET {charset})"
            )
            cursor.execute("START TRANSACTION")
            for code in range(32, 256):
                data = code.to_bytes(width, order)  # type: ignore[arg-type]
                with suppress(pymysql.err.MySQLError):  # not a character of this charset
                    cursor.execute(
                        f"INSERT INTO {quote_table(table)} VALUES "
                        f"({code}, _{charset} x'{data.hex()}')"
                    )
            for code, text in (
                (1000, "é"),
                (1001, "汉字"),
                (1002, "漢字表"),
                (1003, "ж"),
                (1004, "한"),
            ):
                with suppress(pymysql.err.MySQLError):
                    cursor.execute(f"INSERT INTO {quote_table(table)} VALUES ({code}, %s)", (text,))
            # a column takes bytes that are no character, too: those are refused, see test_charsets
            cursor.execute(
                f"DELETE FROM {quote_table(table)} WHERE id <> ord('?') AND "
                "HEX(CONVERT(c USING utf8mb4)) IN ('3F', 'EFBFBD')"
            )
            cursor.execute("COMMIT")
    finally:
        connection.close()
    columns = (
        Column("id", mysql_type("int")),
        Column("c", mysql_type("varchar", length=9, charset=charset)),
    )
    return TableSchema(table, columns, ("id",))


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_text_of_every_charset_of_a_server_is_what_the_server_converts_it_to(
    kind: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    charsets = {row[0] for row in server.execute("SHOW CHARACTER SET")} - {"binary"}
    checked = 0
    for charset in sorted(charsets):
        schema = _charset_table(server, database, charset)
        decoded = select_rows(server, schema, order_by="id").to_pylist()
        told = server.execute(
            f"SELECT id, HEX(CONVERT(c USING utf8mb4)) FROM {quote_table(schema.table)} ORDER BY id"
        )
        found = [(row["id"], row["c"].encode().hex().upper()) for row in decoded]
        assert found == [tuple(row) for row in told], charset
        checked += len(found)
    print(f"{len(charsets)} charsets, {checked} texts")
    assert len(charsets) >= 39
    assert checked > 90 * len(charsets)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_invisible_columns_are_read_and_generated_ones_are_not(
    kind: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    table = TableId(fresh_database(server), "odd")
    server.execute(
        f"CREATE TABLE {quote_table(table)} (id bigint unsigned primary key auto_increment "
        "INVISIBLE, a int, b int GENERATED ALWAYS AS (a + 1) STORED, "
        "`c ``d` int GENERATED ALWAYS AS (a + 2) VIRTUAL, `e.f` int INVISIBLE)"
    )
    server.execute(f"INSERT INTO {quote_table(table)} (id, a, `e.f`) VALUES (7, 1, 2)")
    columns = (
        Column("id", mysql_type("bigint", unsigned=True), invisible=True),
        Column("a", mysql_type("int")),
        Column("b", mysql_type("int"), generated=True),
        Column("c `d", mysql_type("int"), generated=True),
        Column("e.f", mysql_type("int"), invisible=True),
    )
    rows = select_rows(server, TableSchema(table, columns, ("id",)))
    assert rows.to_pylist() == [{"id": 7, "a": 1, "e.f": 2}]
