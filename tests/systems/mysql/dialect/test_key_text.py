"""Keys as people write them are the keys that the servers give, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyPart, KeyRange
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.key_text import key_of
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import BOTH_FAMILIES

VALUES = {
    "TINYINT": ["-128", "127", "+7", "0"],
    "TINYINT UNSIGNED": ["0", "255"],
    "MEDIUMINT": ["-8388608", "8388607"],
    "INT": ["-2147483648", "2147483647", "007"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "BIGINT UNSIGNED": ["0", "18446744073709551615"],
    "YEAR": ["0000", "1901", "2155"],
    "DECIMAL(5,2)": ["-999.99", "999.99", "1", ".5", "-0", "1.5", "1.50000", "000123.4"],
    "DECIMAL(65,30)": [
        "12345678901234567890123456789012345.123456789012345678901234567891",
        "-" + "9" * 35 + "." + "9" * 30,
    ],
    "DATE": ["1000-01-01", "9999-12-31", "2024-02-29"],
    "DATETIME": ["2026-01-02 03:04:05", "2026-01-02T03:04:06", "2026-01-03", "1000-01-01"],
    "DATETIME(3)": ["2026-01-02 03:04:05.1", "2026-01-02 03:04:05.120000", "2026-01-03"],
    "TIMESTAMP(6)": ["1970-01-01 00:00:01", "2038-01-19 03:14:07.000001"],
    "BINARY(4)": ["0x", "0x00ff", "0XDEADBEEF"],
    "VARBINARY(4)": ["0x", "0x00", "0x00FF0a"],
}


@pytest.mark.parametrize("family", BOTH_FAMILIES)
def test_what_people_write_is_the_key_that_the_server_gives(
    family: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> None:
    server: SqlServer = request.getfixturevalue(family)
    database = fresh_database(server)
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        for number, (kind, texts) in enumerate(VALUES.items()):
            table = TableId(database, f"t{number}")
            columns = f"n INT, k {kind} NOT NULL, PRIMARY KEY (k, n)"
            query(connection, f"CREATE TABLE {table} ({columns})")
            for place, text in enumerate(texts):
                value = text if text[:1] == "0" and text[1:2] in "xX" and text[1:] else f"'{text}'"
                empty = value in {"0x", "0X"}
                value = "x''" if empty else value.replace("0X", "0x")
                query(connection, f"INSERT INTO {table} VALUES ({place}, {value})")
            found = dict(query(connection, f"SELECT n, k FROM {table}"))
            schema = read_schema(connection, table)
            for place, text in enumerate(texts):
                (part,) = key_of(schema, [text])
                assert (type(part), part) == (type(found[place]), found[place]), f"{kind} {text}"
                assert str(part) == str(found[place])
                first, behind = KeyRange((part, place), None), KeyRange((part, place + 1), None)
                ((with_it,),) = rows(connection, table, first)
                ((without,),) = rows(connection, table, behind)
                assert with_it == without + 1, f"{kind} {text}"


def rows(connection: object, table: TableId, keys: KeyRange) -> list[tuple[int]]:
    condition = range_predicate(("k", "n"), keys)
    found = query(connection, f"SELECT COUNT(*) FROM {table} WHERE {condition}")  # type: ignore[arg-type]
    return [(int(row[0]),) for row in found]


def schema_of(*types: ColumnType) -> TableSchema:
    columns = tuple(Column(f"k{number}", each, nullable=False) for number, each in enumerate(types))
    names = tuple(column.name for column in columns)
    return TableSchema(TableId("shop", "orders"), columns, names)


INT = mysql_type("int")
BYTES = mysql_type("varbinary", length=4)


@pytest.mark.parametrize(
    ("texts", "key"),
    [(["5"], (5,)), (["5", "0x00"], (5, b"\0")), (["5", "0x"], (5, b""))],
)
def test_a_key_may_be_written_in_part(texts: list[str], key: Key) -> None:
    assert key_of(schema_of(INT, BYTES), texts) == key


@pytest.mark.parametrize("texts", [[], ["1", "0x00", "7"]])
def test_more_parts_than_the_key_has_are_refused_with_its_columns(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="the key has 2: k0, k1"):
        key_of(schema_of(INT, BYTES), texts)


WRONG: list[tuple[ColumnType, str, str]] = [
    (INT, "", "whole number"),
    (INT, " 1", "whole number"),
    (INT, "1\n", "whole number"),
    (mysql_type("date"), "2026-01-01 ", "YYYY-MM-DD"),
    (INT, "1.0", "whole number"),
    (INT, "1e3", "whole number"),
    (INT, "٣", "whole number"),
    (INT, "2147483648", "range"),
    (mysql_type("int", unsigned=True), "-1", "range"),
    (mysql_type("year"), "5", "range"),
    (mysql_type("decimal", precision=5, scale=2), "1.234", "2 digits"),
    (mysql_type("decimal", precision=5, scale=2), "1000", "range"),
    (mysql_type("decimal", precision=5, scale=2), "1e2", "decimal number"),
    (mysql_type("decimal", precision=5, scale=2), "NaN", "decimal number"),
    (mysql_type("date"), "2026-02-30", "no such day"),
    (mysql_type("date"), "0000-00-00", "day"),
    (mysql_type("date"), "2026-1-1", "YYYY-MM-DD"),
    (mysql_type("date"), "2026-01-01 00:00:00", "YYYY-MM-DD"),
    (mysql_type("datetime"), "2026-01-01 24:00:00", "no such time"),
    (mysql_type("datetime"), "2026-01-01 00:00:00.5", "0 digits"),
    (mysql_type("datetime", fraction=3), "2026-01-01 00:00:00.0005", "3 digits"),
    (mysql_type("datetime"), "2026-01-01 00:00:00+02:00", "YYYY-MM-DD"),
    (mysql_type("timestamp"), "1970-01-01 00:00:00", "range"),
    (mysql_type("timestamp"), "2040-01-01", "range"),
    (BYTES, "00ff", "0x"),
    (BYTES, "0x0", "0x"),
    (BYTES, "0x0011223344", "4 bytes"),
    (mysql_type("varchar", length=9, collation="utf8mb4_bin"), "a", "server's own"),
    (mysql_type("enum", members=("a",)), "a", "server's own"),
    (INT, "1" * 9000, "too long"),
]


@pytest.mark.parametrize(("kind", "text", "why"), WRONG)
def test_what_is_not_plainly_a_value_of_the_column_is_refused_by_name(
    kind: ColumnType, text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=rf"is no {kind.name} for k0: .*{why}"):
        key_of(schema_of(kind), [text])


def test_a_bound_has_the_type_that_code_compares_by() -> None:
    parts: list[KeyPart] = [*key_of(schema_of(INT), ["1"]), *key_of(schema_of(BYTES), ["0x01"])]
    assert [type(part) for part in parts] == [int, bytes]
