"""The same log of a real MySQL, by this package and by Debezium's embedded engine, field by field.

Run by `make debezium`, which brings Debezium's jars. What differs on purpose is listed here, and
`docs/changelog.md` says why.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint, Folder
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.changelog.changelog_sink import ChangelogSink
from airflow_cdc_provider.systems.changelog.reading import marker_files, sealed_files
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.read_logs import position_of, reading
from tests.systems.mysql.wire.type_cases import MYSQL, create_statement, insert_statements

Record = dict[str, Any]
Both = tuple[dict[str, list[Record]], dict[str, list[Record]]]
DATABASE = "shop"
ABSENT = "absent"
OURS_BY_CHOICE = {
    "source.version",
    "ts_ms",  # when the event was made, by each
    "ts_us",
    "ts_ns",
    "c_bigint_u",  # goes on above 2^63, where Debezium's turns negative
    "c_enum",  # '0' for what is no member, where the empty text is one
    "c_json",  # the server's own text
}
CUT_OF_TRUNCATE = {"source.ts_us", "source.ts_ns"}  # to milliseconds, there
WRONG_THERE = {
    "c_year",  # 0000 becomes 1900
    "c_armscii8",
    "c_geostd8",
    "c_hp8",
    "c_keybcs2",
    "c_latin1",  # of five bytes
    "c_swe7",
}
TABLES = tuple(TableId(DATABASE, name) for name in ("every_type", "orders", "payments"))
MARKERS, OF_XA = "t.transaction", f"t.{DATABASE}.payments"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with MySqlServer() as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.execute(create_statement(TABLES[0], MYSQL))
        server.execute(f"CREATE TABLE {DATABASE}.orders (id INT PRIMARY KEY, name VARCHAR(20))")
        server.execute(f"CREATE TABLE {DATABASE}.payments (id INT PRIMARY KEY)")
        start = position_of(server)
        _work(server)
        end = position_of(server)
        ours = _ours(server, start, end, tmp_path_factory.mktemp("log"))
        del ours[MARKERS][-2:]  # of the XA transaction, for which Debezium has none
        count = sum(map(len, ours.values()))
        yield ours, _debeziums(server, start, count)


def _work(server: MySqlServer) -> None:
    with closing(server.connect(DATABASE, init_command="SET sql_mode = ''")) as connection:
        cursor = connection.cursor()
        for statement in insert_statements(TABLES[0], MYSQL):
            cursor.execute(statement)
        connection.autocommit(False)
        for statement in (
            "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, NULL)",
            "UPDATE orders SET name = 'A' WHERE id < 3",
            "UPDATE orders SET id = 10 WHERE id = 1",
            "UPDATE every_type SET c_int = 7",
            "DELETE FROM orders WHERE id = 2",
        ):
            cursor.execute(statement)
        connection.commit()
    server.execute(f"DELETE FROM {DATABASE}.every_type WHERE id > 3")
    with closing(server.connect(DATABASE, autocommit=True)) as connection:
        cursor = connection.cursor()
        for statement in (
            "INSERT INTO orders VALUES (20, 'q'), (21, 'r')",
            "SET binlog_rows_query_log_events = 1",
            "BEGIN",
            "INSERT INTO orders VALUES (22, 's'), (23, 't')",
            "UPDATE orders SET name = 'ü' WHERE id > 21",
            "UPDATE orders SET id = 30 WHERE id = 22",
            "COMMIT",
            "SET binlog_transaction_compression = 1",
            "BEGIN",
            "INSERT INTO orders VALUES (40, 'u'), (41, 'v')",
            "DELETE FROM orders WHERE id = 41",
            "COMMIT",
            "SET binlog_transaction_compression = 0",
            "TRUNCATE orders",
            "INSERT INTO orders VALUES (60, 'x')",
            "XA START 'x'",
            "INSERT INTO payments VALUES (1), (2)",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
        ):
            cursor.execute(statement)


def _ours(server: MySqlServer, start: Any, end: Any, root: Path) -> dict[str, list[Record]]:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        schemas = read_schemas(connection, TABLES)
    plans = tuple(TablePlan.alike(schema, schema.table, 0) for schema in schemas.values())
    folder = Folder(str(root), "json", with_queries=True)
    sink = ChangelogSink(folder, Owner(PipelineName("t"), 1), plans)
    ledger = sink.open_ledger()
    ledger.take_over(1)
    progress = tuple(TableProgress(table, start) for table in TABLES)
    ledger.store_stream(StreamSplit(start, None, progress))
    changes = sink.open_changes(arrow_schemas(schemas.values()))
    with reading(server, start, *TABLES, facts=sink.abilities.facts) as reader:
        for batch in reader.read_to(end.binlog):
            changes.apply(batch)
    found = {f"t.{table}": _lines(sealed_files(root, str(table))) for table in TABLES}
    return {**found, MARKERS: _lines(marker_files(root))}


def _lines(files: list[Path]) -> list[Record]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _debeziums(server: MySqlServer, start: Any, count: int) -> dict[str, list[Record]]:
    given = {
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "database": DATABASE,
        "file": start.binlog.file,
        "gtids": str(start.gtids),
        "count": count,
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.systems.changelog.debezium", json.dumps(given)],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[Record]] = {}
    for line in ran.stdout.splitlines():
        if line.startswith("["):
            destination, key, value = json.loads(line)
            found.setdefault(destination, []).append({"key": key, **value})
    assert ran.returncode == 0, ran.stderr[-3000:]
    return found


def test_both_have_the_same_records(both: Both) -> None:
    ours, theirs = both
    assert {name: len(records) for name, records in ours.items()} == {
        name: len(records) for name, records in theirs.items()
    }


def test_each_field_is_debeziums_but_for_those_listed(both: Both) -> None:
    ours, theirs = both
    differing = {
        name
        for topic, records in ours.items()
        if topic != OF_XA
        for mine, other in zip(records, theirs[topic], strict=True)
        for name in _differing("", mine, other)
        if mine.get("op") != "t" or name not in CUT_OF_TRUNCATE
    }
    assert differing == OURS_BY_CHOICE | WRONG_THERE


def test_rows_of_xa_have_debeziums_place_and_belong_to_the_transaction_that_commits_them(
    both: Both,
) -> None:
    mine, other = (found[OF_XA] for found in both)
    names = ("file", "pos", "row", "server_id", "thread", "query")
    places = [[[row["source"][name] for name in names] for row in rows] for rows in (mine, other)]
    assert places[0] == places[1]
    assert [row["transaction"]["total_order"] for row in mine] == [1, 2]
    assert [row["transaction"] for row in other] == [None, None]


def test_members_stand_in_the_same_order(both: Both) -> None:
    ours, theirs = both
    for topic, records in ours.items():
        for mine, other in zip(records, theirs[topic], strict=True):
            assert list(mine) == list(other)
            assert list(mine.get("source", {})) == list(other.get("source", {}))


def _differing(path: str, mine: Any, other: Any) -> Iterator[str]:
    """Name the members that are not the same; images count as one."""
    if isinstance(mine, dict) and isinstance(other, dict):
        for name in mine.keys() | other.keys():
            inside = "" if name in {"before", "after"} else f"{path}{name}."
            yield from _differing(inside, mine.get(name, ABSENT), other.get(name, ABSENT))
    elif path == "data_collections.":
        if mine is not None and sorted(map(str, mine)) != sorted(map(str, other)):
            yield path.rstrip(".")
    elif not _same(mine, other):
        yield path.rstrip(".")


def _same(mine: Any, other: Any) -> bool:
    if isinstance(mine, list) and isinstance(other, list):
        return all(map(_same, mine, other))
    if isinstance(mine, float) or isinstance(other, float):  # as FLOAT has them
        return struct.pack("<d", mine) == struct.pack("<d", other) or (
            abs(mine) < 1e38 and struct.pack("<f", mine) == struct.pack("<f", other)
        )
    return type(mine) is type(other) and bool(mine == other)
