"""Several tables of the source in one table of a lake, each with its own rows and columns."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RefusedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.engine.stream import schema_changes
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.pipeline.steps.table_membership import (
    remove_tables,
    reset_tables,
)
from airflow_cdc_provider.systems.file_log.joins import LogJoinSink
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.lake.preflight import LakeCode
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.pipeline.settings import SALT
from tests.systems.lake.damage import dropped

MADE = (
    "CREATE TABLE orders_1 (id INT PRIMARY KEY, note VARCHAR(20), n INT, d DECIMAL(8,2))",
    "CREATE TABLE orders_2 (id INT PRIMARY KEY, n INT, born DATE, note VARCHAR(40))",
    "CREATE TABLE orders_3 (id INT PRIMARY KEY, state ENUM('a', 'b'))",
    "CREATE TABLE others (id INT PRIMARY KEY)",
    "INSERT INTO orders_1 VALUES (1, 'one', 10, 1.5), (2, 'two', 20, NULL), (3, NULL, NULL, 3)",
    "INSERT INTO orders_2 VALUES (1, 5, NULL, 'x'), (2, NULL, '2001-02-03', 'y'), (4, 1, NULL, '')",
    "INSERT INTO orders_3 VALUES (1, 'a'), (2, 'b'), (9, NULL)",
    "INSERT INTO others VALUES (1)",
)
SHARED = """tables:
  "{source}.orders_*":
    shard: {{column: shop, value: table}}
"""


class Shards:
    """A pipeline whose tables `orders_*` are one in a lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.shop = lake, lake.shop

    @classmethod
    def of(cls, shop: Shop, form: str, more: str = "") -> Shards:
        """Turn a shop's file into one of such a pipeline; `more` is said of its tables."""
        shop.path.write_text(
            FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
        )
        lake = Lake.of(shop, form)
        text = shop.path.read_text().replace(
            "  commit_seconds: 1\n",
            f'  commit_seconds: 1\n  route: {{"{shop.database}.orders_*": '
            f'"{shop.database}.orders"}}\n',
        )
        policy = "schema_changes: {drop_column: apply, drop_table: apply}\n"
        shop.path.write_text(text + policy + SHARED.format(source=shop.database) + more)
        for statement in MADE:
            shop.at_source(statement)
        return cls(lake)

    def table(self, number: int) -> TableId:
        """Return the name of a shard."""
        return TableId(self.shop.database, f"orders_{number}")

    def do(self, *statements: str) -> None:
        """Run statements at the source, and catch up."""
        for statement in statements:
            self.shop.at_source(statement)
        self.lake.catch_up()

    def require_union(self, but: Sequence[str] = ()) -> list[str]:
        """Require that the lake has what a UNION ALL of the shards gives; return its columns."""
        found = [row for row in self.rows() if row["shop"] not in but]
        wanted = [row for row in self.wanted() if row["shop"] not in but]
        names = sorted({name for row in (*found, *wanted) for name in row if name[0] != "_"})
        assert _texts(found, names) == _texts(wanted, names)
        rows = self.lake.changes("orders").to_pylist()
        orders = [row["_order"] for row in rows if row["_order"] >= 0 and not row.get("_deleted")]
        assert len({*orders}) == len(orders)
        return names

    def require_equal(self) -> None:
        """Require the union, and that our own comparison finds each table as it is."""
        self.require_union()
        report = self.lake.verified()
        assert {*self.tables()} <= {verdict.table.table for verdict in report.tables}
        assert report.equal, report

    def tables(self) -> list[str]:
        """Return the names of the shards that the source has."""
        found = self.shop.source.execute(
            "SHOW TABLES LIKE 'orders\\_%'", database=self.shop.database
        )
        return sorted(str(row[0]) for row in found)

    def wanted(self) -> list[dict[str, Any]]:
        """Return the source's rows, with the names of their tables."""
        rows = []
        for table in self.tables():
            names = [
                str(row[0])
                for row in self.shop.source.execute(
                    f"SHOW COLUMNS FROM {table}", database=self.shop.database
                )
            ]
            query = f"SELECT {', '.join(names)} FROM {table}"
            found = self.shop.source.execute(query, database=self.shop.database)
            rows += [{"shop": table, **dict(zip(names, row, strict=True))} for row in found]
        return rows

    def numbers(self, table: str) -> dict[int, int | None]:
        """Return the numbers of a shard's current rows by their keys."""
        return {row["id"]: row["n"] for row in self.rows() if row["shop"] == table}

    def marked(self) -> list[tuple[str, int]]:
        """Return the rows that are marked as deleted."""
        rows = self.lake.changes("orders").to_pylist()
        return sorted((row["shop"], row["id"]) for row in rows if row["_deleted"])

    def rows(self) -> list[dict[str, Any]]:
        """Return the lake's current rows, by the query that `show` prints."""
        return self.lake.current_rows("orders")


