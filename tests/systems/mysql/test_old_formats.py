"""TIME, DATETIME and TIMESTAMP in the formats of before MySQL 5.6 have the values SELECT gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.errors import (
    IntegrityError,
    UnknownTypeError,
    ValueRefusedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import CapturedLog, captured_log, decoded, replayed
from tests.systems.mysql.read_logs import position_of, reading
from tests.systems.mysql.sessions import source
from tests.systems.mysql.wire.raw_select import select_rows

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import SchemaSource

OLD = """CREATE TABLE old (
    id INT PRIMARY KEY, t TIME, note VARCHAR(300) CHARACTER SET greek, d DATETIME,
    u UUID, s TIMESTAMP NULL, n DECIMAL(20,4), e ENUM('x','ж') CHARACTER SET koi8r, b BINARY(4)
)"""
ROWS = (
    "INSERT INTO old VALUES (1, '-12:34:56', 'αβγ', '2024-02-29 01:02:03', "
    "'123e4567-e89b-12d3-a456-426655440000', '2024-01-01 00:00:00', -1.5, 'ж', x'0100')",
    "INSERT INTO old VALUES (2, '838:59:59', REPEAT('β', 300), '1000-01-01', NULL, "
    "'2038-01-19 03:14:07', 0, NULL, NULL), (3, '-838:59:59', '', '9999-12-31 23:59:59', NULL, "
    "'1970-01-01 00:00:01', NULL, 'x', x'ff'), (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "UPDATE old SET t = '00:00:01', id = id + 10 WHERE id IN (2, 4)",
    "DELETE FROM old WHERE id = 3",
)


@pytest.fixture
def old_formats(mariadb_server: SqlServer) -> Iterator[SqlServer]:
    mariadb_server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        yield mariadb_server
    finally:
        mariadb_server.execute("SET GLOBAL mysql56_temporal_format = ON")


def logged(server: SqlServer, database: str, *statements: str) -> CapturedLog:
    with captured_log(server) as log:
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4")
            cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
            for statement in statements:
                cursor.execute(statement)
        return log()


def schema_of(server: SqlServer, database: str, table: str) -> TableSchema:
    named = TableId(database, table)
    with source(server) as session:
        return read_schemas(session, [named])[named]


def only(schema: TableSchema) -> SchemaSource:
    return lambda table: schema if table == schema.table else None


def test_old_formats_give_what_select_gives(old_formats: SqlServer, fresh_database: Any) -> None:
    database = fresh_database(old_formats)
    log = logged(old_formats, database, OLD, *ROWS)
    old_formats.execute("SET GLOBAL mysql56_temporal_format = ON")
    more = logged(old_formats, database, "UPDATE old SET t = '-00:00:02' WHERE id = 1", "DO 1")
    schema = schema_of(old_formats, database, "old")
    batches = [batch for each in (log, more) for batch in each.batches(schemas=only(schema))]
    found = [row for _, row in sorted(replayed(batches, "old").items())]
    assert found == select_rows(old_formats, schema, order_by="id").to_pylist()


def invented(source: random.Random) -> str:
    """Return a row's TIME, DATETIME and TIMESTAMP, each anywhere in its range or NULL."""
    hours, minutes, seconds = source.randrange(839), source.randrange(60), source.randrange(60)
    sign = source.choice(("", "-"))
    day = date(1000, 1, 1) + timedelta(days=source.randrange(3_287_182))
    clock = f"{source.randrange(24):02d}:{minutes:02d}:{seconds:02d}"
    values = (
        f"'{sign}{hours}:{minutes:02d}:{seconds:02d}'",
        f"'{day} {clock}'",
        f"FROM_UNIXTIME({source.randrange(1, 1 << 31)})",
    )
    return ", ".join(value if source.random() < 0.9 else "NULL" for value in values)


