"""Every character of every charset arrives, and bytes that are none are refused, by both ways."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.charsets import is_total, to_utf8
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import captured_log, replayed
from tests.systems.mysql.wire.raw_select import select_rows

CODE_POINTS = (
    *range(1, 0xD800),
    *range(0xE000, 0xFFFD),
    *range(0x1F300, 0x1F700),
    *range(0x20000, 0x20400),
    0x10FFFF,
)
REPLACED = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture(params=["mysql_server", "mariadb_server"], scope="module")
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def characters(server: SqlServer) -> dict[str, list[tuple[bytes, str]]]:
    """Return each charset's characters as the server has them: its bytes, and what they mean."""
    connection: Any = server.connect()
    found = {}
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE mysql.points (c CHAR(1) CHARACTER SET utf8mb4)")
            for first in range(0, len(CODE_POINTS), 4000):
                some = CODE_POINTS[first : first + 4000]
                values = ",".join(f"(_utf8mb4 x'{chr(each).encode().hex()}')" for each in some)
                cursor.execute(f"INSERT INTO mysql.points VALUES {values}")
            cursor.execute("SHOW CHARACTER SET")
            for charset in sorted(row[0] for row in cursor.fetchall() if row[0] != "binary"):
                there = f"CONVERT(c USING {charset})"
                cursor.execute(
                    f"SELECT HEX({there}), HEX(CONVERT({there} USING utf8mb4)) FROM mysql.points "
                    f"WHERE BINARY CONVERT({there} USING utf8mb4) = BINARY c"
                )
                found[charset] = [
                    (bytes.fromhex(raw), bytes.fromhex(text).decode())
                    for raw, text in cursor.fetchall()
                ]
    finally:
        connection.close()
    return found


def test_every_character_of_every_charset_is_the_servers(
    characters: dict[str, list[tuple[bytes, str]]],
) -> None:
    assert len(characters) >= 38
    for charset, pairs in characters.items():
        raw, texts = zip(*pairs, strict=True)
        assert to_utf8(pa.array(raw, pa.binary()), charset).to_pylist() == list(texts), charset


def test_where_the_server_has_no_character_neither_have_we(server: SqlServer) -> None:
    """Two bytes reach all codes but eucjpms' and gb18030's longer ones."""
    connection: Any = server.connect()
    wrong: list[tuple[str, str, str]] = []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW CHARACTER SET")
            sets = {row[0]: int(row[-1]) for row in cursor.fetchall() if row[0] != "binary"}
            for charset, longest in sets.items():
                codes = [bytes([byte]) for byte in range(1, 256)]
                if longest in {2, 3} and charset not in {"utf8mb3", "utf8", "ucs2"}:
                    pairs = [(a, b) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
                    codes = [bytes(pair) for pair in pairs]
                elif longest > 1:
                    continue
                wanted = ", ".join(
                    f"HEX(CONVERT(CONVERT(x'{code.hex()}' USING {charset}) USING utf8mb4))"
                    for code in codes
                )
                for code, text in zip(codes, _selected(cursor, wanted), strict=True):
                    if text is None:
                        continue  # malformed: no column holds it
                    shown = bytes.fromhex(text).decode()
                    if (ours := _ours(code, charset)) != _meaning(shown, code):
                        wrong.append((charset, code.hex(), f"{shown!r}, ours {ours!r}"))
    finally:
        connection.close()
    assert wrong == []


def _selected(cursor: Any, expressions: str) -> list[str | None]:
    found: list[str | None] = []
    every = expressions.split(", ")
    for first in range(0, len(every), 1000):
        cursor.execute(f"SELECT {', '.join(every[first : first + 1000])}")
        found.extend(cursor.fetchone())
    return found


def _meaning(shown: str, code: bytes) -> str | None:
    """Return the character the server knows; what it puts in place of one is none."""
    if REPLACED in shown or ("?" in shown and code != b"?"):
        return None
    return shown


def _ours(code: bytes, charset: str) -> str | None:
    try:
        text: str = to_utf8(pa.array([code], pa.binary()), charset)[0].as_py()
    except ValueRefusedError:
        return None
    return text


UNWRITTEN = {
    "cp1250": "81",
    "cp1251": "98",
    "greek": "A4",
    "hebrew": "A1",
    "tis620": "A0",
    "sjis": "8540",
    "big5": "A2CC",
}


@pytest.mark.parametrize("charset", UNWRITTEN)
@pytest.mark.parametrize("kind", ["VARCHAR(9)", "CHAR(9)", "TEXT"])
def test_bytes_without_a_character_are_refused_by_select_and_by_log(
    server: SqlServer, fresh_database: Any, charset: str, kind: str
) -> None:
    assert not is_total(charset)
    database = fresh_database(server)
    declared = mysql_type(kind.partition("(")[0].lower(), length=9, charset=charset)
    columns = (Column("id", mysql_type("int"), nullable=False), Column("v", declared))
    schema = TableSchema(TableId(database, "t"), columns, primary_key=("id",))
    with captured_log(server) as log:
        ddl = f"CREATE TABLE t (id INT PRIMARY KEY, v {kind} CHARACTER SET {charset})"
        server.execute(ddl, database=database)
        server.execute(f"INSERT INTO t VALUES (1, _{charset} x'41')", database=database)
        captured = log()
    assert select_rows(server, schema).to_pylist() == [{"id": 1, "v": "A"}]
    assert replayed(captured.batches(schemas=lambda _: schema), "t") == {1: {"id": 1, "v": "A"}}
    with captured_log(server) as log:
        bad = f"INSERT INTO t VALUES (7, _{charset} x'{UNWRITTEN[charset]}')"
        server.execute(bad, database=database)
        captured = log()
    with pytest.raises(ValueRefusedError, match=f"{charset} has no character") as refused:
        select_rows(server, schema)
    assert "column v, key id='7'" in refused.value.where
    with pytest.raises(ValueRefusedError, match=f"{charset} has no character"):
        captured.batches(schemas=lambda _: schema)


@pytest.mark.parametrize("charset", ["cp1250", "eucjpms", "ucs2", "gb2312"])
def test_members_of_an_enum_and_a_set_arrive_from_any_charset(
    server: SqlServer, fresh_database: Any, charset: str
) -> None:
    database = fresh_database(server)
    names = ("a", "Ж" if charset == "gb2312" else "č" if charset == "cp1250" else "ア")
    quoted = ", ".join(f"'{name}'" for name in names)
    server.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({quoted}), s SET({quoted})) "
        f"CHARACTER SET {charset}",
        database=database,
    )
    server.execute(
        f"INSERT INTO t VALUES (1, '{names[1]}', '{names[0]},{names[1]}'), (2, NULL, '')",
        database=database,
    )
    columns = (
        Column("id", mysql_type("int"), nullable=False),
        Column("e", mysql_type("enum", charset=charset, members=names)),
        Column("s", mysql_type("set", charset=charset, members=names)),
    )
    schema = TableSchema(TableId(database, "t"), columns, primary_key=("id",))
    assert select_rows(server, schema, order_by="id").to_pylist() == [
        {"id": 1, "e": names[1], "s": ",".join(names)},
        {"id": 2, "e": None, "s": ""},
    ]
