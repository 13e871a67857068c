"""A table that is dropped or renamed at the source leaves the stream, and the others flow on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.stream import schema_changes
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.state.store import SqlStateStore
from airflow_cdc_provider.systems.mysql.sink.targets import MySqlTargets
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.servers.given import SqlServer

GONE = {
    "dropped": "DROP TABLE orders",
    "dropped with another": "DROP TABLE orders, more",
    "renamed": "RENAME TABLE orders TO old.orders",
    "renamed by alter": "ALTER TABLE orders ADD COLUMN n INT, RENAME TO old.orders",
}


@pytest.fixture(autouse=True)
def _stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no table to come back."""
    monkeypatch.setattr(schema_changes, "COMES_BACK_S", 0.0)


@pytest.fixture
def kept(shop: Shop, fresh_database: Callable[[SqlServer], str]) -> Shop:
    """A pipeline of three tables that are copied."""
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO others VALUES (1)")
    shop.at_source("CREATE TABLE more (id INT PRIMARY KEY)")
    synced(shop)
    return shop


def leave(shop: Shop, statement: str, elsewhere: str) -> None:
    """Write, let the table go, and write again to another."""
    shop.at_source("INSERT INTO orders (id) VALUES (7)")
    shop.at_source(statement.replace("old.", f"{elsewhere}."))
    shop.at_source("INSERT INTO others VALUES (2)")


def copied(run: Run) -> set[str]:
    return {state.table.table for state in run.store.tables(run.name)}


def told(run: Run) -> list[str]:
    return [e.text for e in run.store.events(run.name, 100) if e.text.startswith("not copied any")]


def policy(shop: Shop, text: str) -> None:
    with shop.path.open("a") as file:
        file.write(f"schema_changes: {{{text}}}\n")


class Leaving:
    """What is so from any family of servers to any other."""

    @pytest.mark.parametrize("case", GONE)
    def test_it_leaves_with_its_last_rows_at_the_sink_and_the_others_flow(
        self, kept: Shop, case: str, fresh_database: Callable[[SqlServer], str]
    ) -> None:
        leave(kept, GONE[case], fresh_database(kept.source))
        run = synced(kept)
        assert at_sink(kept, "others") == at_source(kept, "others")
        assert [row[0] for row in at_sink(kept, "orders")] == [1, 2, 3, 7]
        assert not copied(run) & {"orders"}
        assert f"{kept.database}.orders, which is gone" in " ".join(told(run))
        assert f"the rows in {kept.target}.orders stay" in " ".join(told(run))
        kept.at_source("INSERT INTO others VALUES (3)")
        assert verify(synced(kept), settle_s=0).equal

    def test_the_sinks_table_goes_with_it_where_the_file_says_so(
        self, kept: Shop, fresh_database: Callable[[SqlServer], str]
    ) -> None:
        policy(kept, "drop_table: apply")
        leave(kept, "DROP TABLE orders, more", fresh_database(kept.source))
        run = synced(kept)
        assert [row[0] for row in kept.sink_rows("SHOW TABLES")] == ["others"]
        assert at_sink(kept, "others") == at_source(kept, "others")
        assert len(told(run)) == 2


