"""A definition that changes at the source changes at the sink, and no row is lost with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from airflow_cdc_provider.core.errors import CdcError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.stream.schema_changes import SchemaChanges
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up as stream_to_the_end
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.views.remarks import remark_lines
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import status
from tests.pipeline.altered_tables import begin, catch_up, change, columns_at_sink, is_equal
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer

FOLLOWED = {
    "a column that may be null": [
        "ALTER TABLE orders ADD COLUMN more INT",
        "UPDATE orders SET more = 1 WHERE id = 1",
    ],
    "a column in the middle with a default": [
        "ALTER TABLE orders ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x' AFTER id",
        "INSERT INTO orders (id, note) VALUES (8, 'eight')",
    ],
    "several columns": [
        "ALTER TABLE orders ADD COLUMN one INT, ADD COLUMN (two INT DEFAULT 2, three DATETIME(3))",
        "ALTER TABLE orders ADD COLUMN four DECIMAL(9,2) DEFAULT -1.50",
        "UPDATE orders SET one = 1, three = '2026-01-02 03:04:05.678' WHERE id = 1",
    ],
    "another name": [
        "ALTER TABLE orders RENAME COLUMN note TO remark",
        "UPDATE orders SET remark = 'changed' WHERE id = 2",
    ],
    "another name and type": [
        "ALTER TABLE orders CHANGE note remark VARCHAR(80)",
        "UPDATE orders SET remark = REPEAT('x', 70) WHERE id = 2",
    ],
    "another name of the key": [
        "ALTER TABLE orders RENAME COLUMN id TO number",
        "UPDATE orders SET note = 'changed' WHERE number = 2",
        "DELETE FROM orders WHERE number = 1",
    ],
    "another name, and a new column of the former": [
        "ALTER TABLE orders CHANGE note remark VARCHAR(40), ADD COLUMN note VARCHAR(9) DEFAULT 'n'",
        "INSERT INTO orders (id, note, remark) VALUES (8, '1', '2')",
    ],
    "a wider type": [
        "ALTER TABLE orders MODIFY note TEXT, MODIFY code BIGINT",
        "UPDATE orders SET note = REPEAT('x', 2000), code = 5000000000 WHERE id = 2",
    ],
    "a wider key": [
        "ALTER TABLE orders MODIFY id BIGINT",
        "INSERT INTO orders (id, note) VALUES (5000000000, 'large')",
    ],
    "a column that may be null now": [
        "ALTER TABLE orders MODIFY flag INT NULL",
        "UPDATE orders SET flag = NULL WHERE id = 1",
    ],
    "a unique key that is gone": [
        "ALTER TABLE orders DROP INDEX code",
        "UPDATE orders SET code = 10",
    ],
    "a new unique key": [
        "ALTER TABLE orders ADD UNIQUE KEY notes (note)",
        "UPDATE orders SET note = 'two, changed' WHERE id = 2",
        "UPDATE orders SET note = 'two' WHERE id = 1",
    ],
    "a computed column": [
        "ALTER TABLE orders ADD COLUMN twice INT AS (id * 2) STORED",
        "INSERT INTO orders (id) VALUES (8)",
    ],
    "all rows taken away": ["TRUNCATE TABLE orders", "INSERT INTO orders (id) VALUES (2)"],
    "changes between rows of others": [
        "ALTER TABLE orders ADD COLUMN more INT",
        "INSERT INTO others VALUES (2)",
        "ALTER TABLE others ADD COLUMN more INT DEFAULT 7",
        "INSERT INTO others VALUES (3, 4)",
        "UPDATE orders SET more = 3",
    ],
    "what changes nothing of rows": [
        "ALTER TABLE orders COMMENT = 'orders', ADD INDEX notes (note), ALTER flag SET DEFAULT 4",
        "ALTER TABLE orders DEFAULT CHARACTER SET latin1",
        "INSERT INTO orders (id) VALUES (8)",
    ],
    "changed twice with rows between": [
        "ALTER TABLE orders ADD COLUMN more INT",
        "UPDATE orders SET more = 1 WHERE id = 1",
        "ALTER TABLE orders ADD COLUMN most INT",
        "UPDATE orders SET more = 2, most = 2 WHERE id = 2",
    ],
    "changed again and again with rows between": [
        "ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 5 AFTER id, ADD INDEX (note)",
        "INSERT INTO orders (id, note) VALUES (8, 'eight'), (9, 'nine')",
        "ALTER TABLE orders MODIFY code BIGINT FIRST, MODIFY flag INT, ALGORITHM = COPY",
        "UPDATE orders SET code = 5000000000 WHERE id = 8",
        "ALTER TABLE orders ALTER note SET DEFAULT 'x', COMMENT = 'orders'",
        "INSERT INTO orders (id) VALUES (10)",
        "ALTER TABLE orders CHANGE note remark VARCHAR(200), ADD UNIQUE KEY remarks (remark)",
        "UPDATE orders SET remark = REPEAT('y', 190) WHERE id = 9",
        "ALTER TABLE orders ADD COLUMN last VARCHAR(9) DEFAULT 'z'",
        "UPDATE orders SET last = 'same'",
    ],
    "a column added that is moved, then one that goes": [
        "ALTER TABLE orders ADD COLUMN more INT DEFAULT 3, MODIFY flag BIGINT NOT NULL AFTER id",
        "UPDATE orders SET flag = 5000000000 WHERE id = 1",
        "CREATE INDEX codes ON orders (code, flag)",
        "INSERT INTO orders (id, flag) VALUES (8, 8)",
        "ALTER TABLE orders RENAME COLUMN code TO codes",
        "UPDATE orders SET codes = 77, more = 1 WHERE id = 8",
    ],
}
"""Followed as they are: no row is read again."""
READ_AGAIN = {
    "a default that the source computes": [
        "ALTER TABLE orders ADD COLUMN at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
        "INSERT INTO orders (id) VALUES (8)",
    ],
    "a narrower type": [
        "UPDATE orders SET note = 'much longer than five' WHERE id = 1",
        "SET SESSION sql_mode = ''",
        "ALTER TABLE orders MODIFY note VARCHAR(5)",
        "INSERT INTO orders (id, note) VALUES (8, 'eight')",
    ],
    "numbers from texts": [
        "UPDATE orders SET note = id * 10",
        "ALTER TABLE orders MODIFY note INT",
        "UPDATE orders SET note = 77 WHERE id = 2",
    ],
    "null no more": [
        "SET SESSION sql_mode = ''",
        "UPDATE orders SET note = '' WHERE note IS NULL",
        "ALTER TABLE orders MODIFY note VARCHAR(40) NOT NULL",
    ],
    "a column in the place of one of the same name": [
        "ALTER TABLE orders DROP COLUMN flag, ADD COLUMN flag INT NOT NULL DEFAULT 9",
    ],
    "columns that swap names": [
        "ALTER TABLE orders CHANGE note flag VARCHAR(40), CHANGE flag note INT NOT NULL",
        "INSERT INTO orders (id, note, flag) VALUES (8, 8, 'eight')",
    ],
    "nullable and not, that swap names": [
        "ALTER TABLE orders RENAME COLUMN code TO flag, RENAME COLUMN flag TO code",
        "INSERT INTO orders (id, code, flag) VALUES (8, 1, 2)",
    ],
    "columns of one type that swap names": [
        "ALTER TABLE orders ADD COLUMN other INT DEFAULT 5",
        "INSERT INTO orders (id, code, other) VALUES (8, 8, 80)",
        "ALTER TABLE orders CHANGE code other INT, CHANGE other code INT",
        "INSERT INTO orders (id, code, other) VALUES (9, 9, 90)",
    ],
    "a column that takes the name of one that goes": [
        "ALTER TABLE orders DROP COLUMN note, CHANGE flag note INT NOT NULL",
        "INSERT INTO orders (id, note) VALUES (8, 8)",
    ],
    "a column dropped and added again": [
        "ALTER TABLE orders DROP COLUMN flag",
        "ALTER TABLE orders ADD COLUMN flag INT NOT NULL DEFAULT 9",
    ],
    "another table in its place": [
        "CREATE TABLE orders_new LIKE orders",
        "ALTER TABLE orders_new ADD COLUMN more INT DEFAULT 5",
        "INSERT INTO orders_new SELECT id, note, code, flag, 6 FROM orders WHERE id > 1",
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
        "INSERT INTO orders (id, note) VALUES (8, 'eight')",
    ],
    "dropped and made again": [
        "DROP TABLE orders",
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), more INT)",
        "INSERT INTO orders VALUES (2, 'other', 5)",
    ],
    "unique values that move while it is read": [
        "UPDATE orders SET code = 99 WHERE id = 1",
        "ALTER TABLE orders ADD COLUMN at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
        "UPDATE orders SET code = 10 WHERE id = 2",
        "UPDATE orders SET code = 20 WHERE id = 3",
        "INSERT INTO orders (id, code) VALUES (8, 30)",
    ],
    "another table with other unique values": [
        "CREATE TABLE orders_new LIKE orders",
        "INSERT INTO orders_new SELECT id, note, 60 - code, flag FROM orders",
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
        "UPDATE orders SET note = 'changed' WHERE id = 1",
    ],
    "computed otherwise": [
        "ALTER TABLE orders ADD COLUMN twice INT AS (id * 2) STORED",
        "ALTER TABLE orders MODIFY twice BIGINT AS (id * 3) STORED",
        "INSERT INTO orders (id) VALUES (8)",
    ],
    "a default that is another one at once": [
        "ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7",
        "ALTER TABLE orders ALTER COLUMN more SET DEFAULT 8",
        "INSERT INTO orders (id) VALUES (8)",
    ],
    "a default that is gone at once": [
        "ALTER TABLE orders ADD COLUMN more INT DEFAULT 7",
        "ALTER TABLE orders ALTER COLUMN more DROP DEFAULT",
    ],
    "truncated twice": [
        "TRUNCATE TABLE orders",
        "INSERT INTO orders (id) VALUES (5)",
        "TRUNCATE TABLE orders",
        "INSERT INTO orders (id) VALUES (6)",
    ],
}
"""The table is changed and read again, for rows may have changed along with it."""
REFUSED = {
    "another key": ["ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, flag)"],
    "a key that orders otherwise": ["ALTER TABLE orders MODIFY id VARCHAR(20)"],
}


class Changes:
    """What is so from any family of servers to any other."""

    has_guards = False
    """The source knows IF EXISTS in the middle of an ALTER."""

    def test_changes_are_followed_and_rows_read_again_where_they_may_have_changed(
        self, shop: Shop
    ) -> None:
        cases = [*FOLLOWED.values(), *READ_AGAIN.values()]
        names = [f"orders{number}" for number in range(len(cases))]
        begin(shop, names)
        for name, statements in zip(names, cases, strict=True):
            change(shop, name, statements)
        catch_up(shop)
        run = catch_up(shop)
        wrong = [
            case
            for name, case in zip(names, [*FOLLOWED, *READ_AGAIN], strict=True)
            if not is_equal(shop, name)
        ]
        assert wrong == []
        assert is_equal(shop, "others")
        requests = run.store.requests(run.name)
        assert {request.status for request in requests} == {RequestStatus.DONE}
        read_again = {table.table for request in requests for table in request.scope.tables}
        assert read_again == set(names[len(FOLLOWED) :])
        run = shop.run()
        ask_resync(run, resync_scope(run), request_id="all")
        run = catch_up(shop)
        assert [name for name in names if not is_equal(shop, name)] == []
        (asked,) = [each for each in run.store.requests(run.name) if each.request_id == "all"]
        assert asked.status is RequestStatus.DONE, asked

    def test_a_new_column_goes_where_the_source_has_it(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        at_source = "SELECT column_name FROM information_schema.columns WHERE table_schema = "
        at_source += f"'{shop.database}' AND table_name = 'orders' ORDER BY ordinal_position"
        for statement in (
            "ALTER TABLE orders ADD COLUMN a INT AFTER note, ADD COLUMN b INT AFTER a, ADD c INT",
            "ALTER TABLE orders ADD COLUMN d INT NOT NULL DEFAULT 4 FIRST, ADD e INT AFTER c",
            "ALTER TABLE orders RENAME COLUMN note TO words, ADD COLUMN f INT AFTER words",
            "ALTER TABLE orders ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) AFTER id",
        ):
            change(
                shop,
                "orders",
                [statement, "INSERT INTO orders (id) SELECT MAX(id) + 1 FROM orders"],
            )
            catch_up(shop)
            names = [row[0] for row in shop.source.execute(at_source)]
            assert columns_at_sink(shop) == names, statement
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_what_was_read_is_told_of_until_rows_are_read_again(self, shop: Shop) -> None:
        begin(shop, ["orders"])

        def read() -> list[tuple[int, int, int, bool]]:
            run = catch_up(shop)
            seen = status(run.store, run.name, now_us=run.store.now_us())
            assert remark_lines(seen) == []
            assert any("orders: consistent, splits" in each for each in status_lines(seen)) == (
                seen.rows >= 2
            )
            return [
                (each.splits_finished, each.splits_planned, each.rows, each.by_request)
                for each in seen.tables
                if each.source.endswith(".orders")
            ]

        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN more INT"])
        assert read() == [(1, 1, 3, False)]
        at = "ALTER TABLE orders ADD COLUMN at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
        change(shop, "orders", [at])
        assert read() == [(0, 0, 0, True)]

    def test_columns_that_checks_and_computed_columns_are_about_get_other_names(
        self, shop: Shop
    ) -> None:
        shop.at_source(
            "ALTER TABLE orders ADD COLUMN doc JSON, ADD COLUMN twice INT AS (code * 2) STORED, "
            "ADD CONSTRAINT few CHECK (code < 1000)"
        )
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            [
                "ALTER TABLE orders DROP CONSTRAINT few",
                "ALTER TABLE orders DROP COLUMN twice",
                "INSERT INTO orders (id, code) VALUES (8, 2000)",
                "ALTER TABLE orders RENAME COLUMN doc TO body, RENAME COLUMN code TO codes",
                "UPDATE orders SET body = '[1]', codes = 500 WHERE id = 1",
                "ALTER TABLE orders RENAME COLUMN id TO number",
                "INSERT INTO orders (number) VALUES (9)",
                "ALTER TABLE orders ADD COLUMN IF NOT EXISTS more INT"
                if self.has_guards
                else "ALTER TABLE orders ADD COLUMN more INT, CONVERT TO CHARACTER SET utf8mb4",
            ],
        )
        catch_up(shop)
        catch_up(shop)
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}


class TestMySql(Changes):
    def test_a_column_that_hides_is_copied_on(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            [
                "ALTER TABLE orders ALTER COLUMN note SET INVISIBLE, ALTER code SET VISIBLE",
                "UPDATE orders SET note = 'hidden' WHERE id = 1",
                "ALTER TABLE orders ADD COLUMN more INT",
                "INSERT INTO orders (id, more, note) VALUES (8, 8, 'eight')",
            ],
        )
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert run.store.requests(run.name) == ()

    @pytest.mark.parametrize("case", REFUSED)
    def test_what_cannot_be_followed_stops_the_stream_before_it(
        self, shop: Shop, case: str
    ) -> None:
        begin(shop, ["orders"])
        shop.at_source("INSERT INTO orders (id) VALUES (7)")
        change(shop, "orders", REFUSED[case])
        with pytest.raises(TablesStoppedError, match="a statement changed"):
            catch_up(shop)
        assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(4,)]

    def test_a_column_that_is_dropped_is_kept_at_the_sink(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        change(shop, "orders", DROPPED)
        catch_up(shop)
        found = shop.sink_rows("SELECT id, flag FROM orders ORDER BY id")
        assert found == [(1, 1), (2, 2), (3, 3), (8, None)]

    def test_a_column_that_was_kept_gets_the_values_of_one_that_takes_its_name(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders DROP COLUMN flag, DROP COLUMN code"])
        catch_up(shop)
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN flag INT NOT NULL DEFAULT 9"])
        catch_up(shop)
        change(shop, "orders", ["ALTER TABLE orders RENAME COLUMN note TO code"])
        change(shop, "orders", ["INSERT INTO orders VALUES (8, 'x', 1)"])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_change_that_the_sink_refuses_is_told_and_the_table_can_be_begun_again(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        shop.sink.execute(
            "ALTER TABLE orders ADD CONSTRAINT own CHECK (note <> '')", database=shop.target
        )
        change(shop, "orders", ["ALTER TABLE orders RENAME COLUMN note TO remark"])
        change(shop, "orders", ["INSERT INTO others VALUES (2)"])
        for _ in range(2):
            with pytest.raises(CdcError, match=r"cannot be changed as .*orders was"):
                catch_up(shop)
        shop.sink.execute("DROP TABLE orders", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")

    def test_a_run_counts_what_it_applied_before_it_read_rows_again_too(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            [
                "INSERT INTO orders (id) VALUES (91), (92)",
                "ALTER TABLE orders ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
                "ALTER TABLE orders DROP COLUMN note",
                "INSERT INTO orders (id) VALUES (93)",
            ],
        )
        options = SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs")
        done = run_until_caught_up(shop.run(), options)
        assert (done.stream.result["changes"], done.stream.result["transactions"]) == (3, 2)

    def test_values_that_the_sink_cannot_convert_are_read(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN at POINT"])
        change(shop, "orders", ["UPDATE orders SET at = POINT(1, 2)"])
        catch_up(shop)
        change(
            shop,
            "orders",
            [
                "ALTER TABLE orders DROP COLUMN at, ADD COLUMN at DATE DEFAULT '2020-01-02'",
                "ALTER TABLE orders ADD COLUMN more JSON NOT NULL DEFAULT (JSON_ARRAY())",
            ],
        )
        catch_up(shop)
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}

    def test_a_default_that_changes_while_the_change_is_looked_at_is_noticed(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The log was read to its end by then, and the catalogue is asked once more."""
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7"])
        ask, asked = SchemaChanges._catalogue, []

        def late(self: SchemaChanges, tables: Collection[TableId]) -> Mapping[TableId, TableSchema]:
            asked.append(tables)
            if len(asked) == 2:
                change(shop, "orders", ["ALTER TABLE orders ALTER COLUMN more SET DEFAULT 8"])
            return ask(self, tables)

        monkeypatch.setattr(SchemaChanges, "_catalogue", late)
        catch_up(shop)
        catch_up(shop)
        assert len(asked) == 4
        assert is_equal(shop, "orders")

    def test_a_stream_in_spark_follows_changes_too(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        change(shop, "orders", FOLLOWED["several columns"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        run = shop.run()
        options = SparkOptions("local[2]", log_folder=shop.path.parent / "logs", always=True)
        assert stream_to_the_end(run, options).log is not None
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")

    def test_rows_that_the_source_lets_go_of_unlogged_stay_if_the_file_says_so(
        self, shop: Shop
    ) -> None:
        with shop.path.open("a") as file:
            file.write("schema_changes: {rows: ignore, truncate: ignore}\n")
        shop.at_source(
            "CREATE TABLE old (id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id) "
            "(PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN MAXVALUE)"
        )
        shop.at_source("INSERT INTO old VALUES (1, 1), (20, 20)")
        begin(shop, ["orders"])
        change(shop, "old", ["ALTER TABLE old DROP PARTITION p1", "UPDATE old SET n = 21"])
        change(shop, "others", ["TRUNCATE TABLE others", "INSERT INTO others VALUES (2)"])
        run = catch_up(shop)
        assert shop.sink_rows("SELECT * FROM old ORDER BY id") == [(1, 1), (20, 21)]
        assert shop.sink_rows("SELECT * FROM others ORDER BY id") == [(1,), (2,)]
        assert run.store.requests(run.name) == ()
        change(shop, "others", ["TRUNCATE TABLE others", "ALTER TABLE others ADD COLUMN n INT"])
        with pytest.raises(TablesStoppedError, match="not that alone"):
            catch_up(shop)

    def test_the_file_says_what_is_done(self, shop: Shop) -> None:
        with shop.path.open("a") as file:
            file.write("schema_changes: {drop_column: apply, add_column: stop}\n")
        begin(shop, ["orders"])
        change(shop, "orders", DROPPED)
        catch_up(shop)
        assert is_equal(shop, "orders")
        assert columns_at_sink(shop) == ["id", "note", "code"]
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN more INT"])
        with pytest.raises(TablesStoppedError, match="add_column: stop"):
            catch_up(shop)


DROPPED = ["ALTER TABLE orders DROP COLUMN flag", "INSERT INTO orders VALUES (8, 'x', 1)"]


class TestFromMariaDb(Changes):
    has_guards = True

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Changes):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