def _texts(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(row.get(name)) for name in names) for row in rows)


@pytest.fixture(params=FORMS)
def shards(empty_shop: Shop, request: pytest.FixtureRequest) -> Shards:
    """Three tables that go to one of a lake, of each form, and one beside them."""
    return Shards.of(empty_shop, request.param)


def test_three_tables_are_one_and_each_change_of_one_leaves_the_others_rows(
    shards: Shards,
) -> None:
    assert not check(shards.shop.run()).blocks
    shards.do()
    assert shards.require_union() == ["born", "d", "id", "n", "note", "shop", "state"]
    shards.require_equal()
    shards.do(
        "DELETE FROM orders_1 WHERE id = 2",
        "UPDATE orders_2 SET id = 100, n = 7 WHERE id = 1",
        "INSERT INTO orders_2 VALUES (3, 3, NULL, 'three'), (2000, 4, NULL, NULL)",
        "UPDATE orders_3 SET state = NULL",
    )
    shards.require_equal()
    shards.do(
        "INSERT INTO orders_1 VALUES (50, 'before', 1, 1)",
        "TRUNCATE TABLE orders_2",
        "INSERT INTO orders_2 VALUES (3, 33, NULL, 'again')",
        "UPDATE orders_1 SET n = n + 1",
    )
    shards.require_equal()
    shards.do("TRUNCATE TABLE orders_3", "TRUNCATE TABLE orders_2", "DELETE FROM orders_1")
    assert shards.rows() == []
    shards.do("INSERT INTO orders_3 VALUES (1, 'b')", "INSERT INTO orders_1 (id) VALUES (1)")
    shards.require_equal()


def test_definitions_of_shards_change_one_by_one(shards: Shards) -> None:
    shards.do()
    shards.do("ALTER TABLE orders_1 ADD COLUMN mark INT", "INSERT INTO orders_1 (id) VALUES (5)")
    shards.do("ALTER TABLE orders_3 ADD COLUMN mark INT", "UPDATE orders_3 SET mark = id")
    shards.require_equal()
    shards.do("ALTER TABLE orders_2 ADD COLUMN rank_ INT NOT NULL DEFAULT 3")
    shards.require_equal()
    shards.do("ALTER TABLE orders_1 DROP COLUMN mark", "INSERT INTO orders_1 (id) VALUES (6)")
    shards.do("ALTER TABLE orders_1 DROP COLUMN note")
    reset_tables(shards.shop.run(), [shards.table(1)])
    shards.do()
    shards.require_equal()
    shards.do(
        "CREATE TABLE copy_of_3 (id INT PRIMARY KEY, state ENUM('a'), other INT)",
        "INSERT INTO copy_of_3 VALUES (1, 'a', 5), (77, NULL, 6)",
        "RENAME TABLE orders_3 TO old_3, copy_of_3 TO orders_3",
    )
    shards.require_equal()


