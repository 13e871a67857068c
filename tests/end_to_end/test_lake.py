"""A source written to all the while flows into tables of Iceberg and Delta, whoever is killed."""

from __future__ import annotations

import random
import signal
import time
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.end_to_end.changelog import CommandLine
from tests.end_to_end.crashes import Writing, fill
from tests.pipeline.lakes import FORMS
from tests.servers.accounts import source_account
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.lake.reading import rows_by_duckdb, table_of
from tests.systems.lake.world import rows_now, rows_there

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = {"items": ("id", "v", "n"), "codes": ("code", "n"), "pairs": ("a", "b", "u")}
EXACT = {"items": ["id"], "pairs": ["a", "b"]}
"""Those whose snapshot has no row that a change behind it tells again."""
SEED = random.randrange(1_000)
KILLS = 4
COLUMNS = {
    "big": ("BIGINT UNSIGNED", "18446744073709551615", Decimal(18446744073709551615)),
    "small": ("TINYINT UNSIGNED", "255", 255),
    "many": ("INT UNSIGNED", "4294967295", 4294967295),
    "money": ("DECIMAL(38,10)", "-1.0000000001", Decimal("-1.0000000001")),
    "digits": ("DECIMAL(65,0)", "9" * 65, "9" * 65),
    "half": ("FLOAT", "0.5", 0.5),
    "day": ("DATE", "'9999-12-31'", date(9999, 12, 31)),
    "at": (
        "DATETIME(6)",
        "'1000-01-01 00:00:00.000001'",
        datetime.fromisoformat("1000-01-01 00:00:00.000001"),
    ),
    "moment": ("TIMESTAMP", "'2024-02-29 12:00:00'", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    "span": ("TIME(6)", "'-838:59:58.5'", -3020398500000),
    "flag": ("BIT(1)", "b'1'", True),
    "bits": ("BIT(12)", "b'100000000001'", b"\x01\x08"),
    "name": ("VARCHAR(20)", "'é🙂'", "é🙂"),
    "raw": ("VARBINARY(5)", "x'00ff'", b"\x00\xff"),
    "kind": ("ENUM('a','b')", "'b'", "b"),
    "doc": ("JSON", """'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "year": ("YEAR", "2024", 2024),
    "place": ("POINT", "ST_GeomFromText('POINT(1 2)')", {"x": 1.0, "y": 2.0, "srid": None}),
}
"""A type, a value as SQL has it, and what a reader of the lake finds."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (MySqlServer, "iceberg"),
        (MariaDbServer, "delta"),
        (MySqlServer, "delta_mirror"),
        (MariaDbServer, "iceberg_mirror"),
    ],
    ids=["mysql-iceberg", "mariadb-delta", "mysql-delta_mirror", "mariadb-iceberg_mirror"],
)
def test_a_lakes_tables_are_the_sources_though_the_writer_is_killed(
    kind: type[ThrowawayServer], form: str, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    with kind() as source:
        fill(source)
        dsn = source_account(source, "crash").dsn
        tables = [f"crash.{table}" for table in TABLES]
        sink = f"{sink_of(form)}, commit_seconds: 1"
        run = CommandLine(tmp_path, dsn, *tables, sink=sink)
        text = run.file.read_text().replace("spark: {always: true, ", "spark: {")
        run.file.write_text(text.replace("mode: bounded", "mode: continuous"))
        with Writing(source, SEED) as writing:
            for _ in range(KILLS):
                process = run.started("run")
                time.sleep(rng.uniform(3, 8))
                process.send_signal(signal.SIGKILL)
                process.wait()
        assert writing.transactions > 0
        for _ in range(2):
            code, told = run("run", "--until", "caught-up")
            assert code == 0, told
        queries = run.queries()
        for table, columns in TABLES.items():
            changes = table_of(format_of(form), run.log, f"crash.{table}")
            query = queries[f"crash.{table}"]
            assert _current(query, table, changes) == _rows_of(source, table, columns), table
            if table in EXACT:
                (rows_now if form == format_of(form) else rows_there)(changes, EXACT[table])


def format_of(form: str) -> str:
    """The format of tables that hold each change, or the current rows."""
    return form.removesuffix("_mirror")


def sink_of(form: str) -> str:
    """What the pipeline file says of such tables."""
    return f"type: {format_of(form)}, mode: {'append' if form == format_of(form) else 'mirror'}"


def _current(query: str, table: str, changes: pa.Table) -> list[Any]:
    """The table's current rows by the query that `show` prints, as texts."""
    with duckdb.connect() as connection:
        connection.register("changes", changes)
        found = connection.sql(query.replace(f'"crash"."{table}"', "changes"))
        return sorted(tuple(map(_text, row)) for row in found.fetchall())


def _key(row: dict[str, Any]) -> int:
    return int(row["id"])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _rows_of(source: ThrowawayServer, table: str, columns: tuple[str, ...]) -> list[Any]:
    texts = ", ".join(f"CAST({column} AS CHAR)" for column in columns)
    return sorted(source.execute(f"SELECT {texts} FROM crash.{table}"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", FORMS)
def test_each_type_is_read_from_the_snapshot_and_from_the_log_as_it_was_written(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path, form: str
) -> None:
    sink, form = sink_of(form), format_of(form)
    name = "All types" if form == "iceberg" else "All_types"
    table = f"{mysql_database}.`{name}`"
    defined = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in COLUMNS.items())
    values = ", ".join(value for _, value, _ in COLUMNS.values())
    nulls = ", ".join("NULL" for _ in COLUMNS)
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {defined})")
    mysql_server.execute(f"INSERT INTO {table} VALUES (1, {values}), (2, {nulls})")
    run = CommandLine(tmp_path, mysql_server.dsn(), table, sink=sink)
    run.file.write_text(run.file.read_text().replace("spark: {always: true, ", "spark: {"))
    for key in (3, 5):
        code, told = run("run", "--until", "caught-up")
        assert code == 0, told
        assert table_of(form, run.log, f"{mysql_database}.{name}").num_rows == key - 1
        mysql_server.execute(f"INSERT INTO {table} VALUES ({key}, {values}), ({key + 1}, {nulls})")
    assert run("run", "--until", "caught-up")[0] == 0
    code, told = run("verify")
    assert code == 0, told
    assert "compared by columns" in told
    with closing(mysql_server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"INSERT INTO {table} VALUES (9, {nulls})")
    code, told = run("verify")
    assert code == 1, told
    assert "missing: key 9" in told
    assert "to read it again: resync --table" in told
    rows = table_of(form, run.log, f"{mysql_database}.{name}").to_pylist()
    by_duckdb = rows_by_duckdb(form, run.log, f"{mysql_database}.{name}")
    assert sorted(by_duckdb, key=_key) == sorted(rows, key=_key)
    assert sorted(row["id"] for row in rows) == [1, 2, 3, 4, 5, 6]
    for row in rows:
        place = row["place"]
        assert place is None or place.pop("wkb")[:5] == b"\x01\x01\x00\x00\x00"
        found = {name: row[name] for name in COLUMNS}
        is_null = row["id"] % 2 == 0
        assert found == {name: None if is_null else each[2] for name, each in COLUMNS.items()}
