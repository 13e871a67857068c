"""Columns that are new at the source stay out of the sink's table, where the file says so."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import CdcError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.pause_tables import resume_tables
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.altered_tables import begin, catch_up, change, columns_at_sink, is_equal
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

NEW_COLUMNS = [
    "UPDATE orders SET note = 'before' WHERE id = 1",
    "ALTER TABLE orders ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x' AFTER id, "
    "ADD COLUMN twice INT AS (id * 2) STORED",
    "ALTER TABLE orders ADD COLUMN computed DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
    "INSERT INTO orders (id, note, more) VALUES (8, 'eight', 'y')",
    "UPDATE orders SET note = 'behind', more = 'z' WHERE id = 2",
]


class LeftOut:
    def test_new_columns_are_left_out_if_the_file_says_so(self, shop: Shop) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        run = catch_up(shop)
        assert columns_at_sink(shop) == ["id", "note", "code", "flag"]
        assert copied_is_equal(shop)
        assert run.store.requests(run.name) == ()
        assert "Left out at the sink: computed, more, twice" in events(run)
        change(shop, "orders", ["UPDATE orders SET more = 2, note = 'again' WHERE id = 2"])
        catch_up(shop)  # as one that begins behind the change
        assert copied_is_equal(shop)
        assert verify(shop.run(), settle_s=5).equal
        assert not check(shop.run()).blocks

    def test_what_becomes_of_a_column_that_is_left_out_is_no_change_at_the_sink(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        with shop.path.open("a") as file:
            file.write("  rename_column: stop\n  drop_column: stop\n  modify_column: stop\n")
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        catch_up(shop)
        for statement in (
            "ALTER TABLE orders CHANGE more less VARCHAR(5)",
            "ALTER TABLE orders ADD UNIQUE KEY fresh (less, id)",
            "ALTER TABLE orders DROP COLUMN twice",
            "ALTER TABLE orders DROP INDEX fresh, DROP COLUMN less",
        ):
            change(shop, "orders", [statement, "UPDATE orders SET note = CONCAT(note, '.')"])
            catch_up(shop)
            assert columns_at_sink(shop) == ["id", "note", "code", "flag"]
            assert copied_is_equal(shop)
        run = shop.run()
        (plan,) = [s.plan for s in run.store.tables(run.name) if s.table.table == "orders"]
        assert plan.schema.ignored == {"computed"}
        assert run.store.requests(run.name) == ()
        assert verify(shop.run(), settle_s=5).equal

    def test_a_column_that_was_left_out_comes_when_its_table_is_reset(self, shop: Shop) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        catch_up(shop)
        shop.path.write_text(shop.path.read_text().replace("ignore", "apply"))
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN later INT DEFAULT 3"])
        catch_up(shop)
        assert columns_at_sink(shop) == ["id", "note", "code", "flag", "later"]
        shop.sink.execute("DROP TABLE orders", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "orders")])
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert verify(run, settle_s=5).equal


class TestMySql(LeftOut):
    def test_rows_are_read_again_without_what_is_left_out(self, shop: Shop) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        run = catch_up(shop)
        shop.sink.execute("UPDATE orders SET note = 'wrong'", database=shop.target)
        name = str(TableId(shop.database, "orders"))
        scope = resync_scope(run, [name], from_key="2", to_key=None)
        ask_resync(run, scope, request_id="part", asked_by="a test")
        change(shop, "orders", ["UPDATE orders SET note = 'meanwhile', more = 'm' WHERE id = 3"])
        run = catch_up(shop)
        assert shop.sink_rows("SELECT note FROM orders WHERE id = 1") == [("wrong",)]
        whole = resync_scope(run, [name], where="note = 'before'")
        ask_resync(run, whole, request_id="rest", asked_by="a test")
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        assert copied_is_equal(shop)

    def test_a_stopped_table_that_resume_reads_again_has_what_was_left_out(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        with shop.path.open("a") as file:
            file.write("  drop_column: stop\n")
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        catch_up(shop)
        change(shop, "orders", ["ALTER TABLE orders DROP COLUMN code"])
        with pytest.raises(TablesStoppedError, match="drop_column: stop"):
            catch_up(shop)
        shop.path.write_text(shop.path.read_text().replace("ignore", "apply"))
        resume_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        assert verify(catch_up(shop), settle_s=5).equal
        assert is_equal(shop, "orders")

    def test_without_its_state_the_pipeline_is_refused_by_the_columns_name(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)
        catch_up(shop)
        shop.forget_state()
        with pytest.raises(CdcError, match="column more is missing"):
            catch_up(shop)

    def test_a_column_that_has_another_name_is_copied_beside_one_that_is_left_out(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            [
                "ALTER TABLE orders RENAME COLUMN note TO remark",
                "ALTER TABLE orders ADD COLUMN more INT",
                "UPDATE orders SET remark = 'changed', more = 1 WHERE id = 2",
            ],
        )
        catch_up(shop)
        assert "more" not in columns_at_sink(shop)
        common_is_equal(shop, copied={"id", "remark", "code", "flag"})

    @pytest.mark.parametrize(
        "rounds",
        [
            # the former note is remark, and what was left out has its name
            [
                ["ADD COLUMN x VARCHAR(9) DEFAULT 'x'"],
                ["RENAME COLUMN note TO remark", "RENAME COLUMN x TO note"],
            ],
            [
                ["ADD COLUMN x VARCHAR(9) DEFAULT 'x'"],
                ["RENAME COLUMN note TO remark, RENAME COLUMN x TO note"],
            ],
            # the sink has kept a note of its own
            [["DROP COLUMN note"], ["ADD COLUMN note VARCHAR(9) DEFAULT 'new'"]],
            [["DROP COLUMN note"], ["ADD COLUMN note INT DEFAULT 7"]],
            [
                ["ADD COLUMN x VARCHAR(9) DEFAULT 'x'"],
                ["DROP COLUMN note, RENAME COLUMN x TO note"],
            ],
            [
                ["ADD COLUMN x VARCHAR(9) DEFAULT 'x'"],
                ["DROP COLUMN note"],
                ["RENAME COLUMN x TO note"],
            ],
        ],
        ids=str,
    )
    def test_no_column_of_the_sink_has_the_name_of_another_one(
        self, rounds: list[list[str]], shop: Shop
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        for number, clauses in enumerate(rounds, start=70):
            insert = f"INSERT INTO orders (id, code) VALUES ({number}, {number})"
            change(shop, "orders", [*(f"ALTER TABLE orders {it}" for it in clauses), insert])
            catch_up(shop)
        common_is_equal(shop, copied={"id", "code", "flag"} | ({"remark"} & source_names(shop)))
        assert verify(shop.run(), settle_s=5).equal

    def test_what_was_left_out_stays_so_when_others_change_twice(self, shop: Shop) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN x INT, ADD COLUMN y INT"])
        catch_up(shop)
        change(
            shop,
            "orders",
            ["ALTER TABLE orders DROP COLUMN x", "ALTER TABLE orders DROP COLUMN flag"],
        )
        change(shop, "orders", ["INSERT INTO orders (id, note, y) VALUES (9, 'nine', 9)"])
        catch_up(shop)
        assert columns_at_sink(shop) == ["id", "note", "code", "flag"]
        common_is_equal(shop, copied={"id", "note", "code"})

    def test_a_value_that_no_sink_has_stops_nothing_in_a_column_that_is_left_out(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN x DATETIME"])
        catch_up(shop)
        change(
            shop,
            "orders",
            ["SET sql_mode = ''", "INSERT INTO orders (id, x) VALUES (9, '0000-00-00')"],
        )
        catch_up(shop)
        assert copied_is_equal(shop)

    def test_a_table_in_its_place_with_one_more_column_is_read_again_without_it(
        self, shop: Shop
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            [
                "CREATE TABLE ghost LIKE orders",
                "ALTER TABLE ghost ADD COLUMN more INT DEFAULT 5",
                "INSERT INTO ghost (id, note, code, flag) SELECT id, 'moved', code, flag "
                "FROM orders",
                "RENAME TABLE orders TO former, ghost TO orders",
            ],
        )
        catch_up(shop)
        assert columns_at_sink(shop) == ["id", "note", "code", "flag"]
        assert copied_is_equal(shop)

    @pytest.mark.parametrize("at", ["before it is noted", "when it is noted"])
    def test_whoever_comes_next_leaves_the_columns_out_too(
        self, at: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ignoring_columns(shop)
        begin(shop, ["orders"])
        change(shop, "orders", NEW_COLUMNS)

        def killed(*_: object) -> None:
            raise CdcError("killed here")

        with monkeypatch.context() as patch:
            step = "begin_changes" if at.startswith("before") else "end_change"
            patch.setattr(Ledger, step, killed)
            with pytest.raises(CdcError, match="killed here"):
                catch_up(shop)
        catch_up(shop)
        assert columns_at_sink(shop) == ["id", "note", "code", "flag"]
        assert copied_is_equal(shop)


class TestFromMariaDb(LeftOut):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(LeftOut):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def ignoring_columns(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write("schema_changes:\n  add_column: ignore\n")


def copied_is_equal(shop: Shop) -> bool:
    query = "SELECT id, note, code, flag FROM orders ORDER BY 1"
    return shop.sink_rows(query) == list(shop.source.execute(query, database=shop.database))


def source_names(shop: Shop) -> set[str]:
    columns = shop.source.execute("SHOW COLUMNS FROM orders", database=shop.database)
    return {row[0] for row in columns}


def common_is_equal(shop: Shop, *, copied: set[str]) -> None:
    """Compare all that both sides have by one name, among it what has to be copied."""
    common = source_names(shop) & {str(name) for name in columns_at_sink(shop)}
    assert copied <= common
    query = f"SELECT {', '.join(sorted(common))} FROM orders ORDER BY id"
    assert shop.sink_rows(query) == list(shop.source.execute(query, database=shop.database))


def events(run: Run) -> str:
    return "\n".join(event.text for event in run.store.events(run.name, 50))