def test_a_shard_comes_later_and_goes_without_the_others(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_changes, "COMES_BACK_S", 0.0)
    shards.do()
    shards.do(
        "CREATE TABLE orders_4 (id INT PRIMARY KEY, extra INT)",
        "INSERT INTO orders_4 VALUES (1, 11), (2, 22)",
    )
    shards.do("UPDATE orders_4 SET extra = 23 WHERE id = 2", "DELETE FROM orders_1 WHERE id = 1")
    shards.require_equal()
    shards.do("DROP TABLE orders_3", "INSERT INTO orders_1 (id) VALUES (70)")
    shards.require_equal()
    path = shards.shop.path
    path.write_text(path.read_text().replace("sink:", f"  exclude: [{shards.table(4)}]\nsink:", 1))
    remove_tables(shards.shop.run(), [shards.table(4)])
    shards.do("UPDATE orders_1 SET n = 4")
    rows = shards.rows()
    assert sorted(row["id"] for row in rows if row["shop"] == "orders_4") == [1, 2]
    shards.require_union(but=["orders_4"])
    path.write_text(
        path.read_text().replace(f"{shards.table(4)}]", f"{shards.table(4)}, {shards.table(2)}]")
    )
    remove_tables(shards.shop.run(), [shards.table(2)], drop_targets=True)
    shards.do("UPDATE orders_1 SET n = 5")
    assert {row["shop"] for row in shards.rows()} == {"orders_1", "orders_4"}
    reset(shards.shop.run())
    shards.do()
    assert {row["shop"] for row in shards.rows()} == {"orders_1"}
    shards.require_union(but=["orders_2", "orders_4"])


def test_rows_of_one_shard_are_read_again_alone(shards: Shards) -> None:
    shards.do()
    shards.lake.unlogged(
        "UPDATE orders_1 SET note = 'other' WHERE id = 2",
        "DELETE FROM orders_1 WHERE id = 3",
        "INSERT INTO orders_1 (id) VALUES (12)",
        "DELETE FROM orders_2 WHERE id = 4",
    )
    report = shards.lake.verified()
    assert [verdict.equal for verdict in report.tables] == [False, False, True, True], report
    for number in (1, 2):
        run = shards.shop.run()
        request = ask_resync(run, resync_scope(run, [str(shards.table(number))]))
        shards.do("UPDATE orders_3 SET state = 'a'")
        assert known(run, request.request_id).status is RequestStatus.DONE
        shards.require_union(but=["orders_2"] if number == 1 else [])
    shards.require_equal()
    for numbers in ([2], [1, 2, 3]):
        reset_tables(shards.shop.run(), [shards.table(number) for number in numbers])
        shards.do("UPDATE orders_3 SET state = 'b'", "INSERT INTO orders_2 (id) VALUES (80)")
        shards.shop.at_source("DELETE FROM orders_2 WHERE id = 80")
        shards.do()
        shards.require_equal()


def test_parts_of_a_shard_are_read_again_by_what_finds_them(shards: Shards) -> None:
    shards.do()
    shards.lake.unlogged(
        "UPDATE orders_1 SET n = -1", "DELETE FROM orders_1 WHERE id = 3", "DELETE FROM orders_2"
    )
    run, table = shards.shop.run(), str(shards.table(1))
    scope = resync_scope(run, [table], from_key="1", to_key="2")
    (counted,) = estimate(run, scope).tables
    assert (counted.source_rows, counted.sink_rows) == (1, 1)
    ask_resync(run, scope)
    shards.do()
    assert shards.numbers("orders_1") == {1: -1, 2: 20, 3: None}
    ask_resync(run, backfill_scope(run, table, "n", start="15", end="25"))
    shards.do()
    assert shards.numbers("orders_1") == {1: -1, 2: -1, 3: None}
    found = repairs(run, shards.lake.verified("orders_1"))
    assert len(ask_repairs(run, found)) == 1
    shards.do("INSERT INTO orders_2 (id) VALUES (2)")
    shards.require_union(but=["orders_2"])
    assert shards.numbers("orders_2") == {1: 5, 2: None, 4: 1}