def test_invented_values_of_old_formats_are_those_that_select_gives(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    database = fresh_database(old_formats)
    rows = ", ".join(f"({number}, {invented(source)})" for number in range(2000))
    log = logged(
        old_formats,
        database,
        "CREATE TABLE i (id INT PRIMARY KEY, t TIME, d DATETIME, s TIMESTAMP NULL)",
        f"INSERT INTO i VALUES {rows}",
        "UPDATE i SET t = d, id = id + 5000 WHERE id % 7 = 0",
    )
    schema = schema_of(old_formats, database, "i")
    found = [row for _, row in sorted(replayed(log.batches(schemas=only(schema)), "i").items())]
    assert found == select_rows(old_formats, schema, order_by="id").to_pylist()


DATES = (
    "CREATE TABLE z (id INT PRIMARY KEY, d DATETIME, s TIMESTAMP NULL)",
    "INSERT INTO z VALUES (1, '2024-02-29 01:02:03', '2024-01-01 00:00:00'), "
    "(2, '0000-00-00 00:00:00', '0000-00-00 00:00:00'), (3, '2024-02-31 10:00:00', NULL)",
)


def test_zero_dates_of_old_formats_follow_the_policy(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(old_formats)
    log = logged(old_formats, database, *DATES)
    known = {"schemas": only(schema_of(old_formats, database, "z"))}
    with pytest.raises(ValueRefusedError, match=r"table .*z, column d"):
        log.batches(**known)
    decoder = log.decoder(zero_dates=ZeroDates.NULL, **known)
    rows = replayed(decoded(decoder, log.chunks()), "z")
    assert [rows[number]["d"] is None for number in (1, 2, 3)] == [False, True, True]
    assert decoder.nulled == {f"{database}.z.d": 2, f"{database}.z.s": 1}
    texts = replayed(log.batches(zero_dates=ZeroDates.TEXT, **known), "z")
    shown = old_formats.execute(
        "SELECT id, CAST(d AS CHAR), CAST(s AS CHAR) FROM z", database=database
    )
    assert [tuple(texts[row[0]].values()) for row in shown] == list(shown)


def test_a_zero_date_of_an_old_format_in_a_key_is_named(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(old_formats)
    table = "CREATE TABLE k (n INT, d DATETIME, PRIMARY KEY (n, d))"
    log = logged(old_formats, database, table, "INSERT INTO k VALUES (1, '0000-00-00 00:00:00')")
    schema = schema_of(old_formats, database, "k")
    with pytest.raises(ValueRefusedError, match=r"table .*k, column d"):
        log.batches(zero_dates=ZeroDates.NULL, schemas=only(schema))


@pytest.mark.parametrize("declared", ["DATETIME(3)", "TIME(1)", "TIMESTAMP(6) NULL"])
def test_a_fraction_in_an_old_format_is_refused_by_name(
    old_formats: SqlServer, fresh_database: Any, declared: str
) -> None:
    database = fresh_database(old_formats)
    create = f"CREATE TABLE f (id INT PRIMARY KEY, v {declared})"
    log = logged(old_formats, database, create, "INSERT INTO f VALUES (1, NULL)")
    schema = schema_of(old_formats, database, "f")
    with pytest.raises(UnknownTypeError, match=r"fraction.*f, column v"):
        log.batches(schemas=only(schema))


def test_an_old_format_is_refused_where_the_catalogue_does_not_know_the_table(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    log = logged(old_formats, fresh_database(old_formats), *DATES)
    with pytest.raises(UnknownTypeError, match=r"fraction"):
        log.batches()


def test_a_versioned_table_with_old_formats_keeps_only_its_current_rows(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(old_formats)
    log = logged(
        old_formats,
        database,
        "CREATE TABLE v (id INT PRIMARY KEY, d DATETIME, t TIME) WITH SYSTEM VERSIONING",
        "INSERT INTO v VALUES (1, '2024-01-01', '-1:00:00'), (2, '2024-01-02', NULL), (3, NULL, 0)",
        "UPDATE v SET d = '2024-02-29 12:00:00' WHERE id = 1",
        "DELETE FROM v WHERE id = 2",
    )
    schema = schema_of(old_formats, database, "v")
    found = [row for _, row in sorted(replayed(log.batches(schemas=only(schema)), "v").items())]
    assert found == select_rows(old_formats, schema, order_by="id").to_pylist()


def test_incomplete_images_of_old_formats_are_refused(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(old_formats)
    log = logged(
        old_formats,
        database,
        "SET binlog_row_image = MINIMAL",
        *DATES,
        "UPDATE z SET s = NULL WHERE id = 1",
    )
    schema = schema_of(old_formats, database, "z")
    with pytest.raises(IntegrityError, match="incomplete row images"):
        log.batches(schemas=only(schema), zero_dates=ZeroDates.NULL)


def test_the_log_reader_reads_old_formats_by_itself(
    old_formats: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(old_formats)
    old_formats.execute(DATES[0], database=database)
    table = TableId(database, "z")
    schema = schema_of(old_formats, database, "z")
    start = position_of(old_formats)
    old_formats.execute("INSERT INTO z VALUES (1, '2024-02-29 01:02:03', NULL)", database=database)
    end = position_of(old_formats)
    with reading(old_formats, start, table, schemas=only(schema)) as reader:
        batches = list(reader.read_to(end.binlog))
    assert replayed(batches, "z")[1]["d"] == datetime(2024, 2, 29, 1, 2, 3)  # noqa: DTZ001
