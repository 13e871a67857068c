"""Types only MariaDB has decode to the text that it prints."""

from __future__ import annotations

import ipaddress
import random
import uuid

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from tests.columnar.binlog.captured import captured_log, replayed, rows_after
from tests.servers.given import SqlServer


def check(server: SqlServer, database: str, kind: str, values: list[str]) -> None:
    table = TableId(database, "t")
    columns = (Column("id", ColumnType("int")), Column("v", ColumnType(kind)))
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
    for _ in range(40):
        parts = [source.choice((0, 0, source.randrange(1 << 16))) for _ in range(8)]
        number = sum(part << 16 * place for place, part in enumerate(parts))
        values.append(str(ipaddress.IPv6Address(number)))
    check(mariadb_server, mariadb_database, "inet6", values)


def test_inet4_reads_as_the_server_prints_it(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    check(mariadb_server, mariadb_database, "inet4", ["0.0.0.0", "1.2.0.0", "255.255.255.255"])


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
