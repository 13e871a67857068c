"""A source written to all the while becomes a change log, and Spark makes its tables of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.spark.reading import register
from airflow_cdc_provider.systems.changelog.reading import marker_files, sealed_files
from tests.end_to_end.changelog import CommandLine
from tests.end_to_end.crashes import Writing, fill
from tests.servers.accounts import source_account
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {"items": ("id", "v", "n"), "pairs": ("a", "b", "u")}
KEYS = {"items": ("id",), "pairs": ("a", "b")}
SEED = 11
Event = dict[str, Any]


def test_check_refuses_a_table_whose_key_only_the_server_orders(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.codes (code VARCHAR(9) PRIMARY KEY)")
    run = CommandLine(tmp_path, mysql_server.dsn(), f"{mysql_database}.codes", form="json")
    code, told = run("check")
    assert code != 0
    assert f"[block] {mysql_database}.codes: the primary key (code)" in told
    assert "binlog_rows_query_log_events" not in told
    assert not run.log.exists()
    asking = run.file.read_text().replace(
        "type: changelog,", "type: changelog, include_query: true,"
    )
    run.file.write_text(asking)
    assert "binlog_rows_query_log_events = OFF" in run("check")[1]


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.sample(2, of="whole change logs")
def test_a_log_is_begun_anew_by_reset_and_kept_by_drop(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path
) -> None:
    table = f"{mysql_database}.t"
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO {table} VALUES (1), (2)")
    run = CommandLine(tmp_path, mysql_server.dsn(), table, form="json")
    caught_up = ("run", "--until", "caught-up")
    assert run(*caught_up)[0] == 0
    assert "consistent, splits 1/1, 2 rows" in run("status")[1]
    assert "verify cannot compare" in run("verify")[1]

    mysql_server.execute(f"DELETE FROM {table} WHERE id = 1")
    assert run("reset", "--yes")[0] == 0
    run.file.write_text(run.file.read_text().replace("json", "parquet"))
    assert run(*caught_up)[0] == 0
    (file,) = (run.log / table).iterdir()
    assert [event["after"] for event in events([file])] == [{"id": 2}]

    assert run("drop", "--yes")[0] == 0
    code, told = run(*caught_up)
    assert code != 0
    assert "holds files" in told
    assert list((run.log / table).iterdir()) == [file]


@pytest.mark.timeout(600)
def test_a_log_holds_the_rows_and_columns_that_the_file_says(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path
) -> None:
    table = f"{mysql_database}.t"
    mysql_server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, mail VARCHAR(20), pin CHAR(4), n INT)"
    )
    mysql_server.execute(
        f"INSERT INTO {table} VALUES (1, 'ann@x', 'p1', 1), (2, 'bob@x', 'p2', 2), (3, 'c', 'p', 3)"
    )
    run = CommandLine(tmp_path, mysql_server.dsn(), table, form="json")
    plain = run.file.read_text().replace("spark: {always: true, ", "spark: {")
    settings = "{where: 'n < 3', columns: {exclude: [pin], mask: {mail: {first: 1}}}}"
    shaped = f'{plain}tables: {{"{table}": {settings}}}\n'
    run.file.write_text(shaped.replace("type: changelog,", "type: changelog, include_query: true,"))
    code, told = run("check")
    assert code != 0
    assert "the sink gets the texts of statements too" in told
    run.file.write_text(shaped)
    assert run("run", "--until", "caught-up")[0] == 0
    for statement in (
        "UPDATE {} SET n = n + 1, mail = CONCAT('z', mail)",
        "UPDATE {} SET pin = 'gone' WHERE id = 1",
        "UPDATE {} SET n = 0 WHERE id = 3",
        "DELETE FROM {} WHERE id IN (1, 2)",
    ):
        mysql_server.execute(statement.format(table))
    assert run("run", "--until", "caught-up")[0] == 0
    files = sealed_files(run.log, table)
    told_of = [(each["op"], each["before"], each["after"]) for each in events(files)]

    def row(key: int, mail: str, n: int) -> Event:
        return {"id": key, "mail": mail, "n": n}

    assert told_of == [
        ("r", None, row(1, "a", 1)),
        ("r", None, row(2, "b", 2)),
        ("u", row(1, "a", 1), row(1, "z", 2)),
        ("d", row(2, "b", 2), None),
        ("u", row(1, "z", 2), row(1, "z", 2)),
        ("c", None, row(3, "z", 0)),
        ("d", row(1, "z", 2), None),
    ]
    counted = [each for each in events(marker_files(run.log)) if each["status"] == "END"]
    assert [each["event_count"] for each in counted] == [2, 1, 1, 1]
    assert "ann@x" not in "".join(file.read_text() for file in run.log.rglob("*.json*"))


@pytest.mark.timeout(600)
def test_statements_may_be_asked_for_and_not_between_runs(
    mariadb_server: SqlServer, mariadb_database: str, tmp_path: Path
) -> None:
    table = f"{mariadb_database}.t"
    mariadb_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)")
    run = CommandLine(tmp_path, mariadb_server.dsn(), table, form="json")
    plain = run.file.read_text().replace("spark: {always: true, ", "spark: {")
    with_queries = plain.replace("type: changelog,", "type: changelog, include_query: true,")
    expected: list[str | None] = []
    for key, text in enumerate([with_queries, with_queries, with_queries, plain, with_queries]):
        run.file.write_text(text)
        code, told = run("run", "--until", "caught-up")
        assert code == 0, told
        insert = f"INSERT INTO {table} VALUES ({key}, 1)"
        mariadb_server.execute(insert)
        expected.append(insert)
    code, told = run("run", "--until", "caught-up")
    assert code == 0, told
    expected[2] = None  # read by the run that did not ask
    found = events(sealed_files(run.log, table))
    assert [event["source"]["query"] for event in found] == expected


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "form"),
    [(MySqlServer, "json"), (MariaDbServer, "parquet")],
    ids=["mysql-json", "mariadb-parquet"],
)
@pytest.mark.sample(2, of="whole change logs")
def test_spark_makes_the_sources_tables_of_the_log(
    kind: type[ThrowawayServer], form: str, tmp_path: Path, spark: SparkSession
) -> None:
    with kind() as source:
        fill(source)
        dsn = source_account(source, "crash").dsn
        run = CommandLine(tmp_path, dsn, *(f"crash.{table}" for table in TABLES), form=form)
        with Writing(source, SEED) as writing:
            code, told = run("run", "--until", "caught-up")
            assert code == 0, told
        assert writing.transactions > 0
        code, told = run("run", "--until", "caught-up")
        assert code == 0, told
        for table, columns in TABLES.items():
            files = sealed_files(run.log, f"crash.{table}")
            assert rebuilt(spark, files, form, columns) == rows_of(source, table, columns)
            check_history(files)
            if form == "parquet":
                assert followed(spark, run.log, table, columns) == rows_of(source, table, columns)
                check_pieces(spark, run.log, table)
        check_markers(run.log)


def rebuilt(
    spark: SparkSession, files: list[Path], form: str, columns: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """The last state of each key, as anyone who knows Debezium's envelope makes it."""
    spark.read.format(form).load([str(file) for file in files]).createOrReplaceTempView("log")
    found = spark.sql(
        f"""
        SELECT {", ".join(f"CAST(last.{column} AS STRING)" for column in columns)} FROM (
            SELECT op, after AS last, ROW_NUMBER() OVER (
                PARTITION BY key ORDER BY op = 'r', source.file DESC, source.pos DESC,
                transaction.total_order DESC) AS nth
            FROM log)
        WHERE nth = 1 AND op <> 'd'
        """
    )
    return sorted(tuple(row) for row in found.collect())


