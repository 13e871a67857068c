"""Types only MariaDB has decode to the text that it prints."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import captured_log, replayed, rows_after


def check(server: SqlServer, database: str, kind: str, values: list[str]) -> None:
    table = TableId(database, "t")
    columns = (Column("id", mysql_type("int")), Column("v", mysql_type(kind)))
    schema = TableSchema(table, columns, primary_key=("id",))
    with captured_log(server) as log:
        server.execute(f"CREATE TABLE t (id int primary key, v {kind})", database=database)
        rows = ", ".join(f"({i}, '{value}')" for i, value in enumerate(values))
        server.execute(f"INSERT INTO t VALUES {rows}, (-1, NULL)", database=database)
        batches = log().batches(schemas=lambda _table: schema)
    shown = server.execute("SELECT id, CAST(v AS CHAR) FROM t", database=database)
    found = {row["id"]: row["v"] for row in rows_after(batches, "t")}
    assert found == dict(shown)


def test_uuids_of_all_versions_read_as_the_server_prints_them(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    values = [
        str(uuid.UUID(int=source.getrandbits(128), version=version))
        for version in (1, 2, 3, 4, 5)
        for _ in range(4)
    ]
    ordered = "01890a5d-ac96-{}-9234-000000000000"
    values += [ordered.format(f"{version:x}774") for version in range(16)]
    values += ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
    check(mariadb_server, mariadb_database, "uuid", values)


def test_inet6_reads_as_the_server_prints_it(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    values = ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "1::", "2001:db8:0:0:1:0:0:1", "::ffff"]
    values += ["1:0:0:2::3", "0:0:1::", "::ffff:0:0", "::0.1.0.0", "::1:0", "fe80::"]
    values += ["::ffff:255.255.255.255", "::ffff:0.0.0.0", "::255.255.255.255", "::0.0.1.0"]
    values += ["::fffe:1.2.3.4", "::1:ffff:1.2.3.4", "1::ffff:1.2.3.4", "::ffff:1:2:3"]
    values += ["ffff:" * 7 + "ffff", "0:1:" * 3 + "0:1", "1:0:" * 3 + "1:0"]
    parts = (0, 0, 0, 1, 0xF, 0x10, 0xFF, 0x100, 0xFFF, 0x1000, 0xFFFF)
    groups = [[source.choice(parts) for _ in range(8)] for _ in range(2000)]
    # each way in which groups can be zero, and twice the ends that may be an IPv4 address
    groups += [
        [zeros >> at & 1 and source.choice(parts[3:]) for at in range(8)] for zeros in range(256)
    ]
    for head in (0, 0xFFFF):
        groups += [[0] * 5 + [head] + [source.choice(parts) for _ in range(2)] for _ in range(200)]
    values += [":".join(f"{part:x}" for part in each) for each in groups]
    check(mariadb_server, mariadb_database, "inet6", values)


def test_inet4_reads_as_the_server_prints_it(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    parts = (0, 1, 9, 10, 99, 100, 101, 199, 200, 255)
    values = [".".join(str(source.choice(parts)) for _ in range(4)) for _ in range(300)]
    values += ["0.0.0.0", "1.2.0.0", "255.255.255.255"]
    check(mariadb_server, mariadb_database, "inet4", values)


@pytest.mark.parametrize("wrapped", ["OFF", "ON"])
def test_values_of_compressed_columns_read_as_select_shows_them(
    mariadb_server: SqlServer, mariadb_database: str, wrapped: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    sizes = [
        ("a", "VARCHAR(300) COMPRESSED CHARACTER SET latin1", 300),
        ("b", "TEXT COMPRESSED CHARACTER SET utf8mb4", 16000),
        ("c", "BLOB COMPRESSED", 60000),
        ("d", "VARCHAR(20) CHARACTER SET utf8mb4", 20),
        ("e", "VARBINARY(255) COMPRESSED", 255),
        ("f", "VARCHAR(254) COMPRESSED CHARACTER SET latin2", 254),
        ("g", "TINYTEXT COMPRESSED CHARACTER SET utf8mb4", 60),
        ("h", "LONGBLOB COMPRESSED", 200000),
        ("i", "MEDIUMTEXT COMPRESSED CHARACTER SET cp1251", 100000),
    ]
    letters = {"latin1": "a\u20acé", "latin2": "aŘá", "cp1251": "aЖя"}

    def value(declared: str, size: int) -> Any:
        length = source.choice((0, 1, 99, 100, 101, size, source.randrange(size + 1), None))
        if length is None:
            return None
        length = min(length, size)
        if "B" in declared.split()[0]:
            return source.randbytes(length) if source.random() < 0.5 else b"\0" * length
        known = letters.get(declared.rsplit(" ", maxsplit=1)[-1], "aé\U0001f600")
        return "".join(source.choices(known, k=length))

    names = [name for name, _, _ in sizes]
    columns = ", ".join(f"{name} {declared}" for name, declared, _ in sizes)
    connection = mariadb_server.connect(mariadb_database)
    with captured_log(mariadb_server) as log:
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
            cursor.execute(f"SET column_compression_zlib_wrap = {wrapped}")
            for number in range(30):
                marks = ", ".join(["%s"] * len(sizes))
                row = [value(declared, size) for _, declared, size in sizes]
                cursor.execute(f"INSERT INTO t VALUES ({number}, {marks})", row)
            cursor.execute("UPDATE t SET a = b'', c = REPEAT('c', 5000), d = 'x' WHERE id < 5")
            cursor.execute("DELETE FROM t WHERE id > 27")
        batches = log().batches()
    shown = mariadb_server.execute(
        f"SELECT id, {', '.join(names)} FROM t ORDER BY id", database=mariadb_database
    )
    found = [tuple(row.values()) for _, row in sorted(replayed(batches, "t").items())]
    assert found == list(shown)
    kinds = batches[-1].tables[0].after.schema
    assert [str(field.type) for field in kinds][1:4] == ["string", "string", "binary"]


@pytest.mark.parametrize("explicit", [False, True])
def test_history_rows_never_take_the_place_of_current_ones(
    mariadb_server: SqlServer,
    mariadb_database: str,
    explicit: bool,
) -> None:
    table = TableId(mariadb_database, "t")
    period = (
        ", a TIMESTAMP(6) GENERATED ALWAYS AS ROW START, b TIMESTAMP(6) GENERATED ALWAYS AS "
        "ROW END, PERIOD FOR SYSTEM_TIME (a, b)"
    )
    ddl = f"CREATE TABLE t (id INT PRIMARY KEY, v INT{period if explicit else ''})"
    ddl += " WITH SYSTEM VERSIONING"
    schema = TableSchema(table, (), primary_key=("id",), create_statement=ddl)
    with captured_log(mariadb_server) as log:
        mariadb_server.execute(ddl, database=mariadb_database)
        for statement in (
            "INSERT INTO t (id, v) VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
            "UPDATE t SET v = v + 10 WHERE id <= 2",
            "UPDATE t SET v = v + 10 WHERE id <= 2",
            "DELETE FROM t WHERE id IN (1, 3)",
            "INSERT INTO t (id, v) VALUES (3, 33)",
            "UPDATE t SET id = 40 WHERE id = 4",
            "DELETE HISTORY FROM t",
        ):
            mariadb_server.execute(statement, database=mariadb_database)
        captured = log()
    batches = captured.batches(schemas=lambda _table: schema)
    shown = mariadb_server.execute("SELECT id, v FROM t", database=mariadb_database)
    found = replayed(batches, "t")
    assert {key: row["v"] for key, row in found.items()} == dict(shown)
    assert list(found[2]) == ["id", "v", *(["a", "b"] if explicit else [])]
    with pytest.raises(UnsupportedTableError, match="versioned"):
        captured.batches()
