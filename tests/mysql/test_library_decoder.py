"""The slow decoder on real logs: its values are SELECT's, and what it does not know is fatal."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.columnar.changes import ChangeBatch
from airflow_cdc_provider.columnar.events import BatchLimits
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    PreparedTransactionError,
    UnknownEventError,
    UnknownTypeError,
    ValueRefusedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.mysql.library_decoder import LibraryDecoder
from tests.mysql.splits import reader_of, schema_of, split_of
from tests.mysql.test_log_reader import position_of, reading, rows_of
from tests.servers.given import SqlServer

VALUES = {
    "TINYINT": ["-128", "127", "0"],
    "TINYINT UNSIGNED": ["255"],
    "SMALLINT": ["-32768", "32767"],
    "MEDIUMINT": ["-8388608", "8388607"],
    "MEDIUMINT UNSIGNED": ["16777215"],
    "INT UNSIGNED": ["4294967295"],
    "BIGINT": ["-9223372036854775808"],
    "BIGINT UNSIGNED": ["18446744073709551614"],
    "BIT(13)": ["b'1000000000101'", "0"],
    "BIT(64)": ["18446744073709551615"],
    "YEAR": ["0", "1901", "2155"],
    "FLOAT": ["16777217", "3.1415927", "-1e-38"],
    "DOUBLE": ["1e308", "-0.1"],
    "DECIMAL(65,30)": ["-12345678901234567890123456789012345.123456789012345678901234567890", "0"],
    "DECIMAL(10,2)": ["-0.05", "99999999.99"],
    "DATE": ["'1000-01-01'", "'9999-12-31'"],
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'"],
    "TIME(3)": ["'-12:34:56.789'", "'-00:00:00.001'"],
    "TIME(6)": ["'-12:34:56.789012'", "'23:59:59.999999'"],
    "DATETIME": ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"],
    "DATETIME(4)": ["'2024-02-29 12:34:56.7891'"],
    "TIMESTAMP(6)": ["'2024-02-29 12:34:56.789012'", "'1970-01-01 00:00:01'"],
    "CHAR(5)": ["'a'", "''", "'abcde'"],
    "VARCHAR(300)": ["'äöü €😀'", "''", "REPEAT('x', 300)"],
    "VARCHAR(10) CHARACTER SET latin1": ["_latin1 x'80818D8F909DA0'"],
    "VARCHAR(10) CHARACTER SET utf16": ["'ä😀'"],
    "VARCHAR(10) CHARACTER SET utf32": ["'ä😀'"],
    "VARCHAR(10) CHARACTER SET koi8r": ["'Привет'"],
    "TEXT": ["'text'", "''"],
    "BINARY(4)": ["x'0100'", "x''", "x'FF000000'"],
    "VARBINARY(10)": ["x'0100'", "x''"],
    "BLOB": ["x'00FF'", "x''"],
    "ENUM('a','b,c','d''e','ö')": ["'b,c'", "'d''e'", "'ö'"],
    "ENUM('x','é') CHARACTER SET latin1": ["'é'"],
    "SET('one','two','three')": ["'three,one'", "''"],
    "GEOMETRY": ["ST_GeomFromText('POINT(1 2)', 0)"],
}
MYSQL_VALUES = {
    "JSON": ["""'{"b": [1, true, null, "ä"], "a": {}}'""", "'null'", "'\"text\"'"],
}


def create(server: SqlServer, database: str, column_type: str) -> TableId:
    server.execute(f"CREATE TABLE {database}.v (id INT PRIMARY KEY, v {column_type})")
    return TableId(database, "v")


def changes_of(
    server: SqlServer, table: TableId, *statements: str, **options: Any
) -> list[ChangeBatch]:
    """Run statements in one session and read them from the log with the slow decoder."""
    start = position_of(server)
    with closing(server.connect(table.database)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    end = position_of(server)
    with reading(server, start, table, decoder=LibraryDecoder, **options) as reader:
        return list(reader.read_to(end.binlog))


def check_values(server: SqlServer, database: str, values: dict[str, list[str]]) -> None:
    """Write each value into a column of its type; the log must give what SELECT gives."""
    columns = {f"c{number}": column_type for number, column_type in enumerate(values)}
    definitions = ", ".join(f"{name} {column_type}" for name, column_type in columns.items())
    server.execute(f"CREATE TABLE {database}.v (id INT PRIMARY KEY, {definitions})")
    table = TableId(database, "v")
    count = max(len(each) for each in values.values()) + 1
    rows = (
        ", ".join([str(number), *((each + ["NULL"] * count)[number] for each in values.values())])
        for number in range(count)
    )
    batches = changes_of(
        server,
        table,
        "SET sql_mode = ''",
        "INSERT INTO v VALUES " + ", ".join(f"({row})" for row in rows),
    )
    logged = batches[0].tables[0].after
    schema = schema_of(server, table)
    with reader_of(server, schema, backfill=False) as reader:
        read, _ = reader.read(split_of(schema))
        (selected,) = read.batches()
    differing = {
        column_type: (logged.column(name).to_pylist(), selected.column(name).to_pylist())
        for name, column_type in columns.items()
        if not logged.column(name).equals(selected.column(name))
    }
    assert differing == {}


def test_values_of_the_log_are_those_that_select_gives(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    check_values(mysql_server, mysql_database, VALUES | MYSQL_VALUES)


def test_values_of_mariadbs_log_are_those_that_select_gives(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    check_values(mariadb_server, mariadb_database, VALUES)


@pytest.mark.parametrize("value", ["'0000-00-00'", "'2024-00-15'", "'2024-02-31'"])
def test_a_date_that_is_no_day_is_refused_by_name(
    mysql_server: SqlServer, mysql_database: str, value: str
) -> None:
    table = create(mysql_server, mysql_database, "DATE")
    with pytest.raises(ValueRefusedError, match="no day"):
        changes_of(
            mysql_server,
            table,
            "SET sql_mode = 'ALLOW_INVALID_DATES'",
            f"INSERT INTO v VALUES (1, {value})",
        )


def test_a_zero_timestamp_is_not_the_epoch(mysql_server: SqlServer, mysql_database: str) -> None:
    table = create(mysql_server, mysql_database, "TIMESTAMP NULL")
    with pytest.raises(ValueRefusedError, match="0000-00-00"):
        changes_of(mysql_server, table, "SET sql_mode = ''", "INSERT INTO v VALUES (1, 0)")


REFUSED = {
    "a compressed transaction": (
        UnknownEventError,
        ("SET binlog_transaction_compression = ON", "INSERT INTO v VALUES (1, 1)"),
    ),
    "a tagged GTID": (
        UnknownEventError,
        ("SET gtid_next = 'AUTOMATIC:tag'", "INSERT INTO v VALUES (1, 1)"),
    ),
    "half a row": (
        IntegrityError,
        (
            "INSERT INTO v VALUES (1, 1)",
            "SET binlog_row_image = MINIMAL",
            "UPDATE v SET v = 2",
        ),
    ),
    "a statement instead of rows": (
        IntegrityError,
        ("SET binlog_format = STATEMENT", "INSERT INTO v VALUES (1, 1)"),
    ),
    "a prepared transaction": (
        PreparedTransactionError,
        (
            "XA START 'x'",
            "INSERT INTO v VALUES (1, 1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_stops_at(mysql_server: SqlServer, mysql_database: str, name: str) -> None:
    error, statements = REFUSED[name]
    table = create(mysql_server, mysql_database, "INT")
    with pytest.raises(error, match=r"bin\.\d+:\d+"):
        changes_of(mysql_server, table, *statements)


def test_it_stops_at_columns_without_names(mysql_server: SqlServer, mysql_database: str) -> None:
    table = create(mysql_server, mysql_database, "INT")
    mysql_server.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        with pytest.raises(IntegrityError, match="binlog_row_metadata"):
            changes_of(mysql_server, table, "INSERT INTO v VALUES (1, 1)")
    finally:
        mysql_server.execute("SET GLOBAL binlog_row_metadata = FULL")


def test_it_stops_at_types_the_log_disguises(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = create(mariadb_server, mariadb_database, "UUID")
    schema = schema_of(mariadb_server, table)
    with pytest.raises(UnknownTypeError, match="BINARY"):
        changes_of(
            mariadb_server,
            table,
            "INSERT INTO v VALUES (1, UUID())",
            schemas=lambda _table: schema,
        )


def test_rows_of_a_rolled_back_group_are_dropped(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = create(mysql_server, mysql_database, "INT")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.m (id INT PRIMARY KEY) ENGINE=MyISAM")
    batches = changes_of(
        mysql_server,
        table,
        "SET gtid_next = 'AUTOMATIC'",
        "START TRANSACTION",
        "INSERT INTO v VALUES (1, 1)",
        "ROLLBACK",
        "INSERT INTO v VALUES (2, 2)",
    )
    assert rows_of(batches) == [("INSERT", 2)]


def test_a_large_transaction_travels_in_parts_without_an_end(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = create(mysql_server, mysql_database, "VARCHAR(1000)")
    values = ", ".join(f"({number}, REPEAT('x', 900))" for number in range(100))
    batches = changes_of(
        mysql_server,
        table,
        f"INSERT INTO v VALUES {values}",
        limits=BatchLimits(bytes=30_000),
    )
    assert [batch.end is None for batch in batches] == [True] * (len(batches) - 1) + [False]
    assert len(batches) > 2
    assert rows_of(batches) == [("INSERT", number) for number in range(100)]


def test_statements_on_captured_tables_are_barriers_and_others_are_not(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = create(mysql_server, mysql_database, "INT")
    batches = changes_of(
        mysql_server,
        table,
        "INSERT INTO v VALUES (1, 1)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO v VALUES (2, 2)",
        "ALTER TABLE v ADD COLUMN w INT",
        "INSERT INTO v VALUES (3, 3, 3)",
    )
    barriers = [batch.barrier.sql for batch in batches if batch.barrier is not None]
    assert barriers == ["ALTER TABLE v ADD COLUMN w INT"]
    assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2), ("INSERT", 3)]
    assert batches[-1].tables[0].after.schema.names == ["id", "v", "w"]


def test_the_commit_time_has_microseconds(mysql_server: SqlServer, mysql_database: str) -> None:
    table = create(mysql_server, mysql_database, "INT")
    before = mysql_server.execute("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")[0][0]
    start = position_of(mysql_server)
    mysql_server.execute(f"INSERT INTO {mysql_database}.v VALUES (1, 1)")
    end = position_of(mysql_server)
    with reading(mysql_server, start, table, decoder=LibraryDecoder) as reader:
        (batch,) = reader.read_to(end.binlog)
    (point,) = batch.transactions
    assert 0 <= point.committed_us - before < 60_000_000
    assert point.end == end.binlog
