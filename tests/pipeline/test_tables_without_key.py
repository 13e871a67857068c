"""Tables without any key: copied, followed and compared as multisets of rows."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError, TablesStoppedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import plan_form, plan_lines, repair_line
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.pipeline.notes_without_key import NOTES, VALUES, Notes
from tests.servers.given import SqlServer


class WithoutKey:
    @pytest.fixture
    def notes(self, shop: Shop) -> Notes:
        shop.at_source(NOTES)
        made = Notes(shop)
        made.insert(300)
        return made

    def test_rows_come_and_go_as_often_as_at_the_source_while_it_is_written_to(
        self, notes: Notes
    ) -> None:
        shop = notes.shop
        (told,) = [each for each in check(shop.run()).findings if each.code == "table.primary_key"]
        assert told.level is Level.WARN
        assert "makes the sink read its whole table" in told.why
        assert "`reset`" not in told.fix
        form = plan_form(preview(shop.run()), shop.run().model)
        assert any(
            f"{notes.table} -> " in each and ": no key, ~" in each for each in plan_lines(form)
        )
        with beside(notes.write, every_s=0.01):
            for _ in range(3):
                catch_up(shop)
            asked = ask_resync(shop.run(), resync_scope(shop.run(), [str(notes.table)]))
            catch_up(shop)
        run = catch_up(shop)
        done = run.store.request(run.name, asked.request_id)
        assert done is not None
        assert done.status is RequestStatus.DONE
        (told,) = [each for each in check(run).findings if each.code == "table.primary_key"]
        assert "stops at this statement" in told.fix
        assert f"`reset` with --table {notes.table}" in told.fix
        assert notes.is_equal()
        for statement in (
            "ALTER TABLE notes ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x' AFTER n",
            "ALTER TABLE notes DROP COLUMN heap, ADD INDEX by_word (word)",
        ):
            shop.at_source(statement)
            notes.names = [name for name in VALUES if name != "heap" or "ADD COLUMN" in statement]
            notes.write()
        catch_up(shop)
        assert notes.is_equal()
        shop.at_source("TRUNCATE TABLE notes")
        notes.write()
        catch_up(shop)
        assert notes.is_equal()

    def test_what_others_did_at_the_sink_is_found_and_mended(self, notes: Notes) -> None:
        shop = notes.shop
        shop.at_source("INSERT INTO notes (n, word) VALUES (4, 'A'), (4, 'A'), (4, 'A'), (5, 'B')")
        catch_up(shop)
        notes.at_sink("DELETE FROM notes WHERE n = 4 LIMIT 1")
        notes.at_sink("UPDATE notes SET word = 'B ' WHERE n = 5 LIMIT 1")
        assert not notes.is_equal()
        report = verify(shop.run(), tables=[notes.table], settle_s=5)
        (repair,) = repairs(shop.run(), report)
        assert repair.scope.tables == (notes.table,)
        assert not repair.scope.ranges
        assert repair.scope.chosen is None
        assert "the whole table, because it has no key" in repair_line(repair)
        ask_repairs(shop.run(), (repair,))
        catch_up(shop)
        assert notes.is_equal()
        notes.at_sink("DELETE FROM notes WHERE n = 4 LIMIT 1")
        shop.at_source("UPDATE notes SET n = 77 WHERE n = 4")
        with pytest.raises(TablesStoppedError, match=r"takes 3 rows.*the sink has 2 of them"):
            catch_up(shop)
        reset_tables(shop.run(), [notes.table])
        catch_up(shop)
        assert notes.is_equal()

    def test_a_table_that_was_left_alone_comes_back_by_the_log(self, notes: Notes) -> None:
        shop = notes.shop
        catch_up(shop)
        pause_tables(shop.run(), [notes.table])
        catch_up(shop)
        for _ in range(5):
            notes.write()
        shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
        catch_up(shop)
        resume_tables(shop.run(), [notes.table])
        with beside(notes.write, every_s=0.01):
            catch_up(shop)
        catch_up(shop)
        assert notes.is_equal()

    def test_rows_that_are_still_to_be_read_are_changed_meanwhile(self, shop: Shop) -> None:
        """The log of a table that comes later, begins again, or is altered twice."""
        catch_up(shop)
        shop.at_source("CREATE TABLE pairs (a INT, b INT, UNIQUE (a))")
        rows = ", ".join(f"({n if n < 50 else 'NULL'}, {n % 5})" for n in range(100))
        shop.at_source(f"INSERT INTO pairs VALUES {rows}")
        seed = random.randrange(1 << 32)
        print(f"seed: {seed}")
        rng = random.Random(seed)

        def write() -> None:
            shop.at_source(f"DELETE FROM pairs WHERE b = {rng.randrange(5)} LIMIT 2")
            shop.at_source(f"UPDATE pairs SET b = (b + 1) % 5 WHERE b = {rng.randrange(5)} LIMIT 2")
            shop.at_source(f"REPLACE INTO pairs VALUES ({rng.randrange(50)}, {rng.randrange(5)})")
            shop.at_source("INSERT INTO pairs (a, b) VALUES (NULL, 3)")

        def require_equal() -> None:
            catch_up(shop)
            rows = shop.source.execute("SELECT * FROM pairs", database=shop.database)
            assert Counter(shop.sink_rows("SELECT * FROM pairs")) == Counter(rows)

        with beside(write, every_s=0.002):
            catch_up(shop)
        require_equal()
        reset_tables(shop.run(), [TableId(shop.database, "pairs")])
        with beside(write, every_s=0.002):
            catch_up(shop)
        require_equal()
        for statement in (
            "ALTER TABLE pairs ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x'",
            "ALTER TABLE pairs MODIFY COLUMN more VARCHAR(30) DEFAULT 'y'",
        ):
            shop.at_source(statement)
            shop.at_source("DELETE FROM pairs LIMIT 5")
            shop.at_source("INSERT INTO pairs (a, b) VALUES (NULL, 4)")
        require_equal()

    def test_a_part_of_its_rows_cannot_be_asked_for(self, notes: Notes) -> None:
        shop = notes.shop
        catch_up(shop)
        table = str(notes.table)
        with pytest.raises(RefusedError, match="has no key, so a part of its rows cannot be read"):
            resync_scope(shop.run(), [table], where="n = 1")
        with pytest.raises(RefusedError, match="has no key, so a part of its rows cannot be read"):
            resync_scope(shop.run(), [table], from_key="1")
        with pytest.raises(RefusedError, match="has no key, so a part of its rows cannot be read"):
            backfill_scope(shop.run(), table, "n", start="1", end="2")

    def test_it_is_copied_as_it_is(self, notes: Notes) -> None:
        shop = notes.shop
        text = shop.path.read_text()
        shop.path.write_text(f'{text}tables: {{"{notes.table}": {{where: "n = 1"}}}}\n')
        with pytest.raises(PipelineFileError, match="notes has no key, so it is copied as it is"):
            check(shop.run())

    def test_several_writers_leave_it_to_one(self, notes: Notes) -> None:
        shop = notes.shop
        text = shop.path.read_text()
        catch_up(shop)
        for writers in (3, 2, 1):
            merged = f"stream: {{apply: merged, writers: {writers}}}\n"
            shop.path.write_text(text + merged)
            with beside(notes.write, every_s=0.01):
                catch_up(shop)
        catch_up(shop)
        assert notes.is_equal()


class TestMySql(WithoutKey):
    pass


def test_a_planned_table_that_lost_its_key_begins_again_without_it(shop: Shop) -> None:
    plan(shop.run())
    shop.at_source("ALTER TABLE orders DROP PRIMARY KEY, DROP KEY code")
    shop.at_source("INSERT INTO orders VALUES (1, 'one', 10), (1, 'one', 10)")
    catch_up(shop)
    shop.at_source("DELETE FROM orders WHERE id = 1 LIMIT 1")
    catch_up(shop)
    assert len(shop.sink_rows("SELECT * FROM orders WHERE id = 1 AND code = 10")) == 2


def test_two_texts_of_json_that_are_one_document_at_the_sink_are_found_there(shop: Shop) -> None:
    shop.at_source("CREATE TABLE docs (doc JSON, n INT)")
    decimal = "JSON_ARRAY(CAST(1.50 AS DECIMAL(5,2)))"
    shop.at_source(f"INSERT INTO docs VALUES ({decimal}, 1), ('[1.5]', 1), ({decimal}, 1)")
    catch_up(shop)
    shop.at_source("UPDATE docs SET n = 2 LIMIT 2")
    catch_up(shop)
    assert shop.sink_rows("SELECT n, COUNT(*) FROM docs GROUP BY n ORDER BY n") == [(1, 1), (2, 2)]


def test_a_request_whose_rows_the_sink_refuses_names_the_row_and_leaves_the_others(
    shop: Shop,
) -> None:
    shop.at_source("CREATE TABLE pairs (a INT, b INT, UNIQUE (b))")
    shop.at_source("INSERT INTO pairs VALUES (1, 1), (1, NULL), (1, NULL), (2, 2)")
    catch_up(shop)
    for sql in ("DELETE FROM pairs WHERE a = 2", "ALTER TABLE pairs ADD CHECK (a < 2)"):
        shop.sink.execute(sql, database=shop.target)
    table = f"{shop.database}.pairs"
    asked = ask_resync(shop.run(), resync_scope(shop.run(), [table]))
    run = catch_up(shop)
    failed = run.store.request(run.name, asked.request_id)
    assert failed is not None
    assert failed.status is RequestStatus.FAILED
    assert "pairs_chk_1" in failed.error.text
    assert len(shop.sink_rows("SELECT * FROM pairs")) == 3


def test_a_sink_may_number_the_rows_by_a_column_of_its_own(shop: Shop) -> None:
    shop.at_source("CREATE TABLE pairs (a INT, b VARCHAR(9))")
    shop.at_source("INSERT INTO pairs VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL)")
    own = "number BIGINT AUTO_INCREMENT PRIMARY KEY INVISIBLE"
    shop.sink.execute(f"CREATE TABLE pairs (a INT, b VARCHAR(9), {own})", database=shop.target)
    catch_up(shop)
    for change in ("DELETE FROM pairs WHERE a = 1 LIMIT 1", "UPDATE pairs SET b = 'y' LIMIT 2"):
        shop.at_source(change)
        catch_up(shop)
    rows = shop.source.execute("SELECT * FROM pairs", database=shop.database)
    assert Counter(shop.sink_rows("SELECT * FROM pairs")) == Counter(rows)


class TestToMariaDb:
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_a_zero_below_zero_is_found_where_the_server_stores_it_as_zero(
        self, shop: Shop
    ) -> None:
        shop.at_source("CREATE TABLE pairs (a INT, f FLOAT, d DOUBLE)")
        rows = "(1, -0e0, -0e0), (1, 0, -0e0), (1, 0, 0), (1, -0e0, -0e0), (2, 5, -0e0)"
        shop.at_source(f"INSERT INTO pairs VALUES {rows}")
        catch_up(shop)
        for change in ("DELETE FROM pairs LIMIT 2", "UPDATE pairs SET a = 3"):
            shop.at_source(change)
            catch_up(shop)
            held = shop.source.execute("SELECT a, f + 0, d + 0 FROM pairs", database=shop.database)
            assert Counter(shop.sink_rows("SELECT * FROM pairs")) == Counter(held)


class TestFromMariaDb(WithoutKey):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