def test_a_lake_table_that_is_gone_begins_again_with_all_of_its_shards(shards: Shards) -> None:
    shards.do()
    shards.do("UPDATE orders_1 SET n = 4")
    dropped(shards.lake.form, shards.lake.folder, TableId(shards.shop.database, "orders"))
    with pytest.raises(IntegrityError) as stopped:
        shards.do("UPDATE orders_2 SET n = 5", "INSERT INTO others VALUES (2)")
    named = " ".join(f"--table {shards.table(number)}" for number in (1, 2, 3))
    assert named in stopped.value.remedy
    assert shards.lake.changes("others").num_rows == 2
    reset_tables(shards.shop.run(), [shards.table(number) for number in (1, 2, 3)])
    shards.do("UPDATE orders_3 SET state = 'a'")
    shards.require_equal()


@pytest.mark.parametrize("form", ["iceberg_mirror", "delta_mirror"])
def test_deleted_rows_of_a_shard_stay_and_are_marked_alone(empty_shop: Shop, form: str) -> None:
    shards = Shards.of(empty_shop, form, "    deletes: soft\n")
    shards.do()
    shards.do("TRUNCATE TABLE orders_2", "DELETE FROM orders_3 WHERE id = 1")
    marked = [("orders_2", 1), ("orders_2", 2), ("orders_2", 4), ("orders_3", 1)]
    assert shards.marked() == marked
    shards.do("ALTER TABLE orders_1 ADD COLUMN mark INT NOT NULL DEFAULT 3")
    shards.do("INSERT INTO orders_2 (id) VALUES (1)", "UPDATE orders_1 SET n = 2")
    assert shards.marked() == marked[1:]
    shards.require_equal()
    shards.lake.unlogged("DELETE FROM orders_1 WHERE id = 1")
    reset_tables(shards.shop.run(), [shards.table(1)])
    shards.do()
    assert shards.marked() == [("orders_1", 1), *marked[1:]]
    shards.require_equal()
    reset_tables(shards.shop.run(), [shards.table(number) for number in (1, 2, 3)])
    shards.do("UPDATE orders_3 SET state = 'b'")
    assert shards.marked() == [("orders_1", 1), *marked[1:]]
    shards.require_equal()


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_do_not_go_together_are_refused_and_stop_one_alone(
    empty_shop: Shop, form: str
) -> None:
    shards = Shards.of(empty_shop, form)
    shards.shop.at_source("ALTER TABLE orders_2 MODIFY n VARCHAR(9)")
    (found,) = check(shards.shop.run()).blocks
    text = f"{shards.table(1)} and {shards.table(2)} cannot share a table: column n is int and "
    assert found.code == LakeCode.SHARED_TABLE
    assert text in found.observed
    with pytest.raises(RefusedError, match=re.escape(text)):
        shards.do()
    shards.shop.at_source("UPDATE orders_2 SET n = 1 WHERE n IS NULL")
    shards.do("ALTER TABLE orders_2 MODIFY n INT")
    shards.require_equal()
    with pytest.raises(TablesStoppedError, match=re.escape(text)):
        shards.do("ALTER TABLE orders_2 MODIFY n VARCHAR(9)", "UPDATE orders_1 SET n = 7")
    shards.require_union(but=["orders_2"])
    with pytest.raises(RefusedError, match="cannot share a table"):
        reset_tables(shards.shop.run(), [shards.table(2)])
    shards.shop.at_source("ALTER TABLE orders_2 RENAME COLUMN n TO number")
    reset_tables(shards.shop.run(), [shards.table(2)])
    shards.do("UPDATE orders_1 SET n = 8")
    shards.require_equal()


def test_a_type_that_one_shard_alone_has_changes_with_all_of_them(shards: Shards) -> None:
    shards.do()
    table, born = shards.table(2), "ALTER TABLE orders_2 MODIFY born VARCHAR(30)"
    with pytest.raises(TablesStoppedError, match="does not fit the table that it shares any more"):
        shards.do(born, "UPDATE orders_2 SET born = 'long ago'", "UPDATE orders_1 SET n = 7")
    shards.require_union(but=["orders_2"])
    with pytest.raises(RefusedError, match="does not fit the table that it shares any more"):
        reset_tables(shards.shop.run(), [table])
    reset_tables(shards.shop.run(), [shards.table(number) for number in (1, 2, 3)])
    shards.do("UPDATE orders_1 SET n = 8")
    shards.require_equal()


