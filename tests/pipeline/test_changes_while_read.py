"""A table whose definition changes while it is first read begins again, alone."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from airflow_cdc_provider.core.errors import (
    PreflightError,
    RefusedError,
    TableChangedError,
)
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import SilentListener
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps import converging
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.start_jobs import snapshot
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.source import snapshot_reader
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from tests.pipeline.altered_tables import catch_up, change, is_equal
from tests.pipeline.changes_while_read import make
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

CHANGES = {
    "a new column": ["ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7"],
    "a column less": ["ALTER TABLE orders DROP COLUMN note"],
    "another name": ["ALTER TABLE orders CHANGE note remark VARCHAR(60)"],
    "other values": ["UPDATE orders SET note = id", "ALTER TABLE orders MODIFY note INT"],
    "another key": ["ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (flag, id)"],
    "a key of texts": [
        "ALTER TABLE orders ADD COLUMN code VARCHAR(9) COLLATE utf8mb4_bin NOT NULL DEFAULT ''",
        "UPDATE orders SET code = CONCAT('c', id)",
        "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (code)",
    ],
    "all rows taken away": ["TRUNCATE TABLE orders"],
    "a table like it in its place": [
        "CREATE TABLE orders_new LIKE orders",
        "INSERT INTO orders_new SELECT id + 1, 'new', flag FROM orders",
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
    ],
    "another table in its place": [
        "CREATE TABLE orders_new LIKE orders",
        "ALTER TABLE orders_new ADD COLUMN more INT",
        "INSERT INTO orders_new SELECT id + 1, 'new', flag, id FROM orders",
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
    ],
    "dropped and made again": [
        "DROP TABLE orders",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, flag INT, more TEXT)",
        "INSERT INTO orders VALUES (1, 2, 'three'), (40, 5, 'six')",
    ],
}
BETWEEN = "before_low"
"""Before the second split of a table is read."""
INSIDE = ("after_low", "before_high")
"""While its rows are read: MariaDB lets no definition change then."""
BEHIND = ("after_high", "handed_off")
"""Before it is published, and when all tables are read."""
AT_ANY_TIME = (
    "a new column",
    "another key",
    "all rows taken away",
    "another table in its place",
)

KILLED = {
    "handed off": ("engine.ledger.ledger", "Ledger", "store_stream"),
    "changed at the sink": ("systems.mysql.sink.table_builder", "MySqlTableBuilder", "change"),
    "in the plan": ("state.store", "SqlStateStore", "change_plan"),
    "told the stream": ("engine.ledger.ledger", "Ledger", "end_change"),
}
"""Right behind what a process is killed, while a table begins again."""
NOT_PLANNED = "ALTER TABLE orders DROP PRIMARY KEY, DROP COLUMN id, ADD PRIMARY KEY (flag)"
"""Its splits cannot even be planned by the former key."""
_KILLED = """\
import importlib, os, signal, sys
from pathlib import Path
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_run
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
_, file, module, owner, name = sys.argv
owner = getattr(importlib.import_module(f"airflow_cdc_provider.{module}"), owner)
act = getattr(owner, name)
def killed(*args, **kwargs):
    act(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, killed)
with open_run(load_pipeline(Path(file)), EnvironmentDsns(os.environ)) as run:
    run_until_caught_up(run, SparkOptions("spark://127.0.0.1:1"))
