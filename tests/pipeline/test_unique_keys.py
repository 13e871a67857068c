"""Tables without a primary key are copied by the unique key that their server stores rows by."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CdcError, PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up, change, is_equal
from tests.pipeline.conftest import Shop
from tests.pipeline.synced_shops import continuous
from tests.servers.given import SqlServer

TABLES = {
    "numbers": "id INT NOT NULL, n INT, UNIQUE KEY `the ``key` (id)",
    "counted": "n INT, id INT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE",
    "pairs": "n INT, part VARCHAR(9) COLLATE utf8mb4_bin NOT NULL, id INT NOT NULL, "
    "UNIQUE of_both (part DESC, id)",
    "words": "word VARCHAR(20) COLLATE utf8mb4_unicode_ci NOT NULL, id INT NOT NULL, n INT, "
    "UNIQUE (word), UNIQUE others (n, id)",
    "times": "at DATETIME(6) NOT NULL, id INT NOT NULL, n INT, UNIQUE (at, id), KEY (id)",
}
"""Each row is found by `id`, and some by more."""
KEYS = {
    "numbers": ["id"],
    "counted": ["id"],
    "pairs": ["part", "id"],
    "words": ["word"],
    "times": ["at", "id"],
}
ROWS = 400
KEY = Code.SINK_PRIMARY_KEY
_KILLED = """\
import importlib, os, signal, sys
from pathlib import Path
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_run
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
_, file, module, owner, name, left = sys.argv
owner = getattr(importlib.import_module(f"airflow_cdc_provider.{module}"), owner)
act, left = getattr(owner, name), [int(left)]
def killed(*args, **kwargs):
    found = act(*args, **kwargs)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
setattr(owner, name, killed)
with open_run(load_pipeline(Path(file)), EnvironmentDsns(os.environ)) as run:
    run_until_caught_up(run, SparkOptions("spark://127.0.0.1:1"))
"""
MOMENTS = {
    "some splits are read": ("systems.mysql.source.snapshot_reader", "SnapshotReader", "read", 7),
    "the stream has its start": ("engine.ledger.ledger", "Ledger", "store_stream", 1),
}


def row_of(table: str, number: int, n: int) -> str:
    """Return an INSERT, or more, that puts a row in the place of any with its key."""
    values = {
        "numbers": f"({number}, {n})",
        "counted": f"({n}, {number + 1})",
        "pairs": f"({n}, '{'aBc'[number % 3]}', {number})",
        "words": f"('{'wW'[n % 2]}{number}', {number}, {n})",
        "times": f"('2024-01-01' + INTERVAL {number // 2} SECOND, {number}, {n})",
    }
    return f"REPLACE INTO {table} VALUES {values[table]}"


def make(shop: Shop) -> None:
    """Make the tables and their rows, cut into many splits."""
    with shop.path.open("a") as file:
        file.write("snapshot: {split_rows: 50}\n")
    for table, definition in TABLES.items():
        shop.at_source(f"CREATE TABLE {table} ({definition})")
        change(shop, table, ["SET SESSION sql_mode = ''"])
        with closing(shop.source.connect(database=shop.database)) as connection:
            for number in range(ROWS):
                connection.cursor().execute(row_of(table, number, number))
            connection.commit()


@contextmanager
def written_to(shop: Shop) -> Iterator[None]:
    """Insert, change, move and delete rows of all tables until the end of the block."""
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    rng = random.Random(seed)
    with closing(shop.source.connect(database=shop.database)) as connection:
        cursor = connection.cursor()

        def write() -> None:
            table, number = rng.choice([*TABLES]), rng.randrange(2 * ROWS)
            one = f"id = {rng.randrange(2 * ROWS)}"
            cursor.execute(row_of(table, number, rng.randrange(9)))
            cursor.execute(f"UPDATE IGNORE {table} SET n = n + 1, id = id + 1 WHERE {one}")
            cursor.execute(f"DELETE FROM {table} WHERE id = {rng.randrange(2 * ROWS)}")
            connection.commit()

        with beside(write):
            yield


def is_alike(shop: Shop) -> bool:
    """Tell whether all tables are equal, by our own comparison and by what the servers print."""
    report = verify(shop.run(), settle_s=20)
    assert {table.table.table for table in report.tables if not table.equal} == set()
    assert len(report.tables) == len(TABLES) + 1
    return all(is_equal_by(shop, table) for table in TABLES)


def is_equal_by(shop: Shop, table: str) -> bool:
    names = shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
    texts = ", ".join(f"HEX({row[0]})" for row in names)
    query = f"SELECT {texts} FROM {table} ORDER BY {texts}"
    rows = shop.sink_rows(query)
    return bool(rows) and rows == list(shop.source.execute(query, database=shop.database))


def run_and_be_killed(shop: Shop, moment: str) -> None:
    module, owner, name, left = MOMENTS[moment]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(shop.path), module, owner, name, str(left)],
        env={**os.environ, **shop.environment},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream here however much log is left."""
    monkeypatch.setattr(small_work, "_log_left", lambda _: "all")


