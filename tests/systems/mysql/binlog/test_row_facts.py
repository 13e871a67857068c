"""Where each row stands in the log, and who wrote it, as mysql-replication reads the same log."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.capture import FOLDER
from tests.systems.mysql.binlog.captured import CapturedLog, captured_log, log_of, session
from tests.systems.mysql.binlog.library_oracle import places_by_the_library

ALL = ("file", "pos", "row", "server_id", "thread", "query")
NAMES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
Facts = dict[str, Any]


def facts_of(batches: Sequence[ChangeBatch], table: str = "") -> list[Facts]:
    """The facts of every change, in log order."""
    found = []
    for batch in batches:
        of = [
            (ordinal, fact)
            for each in batch.tables
            if table in {"", each.table.table}
            for ordinal, fact in zip(
                each.ordinal.to_pylist(),
                [] if each.facts is None else each.facts.to_pylist(),
                strict=True,
            )
        ]
        found += [fact for _, fact in sorted(of, key=lambda pair: pair[0])]
    return found


@pytest.fixture(params=NAMES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> CapturedLog:
    path = tmp_path / "bin.000007"
    path.write_bytes(gzip.decompress((FOLDER / f"{request.param}.bin.gz").read_bytes()))
    return CapturedLog(path, "mariadb" if request.param.startswith("mariadb") else "mysql")


@pytest.mark.parametrize("chunk_bytes", [400, 7000, 4 << 20])
def test_each_row_has_the_place_of_its_own_event_and_its_number_in_it(
    stored: CapturedLog, chunk_bytes: int
) -> None:
    stored.chunk_bytes = chunk_bytes
    orders = {TableId("shop", "orders")}
    found = facts_of(stored.batches(facts=ALL, captured=orders))
    places = [(fact["pos"], fact["row"], fact["server_id"]) for fact in found]
    logged = places_by_the_library(stored, "orders")
    assert sorted(places) == sorted(logged)
    assert {fact["file"] for fact in found} == {"bin.000007"}


@pytest.mark.parametrize("limits", [BatchLimits(changes=3), BatchLimits(bytes=999)])
def test_facts_are_the_same_however_the_log_is_cut(
    stored: CapturedLog, limits: BatchLimits
) -> None:
    whole = facts_of(stored.batches(facts=ALL))
    stored.chunk_bytes = 400
    assert facts_of(stored.batches(facts=ALL, limits=limits)) == whole


def test_nothing_is_told_that_nobody_asked_for(stored: CapturedLog) -> None:
    assert all(each.facts is None for batch in stored.batches() for each in batch.tables)
    only = facts_of(stored.batches(facts=("row", "pos")))
    assert {tuple(fact) for fact in only} == {("pos", "row")}


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Any) -> str:
    name: str = fresh_database(server)
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=name)
    server.execute("CREATE TABLE u LIKE t", database=name)
    return name


LOGGED = {
    "mysql": "SET binlog_rows_query_log_events = 1",
    "mariadb": "SET binlog_annotate_row_events = 1",
}
NOT_LOGGED = {kind: text.replace("= 1", "= 0") for kind, text in LOGGED.items()}


@pytest.mark.parametrize("chunk_bytes", [200, 4 << 20])
def test_each_row_has_the_statement_that_made_it_where_the_server_logs_it(
    server: SqlServer, database: str, chunk_bytes: int
) -> None:
    kind = "mariadb" if "mariadb" in type(server).__name__.lower() else "mysql"
    long = f"INSERT INTO t VALUES (9, '{'x' * 19}') /* {'y' * 300} é */"
    log = log_of(
        server,
        database,
        NOT_LOGGED[kind],
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        LOGGED[kind],
        "BEGIN",
        "INSERT INTO t VALUES (3, 'c')",
        "INSERT INTO u VALUES (3, 'c'), (4, 'd')",
        "COMMIT",
        long,
        "CREATE TABLE w AS SELECT * FROM t",
        "BEGIN",
        "UPDATE t SET v = 'z' WHERE id < 3",
        "COMMIT",
    )
    log.chunk_bytes = chunk_bytes
    batches = log.batches(facts=ALL)
    assert [(each["row"], each["query"]) for each in facts_of(batches, "t")] == [
        (0, None),
        (1, None),
        (0, "INSERT INTO t VALUES (3, 'c')"),
        (0, long),
        (0, "UPDATE t SET v = 'z' WHERE id < 3"),
        (1, "UPDATE t SET v = 'z' WHERE id < 3"),
    ]
    assert [(each["row"], each["query"]) for each in facts_of(batches, "u")] == [
        (0, "INSERT INTO u VALUES (3, 'c'), (4, 'd')"),
        (1, "INSERT INTO u VALUES (3, 'c'), (4, 'd')"),
    ]


@pytest.mark.parametrize("chunk_bytes", [200, 4 << 20])
def test_each_row_has_the_connection_that_began_its_transaction_where_the_log_tells(
    server: SqlServer, database: str, chunk_bytes: int
) -> None:
    ids = []
    with captured_log(server) as captured:
        for number in range(2):
            with session(server, database) as run:
                run("BEGIN", f"INSERT INTO t VALUES ({number}, 'a')", "COMMIT")
                run(f"XA START 'x{number}'", f"INSERT INTO t VALUES ({number + 5}, 'b')")
                run(f"XA END 'x{number}'", f"XA PREPARE 'x{number}'", f"XA COMMIT 'x{number}'")
                run(f"CREATE TABLE n{number} (id INT)", f"INSERT INTO u VALUES ({number}, 'c')")
                run(f"INSERT INTO n{number} SELECT CONNECTION_ID()")
            ids.append(server.execute(f"SELECT id FROM n{number}", database=database)[0][0])
        log = captured()
    log.chunk_bytes = chunk_bytes
    found = [each["thread"] for each in facts_of(log.batches(facts=ALL))]
    if log.flavour == "mariadb":
        assert found == [None] * 8
    else:
        assert found == [each for number in ids for each in (number, None, number, number)]


def test_rows_of_xa_keep_the_place_where_they_were_logged(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "XA START 'x'",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    assert [(each["pos"], each["row"]) for each in facts_of(log.batches(facts=ALL))] == [
        (place, row) for place, row, _ in places_by_the_library(log, "t")
    ]
