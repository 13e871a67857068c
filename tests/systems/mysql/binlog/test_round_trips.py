"""Invented tables and statements go through a real server, and the log gives back its tables."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import (
    CapturedLog,
    captured_log,
    changes_of,
    decoded,
    replayed,
)
from tests.systems.mysql.binlog.library_oracle import rows_by_the_library
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.selected_rows import LENIENT, differences
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, TypeCase, cases_for

ROUNDS = 6


def invent(source: random.Random, kind: str) -> tuple[list[TypeCase], list[str], str]:
    """Return some columns, statements that fill and change a table of them, and its DDL."""
    cases = source.sample(cases_for(kind), source.randrange(1, 14))
    columns = ", ".join(f"`{case.name}` {case.declared}" for case in cases)
    place = source.choice(("", " FIRST"))
    ddl = f"CREATE TABLE t ({columns}) DEFAULT CHARACTER SET utf8mb4"
    key = f"ALTER TABLE t ADD COLUMN id INT NOT NULL PRIMARY KEY{place}"

    def value(case: TypeCase) -> str:
        return "NULL" if source.random() < 0.3 else source.choice(case.values)[0]

    statements, fresh = [], iter(range(10_000))
    for _ in range(source.randrange(5, 25)):
        case = source.choice(cases)
        low, high = sorted((source.randrange(120), source.randrange(120)))
        match source.randrange(6):
            case 0 | 1 | 2:
                names = ", ".join(["id", *(f"`{each.name}`" for each in cases)])
                rows = ", ".join(
                    f"({', '.join([str(next(fresh)), *map(value, cases)])})"
                    for _ in range(source.choice((1, 1, 3, 30)))
                )
                statements.append(f"INSERT INTO t ({names}) VALUES {rows}")
            case 3 | 4:
                where = f"WHERE id BETWEEN {low} AND {high}"
                statements.append(f"UPDATE t SET `{case.name}` = {value(case)} {where}")
            case _:
                statements.append(f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 5}")
        if source.random() < 0.2:
            statements.append(source.choice(("BEGIN", "COMMIT", "FLUSH TABLES")))
    return cases, [ddl, key, *statements, "COMMIT"], place


def run(server: SqlServer, database: str, statements: list[str]) -> CapturedLog:
    connection = server.connect(database)
    with captured_log(server) as log:
        with connection, connection.cursor() as cursor:
            cursor.execute(LENIENT)
            cursor.execute("SET time_zone = '+00:00'")
            for statement in statements:
                cursor.execute(statement)
        return log()


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_invented_tables_and_statements_give_the_table_that_select_gives(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    for _ in range(ROUNDS):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        source = random.Random(seed)
        database = fresh_database(server)
        cases, statements, place = invent(source, kind)
        log = run(server, database, statements)
        identity = Column("id", mysql_type("int"), nullable=False)
        columns = [case.column for case in cases]
        columns.insert(0 if place else len(columns), identity)
        schema = TableSchema(TableId(database, "t"), tuple(columns), primary_key=("id",))
        log.chunk_bytes = source.choice((700, 4 << 20))
        batches = log.batches(schemas=lambda _table, schema=schema: schema)
        selected = select_rows(server, schema, order_by="id").to_pylist()
        found = [row for _, row in sorted(replayed(batches, "t").items())]
        assert differences(found, selected) == []


DATES = "CREATE TABLE z (id INT PRIMARY KEY, d DATE, t DATETIME(3), s TIMESTAMP(6) NULL)"
ROWS = (
    "INSERT INTO z VALUES (1, '2024-02-29', '2024-02-29 01:02:03.450', '2024-01-01 00:00:00')",
    "INSERT INTO z VALUES (2, '0000-00-00', '2024-00-15 00:00:00', '0000-00-00 00:00:00')",
    "INSERT INTO z VALUES (3, '2024-02-31', '0000-00-00 00:00:00', NULL)",
    "INSERT INTO z VALUES (4, NULL, NULL, '1970-01-01 00:00:01.5')",
)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_zero_and_partial_dates_follow_the_policy(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    log = run(server, database, [DATES, *ROWS])
    with pytest.raises(ValueRefusedError, match=r"table .*z, column d"):
        log.batches()
    decoder = log.decoder(zero_dates=ZeroDates.NULL)
    rows = replayed(decoded(decoder, log.chunks()), "z")
    assert [rows[2][name] for name in "dts"] == [None] * 3
    assert rows[3]["d"] is None
    assert rows[1]["d"] is not None
    assert decoder.nulled == {
        f"{database}.z.{name}": n for name, n in zip("dts", (2, 2, 1), strict=True)
    }
    texts = replayed(log.batches(zero_dates=ZeroDates.TEXT), "z")
    shown = server.execute(
        "SELECT id, CAST(d AS CHAR), CAST(t AS CHAR), CAST(s AS CHAR) FROM z", database=database
    )
    assert [tuple(texts[row[0]].values()) for row in shown] == list(shown)


@pytest.mark.parametrize("key", ["PRIMARY KEY (n, d)", "UNIQUE (n, d)"])
@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_a_zero_date_in_a_key_is_named_where_others_become_null(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str, key: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    table = f"CREATE TABLE k (n INT NOT NULL, d DATE NOT NULL, e DATE, {key})"
    log = run(server, database, [table, "INSERT INTO k VALUES (1, '2024-01-01', '0000-00-00')"])
    log.batches(zero_dates=ZeroDates.NULL)
    log = run(server, database, ["INSERT INTO k VALUES (1, '0000-00-00', '2024-01-01')"])
    with pytest.raises(ValueRefusedError, match=r"table .*k, column d"):
        log.batches(zero_dates=ZeroDates.NULL)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_the_library_reads_the_same_rows_of_a_mixed_log(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    statements = [
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT UNSIGNED, s VARCHAR(30), d DECIMAL(20,4))",
        "INSERT INTO t VALUES (1, 18446744073709551615, 'é', -1.5), (2, NULL, NULL, NULL)",
        "UPDATE t SET s = CONCAT(id, 'x'), id = id + 10",
        "BEGIN",
        "INSERT INTO t VALUES (3, 3, '', 0)",
        "DELETE FROM t WHERE id = 12",
        "COMMIT",
        "ALTER TABLE t ADD COLUMN w DATETIME(3)",
        "INSERT INTO t VALUES (4, 4, 'w', 4, '2024-02-29 12:34:56.789')",
    ]
    log = run(server, fresh_database(server), statements)
    ours = [
        change
        for each in changes_of(log.batches(), "t")
        for change in zip(
            each.op.to_pylist(), each.before.to_pylist(), each.after.to_pylist(), strict=True
        )
    ]
    assert [(op, _there(before), _there(after)) for op, before, after in ours] == (
        rows_by_the_library(log)
    )


def _there(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a side of a change, None where it has none: its key is NULL."""
    return None if row["id"] is None else row