class UniqueKeys:
    def test_rows_arrive_whatever_is_written_killed_and_read_again(self, shop: Shop) -> None:
        make(shop)
        assert not check(shop.run()).blocks
        with written_to(shop):
            for moment in MOMENTS:
                run_and_be_killed(shop, moment)
            catch_up(shop)
        catch_up(shop)
        assert is_alike(shop)
        for table, key in KEYS.items():
            indexes = shop.sink_rows(f"SHOW INDEX FROM {table} WHERE key_name = 'PRIMARY'")
            assert [row[4] for row in indexes] == key
        run = shop.run()
        assert sum(each.split.table.table == "words" for each in run.store.splits(run.name)) > 5

    def test_rows_are_read_again_while_they_are_written(self, shop: Shop) -> None:
        make(shop)
        catch_up(shop)
        for table in TABLES:
            shop.sink.execute(f"DELETE FROM {table} WHERE id % 7 = 3", database=shop.target)
            shop.sink.execute(f"UPDATE {table} SET n = -1 WHERE id < 9", database=shop.target)
        names = {table: f"{shop.database}.{table}" for table in TABLES}
        run = shop.run()
        part = resync_scope(run, [names["numbers"]], from_key="100", to_key="200")
        (counted,) = estimate(run, part).tables
        assert (counted.source_rows, counted.sink_rows) == (100, 85)
        with written_to(shop), continuous(shop, []):
            ask_resync(run, part, request_id="part")
            ask_resync(run, resync_scope(run, [names["words"]], where="n < 300"), request_id="some")
            ask_resync(
                run,
                backfill_scope(run, names["times"], "id", start="50", end="250"),
                request_id="i",
            )
            wait_for(run, 3)
            ask_resync(run, resync_scope(run, [*names.values()]), request_id="all")
            wait_for(run, 4)
        catch_up(shop)
        assert is_alike(shop)

    def test_rows_that_differ_are_repaired(self, shop: Shop) -> None:
        make(shop)
        catch_up(shop)
        for table in TABLES:
            shop.sink.execute(f"UPDATE {table} SET n = -1 WHERE id = 30", database=shop.target)
            shop.sink.execute(f"DELETE FROM {table} WHERE id = 300", database=shop.target)
        run = shop.run()
        report = verify(run)
        asked = ask_repairs(run, repairs(run, report))
        assert len(asked) == len(TABLES)
        catch_up(shop)
        assert is_alike(shop)

    def test_a_table_comes_later_and_is_begun_again(self, shop: Shop) -> None:
        catch_up(shop)
        make(shop)
        catch_up(shop)
        run = catch_up(shop)
        assert is_alike(shop)
        shop.sink.execute("DROP TABLE numbers", database=shop.target)
        reset_tables(run, [TableId(shop.database, "numbers")])
        change(shop, "numbers", ["DELETE FROM numbers WHERE id < 100"])
        catch_up(shop)
        assert is_alike(shop)

    @pytest.mark.parametrize(
        "definition",
        [
            "a INT NOT NULL, b INT, UNIQUE `by it` (a)",
            "a INT NOT NULL, b INT, PRIMARY KEY (a)",
            "a INT NOT NULL, b INT, PRIMARY KEY (a), UNIQUE (a)",
        ],
    )
    def test_a_sink_table_made_by_hand_has_the_key_as_a_unique_or_a_primary_one(
        self, shop: Shop, definition: str
    ) -> None:
        shop.at_source("CREATE TABLE t (a INT NOT NULL, b INT, UNIQUE u (a), UNIQUE v (b))")
        shop.at_source("INSERT INTO t VALUES (1, 1), (2, 2), (3, NULL)")
        shop.sink.execute(f"CREATE TABLE t ({definition})", database=shop.target)
        assert not check(shop.run()).blocks
        catch_up(shop)
        change(
            shop,
            "t",
            [
                "UPDATE t SET b = NULL WHERE a = 2",
                "UPDATE t SET a = 9, b = 2 WHERE a = 1",
                "INSERT INTO t VALUES (1, 1), (4, NULL)",
            ],
        )
        catch_up(shop)
        assert is_equal(shop, "t")
        shop.sink.execute("UPDATE t SET b = 77 WHERE a = 9", database=shop.target)
        run = shop.run()
        name = f"{shop.database}.t"
        ask_resync(run, resync_scope(run, [name], from_key="4", to_key=None), request_id="part")
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal
        change(shop, "t", ["ALTER TABLE t ADD PRIMARY KEY (a)", "UPDATE t SET b = 5 WHERE a = 9"])
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal

    @pytest.mark.parametrize(
        ("definition", "told"),
        [
            ("a INT NOT NULL, b INT NOT NULL", "its primary key is missing"),
            ("a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (b)", r"its primary key is \(b\)"),
            ("a INT, b INT NOT NULL, UNIQUE (a)", "its primary key is missing"),
            (
                "a INT NOT NULL, b INT NOT NULL, UNIQUE (b), UNIQUE (a)",
                r"its key, for it has no primary one, is \(b\)",
            ),
        ],
    )
    def test_a_sink_table_with_another_key_is_refused_by_name(
        self, shop: Shop, definition: str, told: str
    ) -> None:
        shop.at_source("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE u (a))")
        shop.sink.execute(f"CREATE TABLE t ({definition})", database=shop.target)
        (finding,) = [each for each in check(shop.run()).blocks if each.code == KEY]
        with pytest.raises(CdcError, match=told):
            catch_up(shop)
        shop.sink.execute(finding.fix.rstrip(";"), database=shop.target)
        if "UNIQUE (b)" in definition:
            shop.sink.execute("ALTER TABLE t DROP INDEX b", database=shop.target)
        catch_up(shop)

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ("columns: {exclude: [id]}", "id of .*pairs is in its key"),
            ("columns: {include: [id, n]}", "part of .*pairs is in its key"),
            ("columns: {mask: {part: {first: 1}}}", "part of .*pairs is in its key"),
        ],
    )
    def test_its_columns_are_not_left_out_or_masked(
        self, shop: Shop, settings: str, why: str
    ) -> None:
        shop.at_source(f"CREATE TABLE pairs ({TABLES['pairs']})")
        with shop.path.open("a") as file:
            file.write(f'tables:\n  "{shop.database}.pairs": {{{settings}}}\n')
        with pytest.raises(PipelineFileError, match=why):
            check(shop.run())

    def test_a_change_log_has_its_columns_as_the_key(self, shop: Shop, tmp_path: Path) -> None:
        shop.at_source(
            "CREATE TABLE t (n INT, id INT NOT NULL, a INT, UNIQUE u (id), UNIQUE v (a))"
        )
        shop.at_source("INSERT INTO t VALUES (1, 1, 1), (2, 2, NULL)")
        text = shop.path.read_text().partition("sink:")[0]
        text = text.replace(f"{shop.database}.*", f"{shop.database}.t")
        shop.path.write_text(
            f"{text}sink: {{type: changelog, path: {tmp_path}/log, format: json}}\n"
        )
        catch_up(shop)
        change(shop, "t", ["UPDATE t SET n = 5 WHERE id = 2", "UPDATE t SET id = 9 WHERE id = 1"])
        catch_up(shop)
        lines = [
            json.loads(line)
            for file in sorted((tmp_path / "log").rglob("*.json*"))
            for line in file.read_text().splitlines()
        ]
        events = [each for each in lines if "op" in each]
        found = [(each["op"], each["key"]) for each in events]
        assert found == [
            *(("r", {"id": 1}), ("r", {"id": 2}), ("u", {"id": 2})),
            *(("d", {"id": 1}), ("c", {"id": 9})),
        ]

    def test_its_columns_get_other_names_at_the_sink(self, shop: Shop) -> None:
        make(shop)
        with shop.path.open("a") as file:
            file.write(
                f'tables:\n  "{shop.database}.pairs": '
                "{columns: {rename: {part: piece}}, where: n >= 100}\n"
            )
        catch_up(shop)
        change(shop, "pairs", ["UPDATE pairs SET n = 7 - n", "UPDATE pairs SET n = -n, id = -id"])
        run = catch_up(shop)
        keys = shop.sink_rows("SHOW INDEX FROM pairs WHERE key_name = 'PRIMARY'")
        assert [row[4] for row in keys] == ["piece", "id"]
        assert verify(run).equal
        name = f"{shop.database}.pairs"
        ask_resync(run, resync_scope(run, [name]), request_id="all")
        run = catch_up(shop)
        assert verify(run).equal
        assert shop.sink_rows("SELECT COUNT(*), MIN(n) FROM pairs") == [(293, 100)]


