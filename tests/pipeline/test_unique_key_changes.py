"""What becomes of a table that is copied by a unique key when its keys change at the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.pipeline.altered_tables import catch_up, change, is_equal
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

TABLE = """CREATE TABLE t (id INT NOT NULL, other INT NOT NULL, free INT, n INT,
  UNIQUE by_free (free), UNIQUE by_id (id), UNIQUE by_other (other))"""
ROWS = "INSERT INTO t VALUES (1, 10, 100, 1), (2, 20, NULL, 2), (3, 30, 300, 3), (4, 40, NULL, 4)"
WRITES = (
    "UPDATE t SET n = n + 1, free = NULL WHERE other = 10",
    "UPDATE t SET other = other + 1",
    "DELETE FROM t WHERE other = 21",
    "INSERT INTO t (id, other, n) VALUES (8, 80, 8)",
)
FOLLOWED = {
    "another name": ["ALTER TABLE t RENAME INDEX by_id TO zz"],
    "another name and a wider type": [
        "ALTER TABLE t RENAME INDEX by_id TO aa, MODIFY id BIGINT NOT NULL"
    ],
    "another name of its column": ["ALTER TABLE t CHANGE id number INT NOT NULL"],
    "a primary key over its columns": ["ALTER TABLE t ADD PRIMARY KEY (id)"],
    "a primary key in its place": ["ALTER TABLE t DROP INDEX by_id, ADD PRIMARY KEY (id)"],
    "a second one over its columns": ["CREATE UNIQUE INDEX again ON t (id)"],
    "one more": ["ALTER TABLE t ADD COLUMN more INT DEFAULT 1, ADD UNIQUE more (n, id)"],
    "the one behind it gone": ["DROP INDEX by_other ON t"],
    "the one behind it with NULL": ["ALTER TABLE t MODIFY other INT"],
    "some columns more": ["ALTER TABLE t ADD a INT FIRST", "ALTER TABLE t ADD b INT AFTER other"],
}
STOPPED = {
    "gone, another in its place": ["ALTER TABLE t DROP INDEX by_id"],
    "gone, by its other statement": ["DROP INDEX by_id ON t"],
    "gone, as a constraint": ["ALTER TABLE t DROP CONSTRAINT by_id"],
    "with NULL": ["ALTER TABLE t MODIFY id INT"],
    "with its column gone": ["ALTER TABLE t DROP COLUMN id"],
    "all gone": ["ALTER TABLE t DROP INDEX by_id, DROP INDEX by_other"],
    "another primary key": ["ALTER TABLE t ADD PRIMARY KEY (other)"],
    "a wider one": [
        "ALTER TABLE t DROP INDEX by_other, DROP INDEX by_id, ADD UNIQUE w (id, other)"
    ],
    "one before it": [
        "UPDATE t SET free = id",
        "ALTER TABLE t DROP INDEX by_id, DROP INDEX by_other, MODIFY free INT NOT NULL, "
        "ADD UNIQUE by_id (id)",
    ],
    "over a prefix": [
        "ALTER TABLE t DROP INDEX by_other, DROP INDEX by_id, MODIFY id VARCHAR(9) NOT NULL, "
        "ADD UNIQUE by_id (id(5))"
    ],
}


def begin(shop: Shop) -> None:
    shop.at_source(TABLE)
    shop.at_source(ROWS)


def renamed(shop: Shop, statements: Sequence[str]) -> list[str]:
    """Return the statements by the present name of the first column."""
    names = [row[0] for row in shop.source.execute("SHOW COLUMNS FROM t", database=shop.database)]
    return [each.replace("(id,", "(number,") if "number" in names else each for each in statements]


class KeyChanges:
    @pytest.mark.parametrize("case", FOLLOWED)
    @pytest.mark.sample(4)
    def test_the_table_flows_on_where_its_rows_are_told_apart_as_before(
        self, shop: Shop, case: str
    ) -> None:
        begin(shop)
        catch_up(shop)
        change(shop, "t", [WRITES[0], *FOLLOWED[case]])
        change(shop, "t", renamed(shop, WRITES[1:]))
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal
        assert run.store.requests(run.name) == ()
        change(shop, "t", ["UPDATE t SET n = -n", "DELETE FROM t WHERE other > 70"])
        catch_up(shop)
        assert is_equal(shop, "t")

    def test_a_unique_key_over_its_columns_takes_the_place_of_a_primary_one(
        self, shop: Shop
    ) -> None:
        shop.at_source("CREATE TABLE t (id INT PRIMARY KEY, other INT, free INT, n INT)")
        shop.at_source(ROWS)
        catch_up(shop)
        change(shop, "t", ["ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE by_id (id)", *WRITES])
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert run.store.requests(run.name) == ()
        ask_resync(run, resync_scope(run, [f"{shop.database}.t"]), request_id="all")
        run = catch_up(shop)
        assert verify(run, tables=[TableId(shop.database, "t")]).equal
        change(shop, "t", ["ALTER TABLE t DROP INDEX by_id"])
        with pytest.raises(TablesStoppedError, match="its key is another one now"):
            catch_up(shop)

    @pytest.mark.parametrize("case", STOPPED)
    @pytest.mark.sample(4)
    def test_the_table_stops_alone_before_a_change_of_what_tells_its_rows_apart(
        self, shop: Shop, case: str
    ) -> None:
        begin(shop)
        catch_up(shop)
        change(shop, "t", [WRITES[0], *STOPPED[case]])
        change(shop, "t", ["UPDATE t SET n = 77"])
        shop.at_source("INSERT INTO orders (id) VALUES (9)")
        with pytest.raises(TablesStoppedError, match="its key is another one now") as stopped:
            catch_up(shop)
        assert "`reset` it with --table" in str(stopped.value)
        assert shop.sink_rows("SELECT n FROM t WHERE other = 10") == [(2,)]
        assert shop.sink_rows("SELECT n FROM t WHERE n = 77") == []
        assert shop.sink_rows("SELECT id FROM orders WHERE id = 9") == [(9,)]
        if case in {"all gone", "over a prefix"}:
            change(shop, "t", ["ALTER TABLE t ADD UNIQUE back (other, id)"])
        shop.sink.execute("DROP TABLE t", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "t")])
        catch_up(shop)
        change(shop, "t", ["UPDATE t SET n = -n", "DELETE FROM t WHERE other > 35"])
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal

    def test_rows_are_read_again_where_none_told_them_apart_for_a_while(self, shop: Shop) -> None:
        """By their keys, the row that is deleted would be the one that stays."""
        begin(shop)
        catch_up(shop)
        change(
            shop,
            "t",
            [
                "ALTER TABLE t DROP INDEX by_id, DROP INDEX by_other",
                "INSERT INTO t VALUES (1, 10, NULL, 77)",
                "UPDATE t SET n = 5 WHERE free = 100",
                "DELETE FROM t WHERE n = 77",
                "ALTER TABLE t ADD UNIQUE by_id (id), ADD UNIQUE by_other (other)",
                "INSERT INTO t VALUES (9, 90, 900, 9)",
            ],
        )
        catch_up(shop)
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal

    def test_rows_are_read_again_where_its_column_had_no_value_for_a_while(
        self, shop: Shop
    ) -> None:
        begin(shop)
        catch_up(shop)
        change(
            shop,
            "t",
            [
                "ALTER TABLE t MODIFY id INT, DROP INDEX by_other",
                "INSERT INTO t VALUES (NULL, 50, NULL, 5), (NULL, 60, NULL, 6)",
                "UPDATE t SET n = 9, other = other + 1 WHERE id IS NULL",
                "UPDATE t SET id = NULL WHERE id = 2",
                "DELETE FROM t WHERE id IS NULL",
                "INSERT INTO t VALUES (2, 20, NULL, 7)",
                "ALTER TABLE t MODIFY id INT NOT NULL",
                "INSERT INTO t VALUES (9, 90, 900, 9)",
            ],
        )
        catch_up(shop)
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal

    @pytest.mark.parametrize("statement", ["RENAME INDEX by_id TO zz", "DROP INDEX by_id"])
    def test_a_table_begins_again_if_its_key_changes_before_it_is_read(
        self, shop: Shop, statement: str
    ) -> None:
        begin(shop)
        run = shop.run()
        plan(run)
        give_back(run)
        change(shop, "t", [f"ALTER TABLE t {statement}", *WRITES])
        catch_up(shop)
        change(shop, "t", ["UPDATE t SET n = -n", "DELETE FROM t WHERE other > 35"])
        run = catch_up(shop)
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal

    @pytest.mark.parametrize("statement", ["RENAME INDEX by_id TO zz", "DROP INDEX by_id"])
    def test_a_table_begins_again_if_its_key_changes_right_before_its_rows_are_read(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch, statement: str
    ) -> None:
        begin(shop)
        select, done = SnapshotReader._select, list[str]()

        def changed_before(reader: Any, connection: Any, split: Any, *others: Any) -> Any:
            if split.table.table == "t" and not done:
                done.append(statement)
                change(shop, "t", [f"ALTER TABLE t {statement}", *WRITES])
            return select(reader, connection, split, *others)

        monkeypatch.setattr(SnapshotReader, "_select", changed_before)
        run = catch_up(shop)
        assert done
        assert is_equal(shop, "t")
        assert verify(run, tables=[TableId(shop.database, "t")]).equal


class TestMySql(KeyChanges):
    pass


class TestFromMariaDb(KeyChanges):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