def test_the_value_that_tells_a_shard_apart_becomes_another(shards: Shards) -> None:
    shards.do()
    path = shards.shop.path
    own = f'  "{shards.table(2)}":\n    shard: {{column: shop, value: name}}\n'
    path.write_text(path.read_text() + own)
    reset_tables(shards.shop.run(), [shards.table(2)])
    shards.do("UPDATE orders_2 SET n = 6", "UPDATE orders_1 SET n = 6")
    rows = shards.rows()
    assert {row["shop"] for row in rows} == {"orders_1", str(shards.table(2)), "orders_3"}
    assert len(rows) == 9
    assert shards.lake.verified().equal


@pytest.mark.parametrize("form", FORMS)
def test_shards_in_partitions_with_hashes_of_their_keys(empty_shop: Shop, form: str) -> None:
    salted = "    columns: {mask: {id: {sha256: {salt_env: SHOP_SALT}}}}\n"
    empty_shop.environment["SHOP_SALT"] = SALT
    shards = Shards.of(empty_shop, form, f"    partition_by: [shop]\n{salted}")
    shards.do()
    shards.do(
        "UPDATE orders_1 SET id = id + 100",
        "DELETE FROM orders_2 WHERE id = 1",
        "INSERT INTO orders_2 (id, n) VALUES (101, 5)",
        "TRUNCATE orders_3",
        "INSERT INTO orders_3 VALUES (1, 'b')",
    )
    assert shards.lake.verified().equal
    found = sorted((row["shop"], str(row["n"]), str(row["state"])) for row in shards.rows())
    rows = [(row["shop"], str(row.get("n")), str(row.get("state"))) for row in shards.wanted()]
    assert found == sorted(rows)
    run = shards.shop.run()
    ask_resync(run, resync_scope(run, [str(shards.table(2))]))
    shards.do("DELETE FROM orders_2 WHERE id = 101")
    assert shards.lake.verified().equal


def test_no_reader_finds_half_of_a_shard(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    shards.do()
    join, seen = LogJoinSink.join, list[int]()

    def watched(sink: LogJoinSink, *given: Any, **named: Any) -> LogPosition | None:
        done = join(sink, *given, **named)
        run = shards.shop.run()
        place = Folder(str(shards.lake.folder), shards.lake.form).store
        generation = Manifest(open_files(place), "").read_any().generation
        plans = tuple(each.plan for each in run.store.tables(run.name))
        lake = sink_of(run, generation, plans)
        assert isinstance(lake, CommitsLater)
        lake.publish_tables()
        seen.append(len(shards.numbers("orders_1")))
        return done

    monkeypatch.setattr(LogJoinSink, "join", watched)
    reset_tables(shards.shop.run(), [shards.table(1), shards.table(2)])
    shards.do("UPDATE orders_3 SET state = 'b'", "DELETE FROM orders_1 WHERE id = 3")
    assert len(seen) >= 2
    assert {*seen} <= {2, 3}
    shards.require_equal()


def test_changes_at_random_leave_each_shard_as_its_source(shards: Shards) -> None:
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    shards.do()
    for _ in range(4):
        for _ in range(25):
            shards.shop.at_source(change(chance))
        if chance.random() < 0.5:
            again = chance.sample([1, 2, 3], chance.randrange(1, 4))
            reset_tables(shards.shop.run(), [shards.table(number) for number in again])
        shards.do()
        shards.require_union()
    shards.require_equal()


def change(chance: random.Random) -> str:
    """Return a statement that changes rows of one shard."""
    table, one, other = f"orders_{chance.choice('123')}", *(chance.randrange(8) for _ in "12")
    return chance.choices(
        [
            f"INSERT IGNORE INTO {table} (id) VALUES ({one}), ({other})",
            f"REPLACE INTO {table} (id) VALUES ({one})",
            f"UPDATE IGNORE {table} SET id = {one} WHERE id = {other}",
            f"DELETE FROM {table} WHERE id = {one}",
            f"TRUNCATE TABLE {table}",
        ],
        [4, 4, 4, 4, 1],
    )[0]
