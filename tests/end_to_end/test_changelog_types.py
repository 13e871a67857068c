"""A change log in Parquet has the types of its columns, and reads as the source's rows."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.systems.changelog.reading import sealed_files
from tests.end_to_end.changelog import CommandLine
from tests.servers.given import SqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
COLUMNS = (
    "k DECIMAL(12,2) PRIMARY KEY, huge DECIMAL(50,1), day DATE, at DATETIME(3), seen TIMESTAMP(6), "
    "u BIGINT UNSIGNED"
)
FIRST = (
    "(-9999999999.99, -1234567890123456789012345678901234567890123456789.5, '0001-01-01', "
    "'1000-01-01 00:00:00.001', '1970-01-01 00:00:01.000001', 18446744073709551615), "
    "(0.01, NULL, NULL, NULL, NULL, NULL)"
)
LATER = (
    "(9999999999.99, 0.1, '9999-12-31', '9999-12-31 23:59:59.999', '2038-01-19 03:14:07.999999', 0)"
)
NATIVE = {
    "k": pa.decimal128(12, 2),
    "huge": pa.string(),  # more digits than readers have
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "seen": pa.timestamp("us", "UTC"),
    "u": pa.uint64(),
}
DEBEZIUM = {**NATIVE, "k": pa.string(), "day": pa.int32(), "at": pa.int64(), "seen": pa.string()}


class Log:
    """A change log of one table, by the command line."""

    def __init__(self, server: SqlServer, database: str, folder: Path) -> None:
        self.server, self.table = server, f"{database}.t"
        self.run = CommandLine(folder, server.dsn(), self.table, form="parquet")
        self.write_file(self.run.file.read_text().replace("always: true, ", ""))
        server.execute(f"CREATE TABLE {self.table} ({COLUMNS})")

    def write_file(self, text: str) -> None:
        self.run.file.write_text(text)

    def catch_up(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement)
        code, told = self.run("run", "--until", "caught-up")
        assert code == 0, told

    @property
    def files(self) -> list[Path]:
        return sealed_files(self.run.log, self.table)

    def types(self) -> dict[str, pa.DataType]:
        """The types of a row's members, the same in `before` and `after` of all files."""
        (schema,) = {pq.read_schema(file).remove_metadata() for file in self.files}
        members = {field.name: field.type for field in schema.field("after").type}
        assert members == {field.name: field.type for field in schema.field("before").type}
        assert schema.field("key").type.field("k").type == members["k"]
        return members

    def rows(self) -> dict[Any, dict[str, Any]]:
        """What a reader of all files has in the end, by key."""
        rows: dict[Any, dict[str, Any]] = {}
        for file in self.files:
            for event in pq.read_table(file).to_pylist():
                rows.pop(event["key"]["k"], None)
                if event["after"] is not None:
                    rows[event["key"]["k"]] = event["after"]
        return rows

    def source_rows(self) -> dict[Any, dict[str, Any]]:
        """The source's rows; it has text for a moment and for a DECIMAL that is wide."""
        found = self.server.execute(
            f"SELECT k, CAST(huge AS CHAR), CAST(day AS CHAR), CAST(at AS CHAR), "
            f"ROUND(UNIX_TIMESTAMP(seen) * 1000000), u FROM {self.table}"
        )
        return {row[0]: dict(zip(NATIVE, row, strict=True)) for row in found}


def as_source_says(row: dict[str, Any]) -> dict[str, Any]:
    """A reader's row in the words of the source."""
    at, seen, day = row["at"], row["seen"], row["day"]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return {
        **row,
        "day": None if day is None else f"{day:%Y-%m-%d}".rjust(10, "0"),
        "at": None if at is None else at.isoformat(" ", "milliseconds"),
        "seen": None if seen is None else Decimal((seen - epoch) // dt.timedelta(microseconds=1)),
    }


@pytest.fixture
def log(mysql_server: SqlServer, mysql_database: str, tmp_path: Path) -> Log:
    return Log(mysql_server, mysql_database, tmp_path)


def test_rows_of_the_snapshot_and_of_the_log_have_native_types_and_the_source_s_values(
    log: Log,
) -> None:
    log.catch_up(f"INSERT INTO {log.table} VALUES {FIRST}")
    log.catch_up(
        f"INSERT INTO {log.table} VALUES {LATER}",
        f"UPDATE {log.table} SET k = k + 1, day = '2024-02-29' WHERE k = 0.01",
    )
    assert log.types() == NATIVE
    assert {key: as_source_says(row) for key, row in log.rows().items()} == log.source_rows()


def test_a_log_of_before_keeps_its_types_until_reset(log: Log) -> None:
    plain = log.run.file.read_text()
    log.write_file(plain.replace("format: parquet", "format: parquet, types: debezium"))
    log.catch_up(f"INSERT INTO {log.table} VALUES {FIRST}")
    for manifest in (log.run.log / "_manifest").glob("manifest-*.json"):  # as releases before did
        record = json.loads(manifest.read_text())
        record.pop("types", None)
        manifest.write_text(json.dumps(record))
    log.write_file(plain)
    log.catch_up(f"INSERT INTO {log.table} VALUES {LATER}")
    assert log.types() == DEBEZIUM
    assert log.run("reset", "--yes")[0] == 0
    log.catch_up()
    assert log.types() == NATIVE


def test_zero_dates_as_text_stay_what_they_are_in_a_column_of_text(log: Log) -> None:
    text = log.run.file.read_text()
    log.write_file(text.replace("source: {", "source: {zero_dates: text, "))
    log.server.execute(
        f"INSERT IGNORE INTO {log.table} (k, day, at) VALUES (1, '0000-00-00', '2024-00-01')"
    )
    log.catch_up()
    assert log.types()["day"] == pa.string()
    ((_, row),) = log.rows().items()
    assert row["day"] == "0000-00-00"


@pytest.mark.spark
def test_spark_reads_the_types_of_the_columns(log: Log, spark: SparkSession) -> None:
    log.catch_up(f"INSERT INTO {log.table} VALUES {FIRST}, {LATER}")
    read = spark.read.parquet(*map(str, log.files))
    types = dict(read.select("after.*").dtypes)
    assert types == {
        "k": "decimal(12,2)",
        "huge": "string",
        "day": "date",
        "at": "timestamp_ntz",
        "seen": "timestamp",
        "u": "decimal(20,0)",
    }
    keys = {row["k"] for row in read.select("key.*").collect()}
    assert keys == log.source_rows().keys()