"""


@dataclass
class Moments(SilentListener):
    """Changes tables at moments of their second splits, and writes to them at every moment."""

    shop: Shop
    at: dict[str, tuple[str, Sequence[str]]]
    """By table: the moment, and what happens then."""
    reads: Counter[str] = field(default_factory=Counter)
    """How often each split was read."""
    is_quiet: bool = False
    """Nothing is written."""
    _changed: set[str] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(100))

    def before_low(self, split: SnapshotSplit) -> None:
        self.reads[split.split_id] += 1
        self._pass("before_low", split)

    def after_low(self, split: SnapshotSplit) -> None:
        self._pass("after_low", split)

    def before_high(self, split: SnapshotSplit) -> None:
        self._pass("before_high", split)

    def after_high(self, split: SnapshotSplit) -> None:
        self._pass("after_high", split)

    def handed_off(self) -> None:
        for name, (moment, _) in self.at.items():
            if moment == "handed_off":
                self._change(name)

    def _pass(self, moment: str, split: SnapshotSplit) -> None:
        name = split.table.table
        of_table = sum(each.startswith(f"{split.table}#") for each in self.reads)
        if of_table == 2 and self.at.get(name, ("",))[0] == moment:
            self._change(name)
        self._write(name)

    def _change(self, name: str) -> None:
        if name not in self._changed:
            self._changed.add(name)
            change(self.shop, name, self.at[name][1])
            self._write(name)

    def _write(self, name: str) -> None:
        if self.is_quiet:
            return
        number = next(self._numbers)
        statements = [
            "UPDATE orders SET flag = flag + 100 WHERE flag % 3 = 1",
            "UPDATE orders SET id = id + 1000 WHERE flag % 7 = 3",
            "DELETE FROM orders WHERE flag % 5 = 4 LIMIT 1",
            f"INSERT IGNORE INTO orders (id, flag) VALUES ({number}, {number}), (-{number}, 1)",
        ]
        change(self.shop, name, statements)


@pytest.fixture
def moments(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Moments:
    """Splits of three rows each; what is to happen is put into `at`."""
    with shop.path.open("a") as file:
        file.write("snapshot: {split_rows: 3}\n")
    made = Moments(shop, {})
    monkeypatch.setattr(snapshot_reader, "SilentListener", lambda: made)

    def late(run: Run) -> object:
        made.handed_off()
        return hand_off(run)

    monkeypatch.setattr(converging, "hand_off", late)
    return made


class Begun:
    """What is so from any family of servers to any other."""

    other_moments: Sequence[str] = (*INSIDE, *BEHIND)

    def test_a_table_that_changes_begins_again_and_the_others_are_read_once(
        self, shop: Shop, moments: Moments
    ) -> None:
        at = [(BETWEEN, case) for case in CHANGES]
        at += list(itertools.product(self.other_moments, AT_ANY_TIME))
        cases = {f"orders{number}": case for number, case in enumerate(at)}
        make(shop, [*cases, "whole"])
        moments.at = {name: (moment, CHANGES[case]) for name, (moment, case) in cases.items()}
        run = catch_up(shop)
        assert {case for name, case in cases.items() if not is_equal(shop, name)} == set()
        assert is_equal(shop, "whole")
        whole = [n for split, n in moments.reads.items() if split.startswith(f"{shop.database}.w")]
        assert (len(whole) >= 3, set(whole)) == (True, {1})
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}


class TestMySql(Begun):
    def test_where_all_tables_change_all_begin_again(
        self, shop: Shop, moments: Moments, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(shop, ["orders1", "orders2"])
        moments.at = {
            "orders1": (BETWEEN, CHANGES["another key"]),
            "orders2": (
                BETWEEN,
                [*CHANGES["another name"], "ALTER TABLE orders ADD UNIQUE KEY marks (remark)"],
            ),
        }
        run = catch_up(shop)
        assert is_equal(shop, "orders1")
        assert is_equal(shop, "orders2")
        assert columns_at_sink(shop, "orders2") == ["flag", "id", "remark"]
        keys = shop.sink_rows("SHOW INDEX FROM orders2 WHERE key_name = 'marks'")
        assert [key[4] for key in keys] == ["remark"]
        told = [event.text for event in run.store.events(run.name)]
        assert sum("was changed at the source while it was read" in text for text in told) == 2
        assert "table begins again" in caplog.text
        assert "`reset`" not in caplog.text

    @pytest.mark.parametrize("point", KILLED)
    def test_a_process_that_is_killed_while_a_table_begins_again_is_followed(
        self, shop: Shop, point: str
    ) -> None:
        make(shop, ["orders1", "orders2", "whole"])
        run = shop.run()
        plan(run)
        give_back(run)
        change(shop, "orders1", CHANGES["a new column"])
        change(shop, "orders2", [NOT_PLANNED])
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED, str(shop.path), *KILLED[point]],
            env={**os.environ, **shop.environment},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        change(shop, "orders1", ["UPDATE orders SET more = 8"])
        run = catch_up(shop)
        assert all(is_equal(shop, name) for name in ("orders1", "orders2", "whole"))
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}

    def test_a_policy_or_preflight_may_refuse_what_a_table_has_become(
        self, shop: Shop, moments: Moments
    ) -> None:
        with shop.path.open("a") as file:
            file.write("schema_changes: {add_column: stop}\n")
        make(shop, ["orders1", "orders2", "whole"])
        moments.at = {
            "orders1": (BETWEEN, ["ALTER TABLE orders ENGINE = MyISAM"]),
            "orders2": (BETWEEN, CHANGES["a new column"]),
        }
        with pytest.raises(PreflightError, match="ENGINE = MyISAM"):
            catch_up(shop)
        rebuilt = "ALTER TABLE orders ENGINE = InnoDB, DROP PRIMARY KEY, ADD PRIMARY KEY (flag, id)"
        change(shop, "orders1", [rebuilt])
        for _ in range(2):
            with pytest.raises(TableChangedError, match="add_column: stop"):
                catch_up(shop)
        assert not shop.run().store.is_handed_off(shop.run().name)
        shop.path.write_text(shop.path.read_text().replace("add_column: stop", "truncate: stop"))
        catch_up(shop)
        assert all(is_equal(shop, name) for name in ("orders1", "orders2", "whole"))

    def test_a_new_column_is_left_out_if_the_file_says_so(
        self, shop: Shop, moments: Moments
    ) -> None:
        with shop.path.open("a") as file:
            file.write("schema_changes: {add_column: ignore}\n")
        make(shop, ["orders1", "whole"])
        moments.at = {"orders1": (BETWEEN, CHANGES["a new column"])}
        before = shop.source.execute("SHOW COLUMNS FROM orders1", database=shop.database)
        run = catch_up(shop)
        assert len(shop.sink_rows("SHOW COLUMNS FROM orders1")) == len(before)
        assert verify(run, settle_s=5).equal

    def test_a_table_that_is_gone_stops_the_run_by_name_and_comes_back_whole(
        self, shop: Shop, moments: Moments
    ) -> None:
        make(shop, ["orders1", "whole"])
        shop.path.write_text(shop.path.read_text().replace("orders1", "orders*", 1))
        moments.at = {
            "orders1": (BETWEEN, ["RENAME TABLE orders TO away"]),
            "whole": (BETWEEN, CHANGES["a new column"]),
        }
        moments.is_quiet = True
        for _ in range(2):
            with pytest.raises(RefusedError, match=r"cannot be read, the first is .*orders1"):
                catch_up(shop)
        change(shop, "orders1", ["RENAME TABLE away TO orders", "UPDATE orders SET flag = 5"])
        catch_up(shop)
        assert is_equal(shop, "orders1")
        assert is_equal(shop, "whole")

    @pytest.mark.parametrize("is_behind", [False, True])
    def test_a_change_while_its_definition_is_looked_at_is_noticed(
        self, shop: Shop, moments: Moments, monkeypatch: pytest.MonkeyPatch, *, is_behind: bool
    ) -> None:
        make(shop, ["orders1", "whole"])
        moments.at = {"orders1": (BETWEEN, CHANGES["a new column"])}
        look, looked = MySqlLogEnd.seen, []

        def late(self: MySqlLogEnd) -> MySqlPosition:
            at = look(self) if is_behind else None
            looked.append(at)
            if len(looked) == 1:
                change(shop, "orders1", ["ALTER TABLE orders ADD COLUMN most INT DEFAULT 8"])
                change(shop, "orders1", ["UPDATE orders SET most = 9, flag = flag + 1"])
            return at or look(self)

        monkeypatch.setattr(MySqlLogEnd, "seen", late)
        run = catch_up(shop)
        assert len(looked) == 2
        assert is_equal(shop, "orders1")
        assert len(run.store.requests(run.name)) == 1

    @pytest.mark.spark
    def test_readers_in_spark_set_a_changed_table_aside_too(self, shop: Shop) -> None:
        make(shop, ["orders1", "orders2", "whole"])
        plan(shop.run())
        change(shop, "orders1", CHANGES["a new column"])
        change(shop, "orders2", CHANGES["another key"])
        run = shop.run()
        options = SparkOptions("local[2]", log_folder=shop.path.parent / "logs", always=True)
        done = snapshot(run, options)
        assert done is not None
        assert (done.log is None, done.result["rows"]) == (False, 9)
        hand_off(run)
        catch_up(shop)
        assert all(is_equal(shop, name) for name in ("orders1", "orders2", "whole"))


class TestFromMariaDb(Begun):
    other_moments = BEHIND

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Begun):
    other_moments = ()  # the same to a sink

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def columns_at_sink(shop: Shop, table: str) -> list[str]:
    return sorted(str(row[0]) for row in shop.sink_rows(f"SHOW COLUMNS FROM {table}"))