class TestMySql(Leaving):
    @pytest.mark.parametrize(
        ("text", "statement"),
        [
            ("drop_table: stop", "DROP TABLE orders"),
            ("rename_table: stop", "RENAME TABLE orders TO old.orders"),
        ],
    )
    def test_it_stops_where_the_file_says_so(
        self,
        kept: Shop,
        text: str,
        statement: str,
        fresh_database: Callable[[SqlServer], str],
    ) -> None:
        policy(kept, text)
        leave(kept, statement, fresh_database(kept.source))
        with pytest.raises(TablesStoppedError, match="not at the source any more"):
            synced(kept)
        assert len(at_sink(kept, "orders")) == 4
        assert at_sink(kept, "others") == at_source(kept, "others")

    def test_under_its_new_name_it_is_a_new_table(self, kept: Shop) -> None:
        kept.at_source("RENAME TABLE orders TO renamed")
        kept.at_source("UPDATE renamed SET note = 'changed' WHERE id = 2")
        synced(kept)
        run = synced(kept)
        assert copied(run) == {"renamed", "others", "more"}
        assert at_sink(kept, "renamed") == at_source(kept, "renamed")
        assert at_sink(kept, "orders")[1][1] == "two"

    def test_a_table_that_comes_back_at_once_is_read_again(
        self, kept: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is made while the stream's owner looks for it."""
        monkeypatch.setattr(schema_changes, "COMES_BACK_S", 60.0)
        look, looked = schema_changes.SchemaChanges._look_ahead, []

        def late(self: schema_changes.SchemaChanges, *args: Any) -> Any:
            found = look(self, *args)
            looked.append(found)
            if len(looked) == 1:
                kept.at_source("CREATE TABLE orders (id INT PRIMARY KEY, other INT)")
                kept.at_source("INSERT INTO orders VALUES (5, 50)")
            return found

        monkeypatch.setattr(schema_changes.SchemaChanges, "_look_ahead", late)
        kept.at_source("DROP TABLE orders")
        synced(kept)
        run = synced(kept)
        assert len(looked) == 2
        assert kept.sink_rows("SELECT id, other FROM orders") == [(5, 50)]
        assert copied(run) == {"orders", "others", "more"}

    def test_the_last_tables_of_a_pipeline_do_not_leave_it(self, kept: Shop) -> None:
        kept.at_source("INSERT INTO others VALUES (2)")
        kept.at_source(f"DROP DATABASE {kept.database}")
        kept.source.execute(f"CREATE DATABASE {kept.database}")
        with pytest.raises(CdcError, match=r"no table|`drop`"):
            synced(kept)

    def test_a_table_that_others_refer_to_stays_at_the_sink(self, kept: Shop) -> None:
        policy(kept, "drop_table: apply")
        child = "CREATE TABLE child (o INT, FOREIGN KEY (o) REFERENCES orders (id))"
        kept.sink.execute(child, database=kept.target)
        kept.at_source("DROP TABLE orders")
        (text,) = told(synced(kept))
        assert "for it cannot be dropped" in text
        assert len(at_sink(kept, "orders")) == 3

    @pytest.mark.parametrize("behind", [False, True])
    @pytest.mark.parametrize(
        ("owner", "step"),
        [
            (SqlStateStore, "change_plan"),
            (MySqlTargets, "drop"),
            (MySqlTargets, "release"),
            (Ledger, "begin_changes"),
            (Ledger, "change_tables"),
            (SqlStateStore, "store_hand_off"),
        ],
    )
    @pytest.mark.sample(4)
    def test_it_leaves_whole_whoever_dies_on_the_way(
        self,
        kept: Shop,
        owner: type,
        step: str,
        behind: bool,
        monkeypatch: pytest.MonkeyPatch,
        fresh_database: Callable[[SqlServer], str],
    ) -> None:
        policy(kept, "drop_table: apply")
        leave(kept, "DROP TABLE orders", fresh_database(kept.source))
        act: Callable[..., Any] = getattr(owner, step)

        def die(*args: Any, **options: Any) -> None:
            if behind:
                act(*args, **options)
            raise CdcError("killed here")

        with monkeypatch.context() as patch:
            patch.setattr(owner, step, die)
            with pytest.raises(CdcError, match="killed here"):
                synced(kept)
        kept.at_source("INSERT INTO others VALUES (3)")
        run = synced(kept)
        assert copied(run) == {"others", "more"}
        assert {row[0] for row in kept.sink_rows("SHOW TABLES")} == {"others", "more"}
        assert at_sink(kept, "others") == at_source(kept, "others")
        claims = f"SELECT sink_table FROM airflow_cdc.target WHERE pipeline = '{run.name}'"
        assert {TableId.parse(row[0]).table for row in kept.sink.execute(claims)} == {
            "others",
            "more",
        }


class TestFromMariaDb(Leaving):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Leaving):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