def test_a_table_with_another_key_since_the_state_was_lost_is_read_again(shop: Shop) -> None:
    shop.at_source("CREATE TABLE t (id INT NOT NULL, n INT, x INT NOT NULL, UNIQUE a (id))")
    shop.at_source("INSERT INTO t VALUES (10, 1, 1), (20, 2, 2)")
    catch_up(shop)
    # by the key that comes, the row that is there for a while is the first one
    for statement in (
        "INSERT INTO t VALUES (99, 9, 1)",
        "DELETE FROM t WHERE id = 99",
        "ALTER TABLE t DROP INDEX a, ADD UNIQUE b (x)",
        "UPDATE t SET n = 5 WHERE id = 20",
    ):
        shop.at_source(statement)
    shop.forget_state()
    shop.sink.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (x)", database=shop.target)
    catch_up(shop)
    assert is_equal_by(shop, "t")


def wait_for(run: Run, count: int) -> None:
    """Wait until so many requests are done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        requests = run.store.requests(run.name)
        assert RequestStatus.FAILED not in {each.status for each in requests}, requests
        if [each.status for each in requests] == [RequestStatus.DONE] * count:
            return
        time.sleep(0.2)
    raise AssertionError(run.store.requests(run.name))


class TestMySql(UniqueKeys):
    pass


class TestFromMariaDb(UniqueKeys):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(UniqueKeys):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
