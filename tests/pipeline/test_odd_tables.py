"""Tables and statements that naive copies get wrong go through a whole pipeline, rows and log.

All of them are in one pipeline, which lives in a time zone that has gaps. The two servers are
compared by what they print.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer


@dataclass(frozen=True)
class Odd:
    """Statements before the rows are read, and some that the stream follows; `t` is the table."""

    before: Sequence[str]
    after: Sequence[str]


KEY_MOVES = (
    "BEGIN",
    "UPDATE t SET id = -1 WHERE id = 1",
    "UPDATE t SET id = 1 WHERE id = 2",
    "UPDATE t SET id = 2 WHERE id = -1",
    "COMMIT",
    "UPDATE t SET id = id + 1 ORDER BY id DESC",
    "UPDATE t SET id = 7 - id ORDER BY id LIMIT 1",
)
EVERYWHERE = {
    "members_in_another_order": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a','b'), s SET('x','y'))",
            "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'x,y')",
        ),
        (
            "INSERT INTO t VALUES (3, 'b', 'y')",
            "UPDATE t SET e = 'a' WHERE id = 2",
            "ALTER TABLE t MODIFY e ENUM('b','c','a'), MODIFY s SET('y','z','x')",
            "INSERT INTO t VALUES (4, 'a', 'x,z')",
        ),
    ),
    "spellings_of_one_key": Odd(
        (
            "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n INT)",
            "INSERT INTO t VALUES ('a', 1), ('B', 2), ('ß', 3)",
        ),
        (
            "UPDATE t SET k = 'A ' WHERE k = 'a'",
            "DELETE FROM t WHERE k = 'b '",
            "INSERT INTO t VALUES ('b', 4)",
            "UPDATE t SET k = 'SS' WHERE n = 3",
        ),
    ),
    "dates_that_are_none_as_key": Odd(
        (
            "CREATE TABLE t (d DATETIME, e DATE, n INT, PRIMARY KEY (d, e))",
            "INSERT INTO t VALUES (0, 0, 1), ('2024-00-15', '2024-02-31', 2), "
            "('1000-01-01', '9999-12-31', 3)",
        ),
        (
            "UPDATE t SET n = 10 WHERE d = 0",
            "DELETE FROM t WHERE n = 2",
            "INSERT INTO t VALUES ('2024-00-00', 0, 4)",
        ),
    ),
    "times_in_other_zones": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP(6) NULL, wall DATETIME(3))",
            "SET time_zone = '+09:00'",
            "INSERT INTO t VALUES (1, '2024-03-10 16:30:00', '2024-03-10 02:30:00')",
        ),
        (
            "SET time_zone = '-05:00'",
            "INSERT INTO t VALUES (2, '2024-03-10 02:30:00.000001', '2024-03-10 02:30:00'), "
            "(3, '2024-11-03 01:30:00', '2024-11-03 01:30:00')",
            "UPDATE t SET wall = '2024-03-31 02:30:00.5' WHERE id = 1",
        ),
    ),
    "an_invisible_column": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, h INT DEFAULT 3 INVISIBLE, v INT)",
            "INSERT INTO t (id, h, v) VALUES (1, 1, 1), (2, 2, 2)",
        ),
        ("UPDATE t SET h = 9 WHERE id = 1", "INSERT INTO t (id, v) VALUES (3, 3)"),
    ),
    "computed_columns": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT AS (id * 2) VIRTUAL, "
            "s INT AS (id * 3) STORED, n INT)",
            "INSERT INTO t (id, n) VALUES (1, 1), (2, 2)",
        ),
        ("UPDATE t SET id = 5 WHERE id = 1", "INSERT INTO t (id, n) VALUES (3, 3)"),
    ),
    "rows_replaced_for_their_unique_values": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, v INT)",
            "INSERT INTO t VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0)",
        ),
        (
            "REPLACE INTO t VALUES (4, 10, 1)",
            "REPLACE INTO t VALUES (4, 20, 2)",
            "INSERT INTO t VALUES (8, 30, 0) ON DUPLICATE KEY UPDATE id = 9, v = 3",
        ),
    ),
    "keys_that_change_places": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        ),
        KEY_MOVES,
    ),
    "keys_at_the_ends_of_their_type": Odd(
        (
            "CREATE TABLE t (id BIGINT, u BIGINT UNSIGNED, v INT, PRIMARY KEY (id, u))",
            "INSERT INTO t VALUES (-9223372036854775808, 18446744073709551615, 1), "
            "(9223372036854775807, 0, 2)",
        ),
        (
            "UPDATE t SET v = v + 1",
            "INSERT INTO t VALUES (9223372036854775807, 18446744073709551615, 3)",
        ),
    ),
    "a_trigger": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE t_seen (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
            "CREATE TRIGGER t_tr AFTER INSERT ON t FOR EACH ROW "
            "INSERT INTO t_seen (v) VALUES (NEW.v)",
            "INSERT INTO t VALUES (1, 1)",
        ),
        ("INSERT INTO t VALUES (2, 2), (3, 3)",),
    ),
    "rows_loaded_from_a_file": Odd(
        ("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",),
        ("LOAD DATA LOCAL INFILE '{folder}/rows' INTO TABLE t",),
    ),
    "a_temporary_table_of_its_name": Odd(
        ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)"),
        (
            "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1), (2), (3)",
            "DELETE FROM t WHERE id = 1",
            "TRUNCATE TABLE t",
            "DROP TEMPORARY TABLE t",
            "UPDATE t SET v = 2",
        ),
    ),
    "tables_changed_in_one_statement": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE t_too (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "INSERT INTO t_too VALUES (1, 1), (2, 2)",
        ),
        (
            "UPDATE t JOIN t_too USING (id) SET t.v = 5, t_too.v = 6 WHERE id = 1",
            "DELETE t, t_too FROM t JOIN t_too USING (id) WHERE id = 2",
        ),
    ),
    "partitions_that_go": Odd(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p1 "
            "VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (20), "
            "PARTITION p3 VALUES LESS THAN (30), PARTITION p4 VALUES LESS THAN MAXVALUE)",
            "INSERT INTO t VALUES (1, 1), (11, 1), (21, 1), (31, 1)",
            "CREATE TABLE t_out (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t_out VALUES (25, 5)",
        ),
        (
            "ALTER TABLE t DROP PARTITION p1",
            "ALTER TABLE t TRUNCATE PARTITION p2",
            "ALTER TABLE t EXCHANGE PARTITION p3 WITH TABLE t_out",
            "UPDATE t SET v = 7 WHERE id = 31",
        ),
    ),
    "a name `with.dots` and ü": Odd(
        (
            "CREATE TABLE t (`a ``b.c` INT PRIMARY KEY, `select` INT)",
            "INSERT INTO t VALUES (1, 1)",
        ),
        ("INSERT INTO t VALUES (2, 2)", "UPDATE t SET `select` = 3 WHERE `a ``b.c` = 1"),
    ),
}
ONLY = {
    "mysql": {
        "a_key_that_the_server_made": Odd(
            (
                "SET sql_generate_invisible_primary_key = 1",
                "CREATE TABLE t (v INT)",
                "INSERT INTO t VALUES (1), (1), (2)",
            ),
            ("UPDATE t SET v = 3 WHERE v = 2", "DELETE FROM t WHERE v = 1 LIMIT 1"),
        ),
    },
    "mariadb": {
        "a_collation_of_today": Odd(
            (
                "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb4_uca1400_ai_ci, "
                "w VARCHAR(20) CHARACTER SET ucs2 COLLATE ucs2_uca1400_as_cs)",
                "INSERT INTO t VALUES (1, 'größe €', '漢')",
            ),
            ("INSERT INTO t VALUES (2, 'ж', 'é')", "UPDATE t SET w = 'ß' WHERE id = 1"),
        ),
        "a_sequence": Odd(
            (
                "CREATE SEQUENCE t_numbers",
                "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
                "INSERT INTO t VALUES (NEXTVAL(t_numbers), 1)",
            ),
            ("INSERT INTO t VALUES (NEXTVAL(t_numbers), 2)", "SELECT SETVAL(t_numbers, 100)"),
        ),
    },
}


class OddTables:
    """What is so from any family of servers to any other."""

    def test_odd_tables_and_statements_arrive_as_the_source_has_them(
        self,
        shop: Shop,
        fresh_database: Callable[[SqlServer], str],
        family: str,
        zone_with_gaps: None,
    ) -> None:
        cases = EVERYWHERE | ONLY[family]
        (shop.path.parent / "rows").write_text("1\tone\n2\t\\N\n3\tü\n", encoding="utf-8")
        text = shop.path.read_text()
        shop.path.write_text(text.replace("sink:", "  zero_dates: text\nsink:", 1))
        elsewhere = fresh_database(shop.source)
        shop.source.execute("CREATE TABLE orders (other INT PRIMARY KEY)", database=elsewhere)
        for name, case in cases.items():
            carry_out(shop, name, case.before)
        caught_up(shop)
        for name, case in cases.items():
            carry_out(shop, name, case.after)
        shop.source.execute("INSERT INTO orders VALUES (1), (99)", database=elsewhere)
        caught_up(shop)
        assert [t for t in tables(shop) if printed(shop, t, 0) != printed(shop, t, 1)] == []
        assert len(tables(shop)) >= len(cases)


class TestMySql(OddTables):
    @pytest.fixture
    def family(self) -> str:
        return "mysql"


class TestFromMariaDb(OddTables):
    @pytest.fixture
    def family(self) -> str:
        return "mariadb"

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(OddTables):
    @pytest.fixture
    def family(self) -> str:
        return "mysql"

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestMariaDb(OddTables):
    @pytest.fixture
    def family(self) -> str:
        return "mariadb"

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def test_unique_values_move_between_rows_of_a_table_that_has_no_key_all_the_same(
    shop: Shop,
) -> None:
    kinds = ("a INT UNIQUE", "a INT, b INT, UNIQUE (a, b)", "a TEXT NOT NULL, UNIQUE (a(5))")
    for number, kind in enumerate(kinds):
        shop.at_source(f"CREATE TABLE keyless{number} ({kind}, n INT)")
        shop.at_source(f"INSERT INTO keyless{number} (a, n) VALUES (1, 1), (2, 2), (3, 3)")
    catch_up(shop)
    for number in range(len(kinds)):
        for change in ("a = 9 WHERE n = 1", "a = 1 WHERE n = 2", "a = 2 WHERE n = 1"):
            shop.at_source(f"UPDATE keyless{number} SET {change}")
    catch_up(shop)
    for number in range(len(kinds)):
        rows = shop.sink_rows(f"SELECT CAST(a AS SIGNED), n FROM keyless{number} ORDER BY n")
        assert rows == [(2, 1), (1, 2), (3, 3)]


def test_a_sink_that_was_put_back_from_a_backup_is_brought_up_to_date_from_there(
    shop: Shop, tmp_path: Path
) -> None:
    """The ledger goes back with the rows, so what came since is applied again."""
    with MySqlServer() as sink:
        sink.execute(f"CREATE DATABASE {shop.target}")
        shop.sink = sink
        shop.environment["DR_DSN"] = sink.dsn()
        caught_up(shop)
        shop.at_source("UPDATE orders SET note = 'before' WHERE id = 1")
        caught_up(shop)
        backup = copied(sink, tmp_path / "backup")
        shop.at_source("UPDATE orders SET note = 'behind' WHERE id = 2")
        shop.at_source("DELETE FROM orders WHERE id = 3")
        caught_up(shop)
        sink.stop()
        put_back(sink, backup)
        sink.start()
        assert len(printed(shop, "orders", 1)) == 3
        shop.at_source("INSERT INTO orders VALUES (4, 'later', 40)")
        caught_up(shop)
        assert printed(shop, "orders", 0) == printed(shop, "orders", 1)


def copied(server: MySqlServer, folder: Path) -> Path:
    """Copy a server's data, while it rests."""
    server.stop()
    shutil.copytree(server.datadir, folder)
    server.start()
    return folder