def changes_of(spark: SparkSession, log: Path, table: str, **options: str) -> list[Any]:
    """The changes of a table by format cdc, in order."""
    register(spark)
    reader = spark.read.format("cdc").options(table=f"crash.{table}", **options)
    is_after = "_change_type = 'update_postimage'"
    found = reader.load(str(log)).selectExpr("*", f"{is_after} AS is_after")
    found = found.orderBy("_commit_version", "_commit_order", "is_after")
    rows: list[Any] = found.toArrow().to_pylist()
    return rows


def followed(
    spark: SparkSession, log: Path, table: str, columns: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """The table that the changes of format cdc make, each fitting what is there, as texts."""
    rows: dict[Any, Any] = {}
    for change in changes_of(spark, log, table):
        key, row = tuple(change[name] for name in KEYS[table]), [change[name] for name in columns]
        if change["_change_type"] in ("update_preimage", "delete"):
            assert rows.pop(key) == row
        else:
            assert key not in rows
            rows[key] = row
    return sorted(tuple(map(str, row)) for row in rows.values())


def check_pieces(spark: SparkSession, log: Path, table: str) -> None:
    """Two ranges that meet at a place inside the log have each change once."""
    whole = changes_of(spark, log, table)
    place = whole[len(whole) * 3 // 4]["_commit_position"]
    first = changes_of(spark, log, table, endingPosition=place)
    second = changes_of(spark, log, table, startingPosition=place)
    assert first + second == whole
    assert first


def rows_of(source: ThrowawayServer, table: str, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    texts = ", ".join(f"CAST({column} AS CHAR)" for column in columns)
    return sorted(source.execute(f"SELECT {texts} FROM crash.{table}"))


def check_history(files: list[Path]) -> None:
    """Each event fits the one before it of its key, in the files' order; none is there twice."""
    held: dict[str, Any] = {}
    seen = set()
    for event in events(files):
        key, op = json.dumps(event["key"]), event["op"]
        assert (key in held) == (op in "ud"), f"{op} of {key}"
        if op in "ud":
            assert held.pop(key) == event["before"], key
        if op in "rcu":
            held[key] = event["after"]
        if op != "r":
            place = (event["source"]["file"], event["source"]["pos"])
            order = event["transaction"]["total_order"]
            assert (place, order) not in seen
            assert None not in (event["source"]["row"], event["source"]["server_id"])
            seen.add((place, order))
    assert seen


def check_markers(log: Path) -> None:
    """Each transaction has its two markers, and as many events as they say."""
    markers = events(marker_files(log))
    told = {each["id"]: each["event_count"] for each in markers if each["status"] == "END"}
    assert sorted(each["id"] for each in markers if each["status"] == "BEGIN") == sorted(told)
    counted = dict.fromkeys(told, 0)
    for table in TABLES:
        for event in events(sealed_files(log, f"crash.{table}")):
            if event["op"] != "r":
                counted[event["transaction"]["id"]] += 1
    assert counted == told


def events(files: list[Path]) -> list[Event]:
    """The events of some files, in the files' order."""
    found: list[Event] = []
    for file in files:
        if file.suffix == ".parquet":
            found += pq.read_table(file).to_pylist()
        else:
            found += map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return found
