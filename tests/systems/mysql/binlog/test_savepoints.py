"""Rows that were rolled back to a savepoint never come, even where the log holds them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.binlog.transactions.savepoints import Savepoints
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import CapturedLog, decoded, log_of, replayed

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE TABLE u (id INT PRIMARY KEY)",
    "CREATE TRIGGER into_m AFTER INSERT ON u FOR EACH ROW INSERT INTO m VALUES (NEW.id)",
)
TEMPORARY = "CREATE TEMPORARY TABLE scratch (id INT)"
DROPPED = "DROP TEMPORARY TABLE scratch"


@pytest.fixture
def database(mariadb_server: SqlServer, fresh_database: Any) -> str:
    name: str = fresh_database(mariadb_server)
    for statement in TABLES:
        mariadb_server.execute(statement, database=name)
    return name


def rollbacks(log: CapturedLog) -> int:
    return log.path.read_bytes().count(b"ROLLBACK TO ")


def check(server: SqlServer, database: str, log: CapturedLog, **options: Any) -> None:
    batches = log.batches(**options)
    for table in ("t", "m", "u"):
        shown = server.execute(f"SELECT id FROM {table}", database=database)
        assert replayed(batches, table).keys() == {number for (number,) in shown}, table


@pytest.mark.parametrize("chunk_bytes", [200, 4 << 20])
@pytest.mark.parametrize(
    "unsafe", ["INSERT INTO m VALUES (1)", "INSERT INTO u VALUES (1)", TEMPORARY]
)
def test_rows_behind_a_savepoint_are_dropped_with_a_rollback_to_it(
    mariadb_server: SqlServer, database: str, unsafe: str, chunk_bytes: int
) -> None:
    log = log_of(
        mariadb_server,
        database,
        "BEGIN",
        "INSERT INTO t VALUES (1, 'kept')",
        "SAVEPOINT `a ``b`",
        "INSERT INTO t VALUES (2, 'dropped')",
        unsafe,
        "SAVEPOINT inner_",
        "UPDATE t SET v = 'dropped'",
        "ROLLBACK TO INNER_",
        "DELETE FROM t WHERE id = 1",
        "ROLLBACK TO SAVEPOINT `A ``B`",
        "INSERT INTO t VALUES (2, 'kept')",
        "COMMIT",
        "INSERT INTO t VALUES (3, 'kept')",
    )
    assert rollbacks(log) == 2
    log.chunk_bytes = chunk_bytes
    check(mariadb_server, database, log)
    rows = replayed(log.batches(), "t").values()
    assert [row["v"] for row in rows] == ["kept"] * 3


def test_ansi_quotes_name_the_same_savepoints(mariadb_server: SqlServer, database: str) -> None:
    log = log_of(
        mariadb_server,
        database,
        "SET sql_mode = 'ANSI_QUOTES'",
        "BEGIN",
        "INSERT INTO t VALUES (1, 'kept')",
        'SAVEPOINT "a""b"',
        "INSERT INTO t VALUES (2, 'dropped')",
        TEMPORARY,
        'ROLLBACK TO "a""b"',
        "COMMIT",
    )
    assert rollbacks(log) == 1
    check(mariadb_server, database, log)


def test_a_name_that_is_used_again_means_its_last_place(
    mariadb_server: SqlServer, database: str
) -> None:
    log = log_of(
        mariadb_server,
        database,
        "BEGIN",
        "INSERT INTO t VALUES (1, 'kept')",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (2, 'kept')",
        "SAVEPOINT S",
        TEMPORARY,
        "INSERT INTO t VALUES (3, 'dropped')",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (4, 'dropped')",
        "ROLLBACK TO s",
        "COMMIT",
    )
    assert rollbacks(log) == 2
    check(mariadb_server, database, log)


def test_invented_transactions_with_savepoints_give_what_select_gives(
    mariadb_server: SqlServer, database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    statements: list[str] = []
    for number in range(80):
        statements.append("BEGIN")
        known: list[str] = []
        for step in range(source.randrange(1, 14)):
            key = number * 100 + step
            match source.randrange(6):
                case 0:
                    name = source.choice(("a", "b", "c", "d", "éé", "ßяя"))
                    known = [*(each for each in known if each != name), name]
                    statements.append(f"SAVEPOINT {name}")
                case 1 if known:
                    place = source.choice(known)
                    known = known[: known.index(place) + 1]
                    statements.append(f"ROLLBACK TO {place}")
                case 2:
                    statements.append(f"INSERT INTO m VALUES ({key})")
                case 3:
                    statements.append(f"INSERT INTO u VALUES ({key})")
                case _:
                    statements.append(f"INSERT INTO t VALUES ({key}, 'x'), ({-key - 1}, 'y')")
        statements.append(source.choice(("COMMIT", "COMMIT", "ROLLBACK")))
    log = log_of(mariadb_server, database, *statements)
    assert rollbacks(log) > 0
    check(mariadb_server, database, log)
    log.chunk_bytes = 300
    check(mariadb_server, database, log, limits=BatchLimits(changes=1 << 20))


def test_a_rollback_of_rows_that_were_handed_on_in_parts_is_refused(
    mariadb_server: SqlServer, database: str
) -> None:
    values = ", ".join(f"({i}, '{'x' * 15}')" for i in range(3000))
    log = log_of(
        mariadb_server,
        database,
        "BEGIN",
        "INSERT INTO t VALUES (-1, 'kept')",
        "SAVEPOINT s",
        f"INSERT INTO t VALUES {values}",
        TEMPORARY,
        "ROLLBACK TO s",
        "COMMIT",
    )
    log.chunk_bytes = 10_000
    check(mariadb_server, database, log)
    with pytest.raises(IntegrityError, match="handed on already"):
        log.batches(limits=BatchLimits(changes=500))


def test_a_savepoint_behind_parts_that_were_handed_on_can_be_rolled_back_to(
    mariadb_server: SqlServer, database: str
) -> None:
    values = ", ".join(f"({i}, '{'x' * 15}')" for i in range(3000))
    log = log_of(
        mariadb_server,
        database,
        "BEGIN",
        f"INSERT INTO t VALUES {values}",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (-1, 'dropped')",
        TEMPORARY,
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (-2, 'kept')",
        "COMMIT",
    )
    log.chunk_bytes = 10_000
    limits = BatchLimits(changes=2000)
    batches = log.batches(limits=limits)
    assert any(batch.end is None for batch in batches)
    check(mariadb_server, database, log, limits=limits)


def test_savepoints_of_tables_that_are_not_captured_are_no_matter(
    mariadb_server: SqlServer, database: str
) -> None:
    log = log_of(
        mariadb_server,
        database,
        "SET NAMES utf8mb4",
        "BEGIN",
        "INSERT INTO t VALUES (1, 'x')",
        "SAVEPOINT é",
        "INSERT INTO t VALUES (2, 'x')",
        "SAVEPOINT ü",
        TEMPORARY,
        "ROLLBACK TO é",
        "COMMIT",
    )
    assert log.batches(captured={TableId(database, "u")})[-1].changes == 0
    with pytest.raises(IntegrityError, match="cannot be told for sure"):
        decoded(log.decoder(), log.chunks())


def test_a_name_beyond_ascii_is_known_where_no_other_can_be_meant(
    mariadb_server: SqlServer, database: str
) -> None:
    log = log_of(
        mariadb_server,
        database,
        "SET NAMES utf8mb4",
        "BEGIN",
        "INSERT INTO t VALUES (1, 'kept')",
        "SAVEPOINT `Größe`",
        "INSERT INTO t VALUES (2, 'dropped')",
        "SAVEPOINT Grösser",
        "INSERT INTO t VALUES (3, 'dropped')",
        TEMPORARY,
        "ROLLBACK TO größE",
        "INSERT INTO t VALUES (4, 'kept')",
        "COMMIT",
    )
    assert rollbacks(log) == 1
    check(mariadb_server, database, log)


@pytest.mark.parametrize(
    ("names", "asked"),
    [(("é", "E"), "e"), (("É", "é"), "é"), (("aß", "aS"), "as"), (("é",), "É"), (("x ", "é"), "x")],
)
def test_a_name_that_the_server_may_take_for_another_is_refused(
    names: tuple[str, ...], asked: str
) -> None:
    savepoints = Savepoints()
    for place, name in enumerate(names):
        savepoints.set(f"SAVEPOINT `{name}`", place)
    with pytest.raises(IntegrityError, match="cannot be told for sure"):
        savepoints.roll_back(f"ROLLBACK TO `{asked}`")


def test_a_savepoint_that_was_never_set_is_refused() -> None:
    savepoints = Savepoints()
    savepoints.set("SAVEPOINT `a`", 3)
    savepoints.set("SAVEPOINT `b`", 5)
    assert savepoints.roll_back("ROLLBACK TO `a`") == 3
    for unknown in ("ROLLBACK TO `b`", "ROLLBACK TO `c`", "ROLLBACK"):
        with pytest.raises(IntegrityError):
            savepoints.roll_back(unknown)