def put_back(server: MySqlServer, folder: Path) -> None:
    shutil.rmtree(server.datadir)
    shutil.copytree(folder, server.datadir)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream here from GTIDs alone, too, where how much log is left is not known."""
    monkeypatch.setattr(small_work, "_log_left", lambda _: "all")


@pytest.fixture
def zone_with_gaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live where 2024-03-10 02:30 never was."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def carry_out(shop: Shop, name: str, statements: Sequence[str]) -> None:
    """Run a case's statements on its own table in one session of odd settings."""
    quoted = "`" + name.replace("`", "``") + "`"
    with closing(shop.source.connect(shop.database, local_infile=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
        for statement in statements:
            named = re.sub(r"\bt(_\w+)?\b(?!')", lambda m: _named(quoted, m[1]), statement)
            cursor.execute(named.replace("{folder}", str(shop.path.parent)))


def _named(quoted: str, part: str | None) -> str:
    return f"{quoted[:-1]}{part or ''}`"


def caught_up(shop: Shop) -> None:
    for _ in range(2):  # the second one reads again what a definition changed
        with shop.run() as run:
            run_until_caught_up(run, SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs"))


def tables(shop: Shop) -> list[str]:
    found = shop.source.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s "
        "AND table_type = 'BASE TABLE'",
        (shop.database,),
    )
    return sorted(str(row[0]) for row in found)


def printed(shop: Shop, table: str, side: int) -> list[tuple[object, ...]]:
    """Give a table's rows as the server prints them, in the order of all columns."""
    server, database = [(shop.source, shop.database), (shop.sink, shop.target)][side]
    names = shop.source.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s "
        "AND table_name = %s ORDER BY ordinal_position",
        (shop.database, table),
    )
    columns = ", ".join("`" + str(row[0]).replace("`", "``") + "`" for row in names)
    quoted = table.replace("`", "``")
    with closing(server.connect(database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET time_zone = '+00:00'")
        texts = ", ".join(
            f"HEX(CAST({each} AS CHAR CHARACTER SET utf8mb4))" for each in columns.split(", ")
        )
        cursor.execute(f"SELECT {texts} FROM `{quoted}`")
        return sorted(cursor.fetchall(), key=str)
