"""Tables whose rows and columns are others at the sink, as the pipeline file says."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    RefusedError,
    TableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.run import give_back, take_over
from airflow_cdc_provider.pipeline.steps import converging, start_jobs
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.table_membership import (
    add_tables,
    remove_tables,
    reset_tables,
)
from airflow_cdc_provider.pipeline.steps.table_requests import reset_some
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import plan_form, plan_lines
from tests.pipeline.altered_tables import catch_up, change
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

PEOPLE = """CREATE TABLE people (
  id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, mail VARCHAR(60) NOT NULL, card_no VARBINARY(20),
  born DATE, city VARCHAR(20) CHARACTER SET latin1 DEFAULT 'Bonn', n INT NOT NULL DEFAULT 0,
  twice INT AS (n * 2) STORED, UNIQUE KEY of_mail (mail), KEY by_city (city))"""
ROWS = (
    "INSERT INTO people (mail, card_no, born, city, n) VALUES "
    "('änne@x.org', x'00ff', '1970-01-01', 'Köln', 1), ('b@x.org', NULL, NULL, NULL, 2), "
    "('c@x.org', x'01', '2001-02-03', 'Ulm', 3), ('d@x.org', x'', '2001-02-03', 'Ulm', 4)"
)
ALL_BUT = """columns: {exclude: [card_no], rename: {city: town, n: number},
    mask: {mail: {first: 2}, born: null}, constants: {region: "Süd", part: 7}}"""
AS_COPIED = (
    "SELECT id, LEFT(mail, 2), NULL, city, n{more}, 'Süd', 7 FROM people ORDER BY id",
    "SELECT id, mail, born, town, number{more}, region, part FROM people ORDER BY id",
)
CHOSEN = "columns: {include: [n, id, mail], rename: {id: number}, mask: {mail: {fixed: '***'}}}"
AS_CHOSEN = (
    "SELECT n, id, '***' FROM people ORDER BY id",
    "SELECT n, number, mail FROM people ORDER BY number",
)
HASHED = """columns: {mask: {mail: {sha256: {salt_env: SHOP_SALT}},
    card_no: {sha256: {salt_env: SHOP_SALT}}, n: {sha256: {salt_env: SHOP_SALT}}}}"""
AS_HASHED = (
    "SELECT id, SHA2(CONCAT('{salt}', mail), 256), SHA2(CONCAT('{salt}', card_no), 256), born, "
    "city, SHA2(CONCAT('{salt}', n), 256) FROM people ORDER BY id",
    "SELECT id, mail, card_no, born, city, n FROM people ORDER BY id",
)
FILTERED = """where: "city = 'Ulm' AND (n >= 3 OR born < '2000-01-01') AND NOT mail LIKE 'x%'" """
AS_FILTERED = (
    "SELECT * FROM people WHERE BINARY city = 'Ulm' AND (n >= 3 OR born < '2000-01-01') "
    "ORDER BY id",
    "SELECT * FROM people ORDER BY id",
)
WRITES = (
    "INSERT INTO people (mail, card_no, n) VALUES ('e@x.org', x'02', 5), ('f@x.org', x'03', 6)",
    "UPDATE people SET mail = CONCAT('z', mail), n = n + 10 WHERE id IN (1, 2)",
    "UPDATE people SET id = 50 WHERE id = 3",
    "UPDATE people SET card_no = x'aa'",
    "DELETE FROM people WHERE id = 4",
)


def describe(shop: Shop, settings: str) -> None:
    """Say in the file how the people look at the sink."""
    text = shop.path.read_text().split("tables:\n")[0]
    shop.path.write_text(f'{text}tables:\n  "{shop.database}.people":\n    {settings}\n')


def is_as(shop: Shop, queries: tuple[str, str], more: str = "") -> bool:
    """Tell whether both sides have the same rows, by dumps of them and by our own comparison."""
    table = TableId(shop.database, "people")
    (verdict,) = verify(shop.run(), tables=[table], settle_s=5).tables
    assert verdict.equal, verdict
    at_source, at_sink = (query.format(more=more) for query in queries)
    return shop.sink_rows(at_sink) == list(shop.source.execute(at_source, database=shop.database))


class Shaped:
    @pytest.fixture(autouse=True)
    def people(self, shop: Shop) -> None:
        shop.at_source(PEOPLE)
        shop.at_source(ROWS)

    def test_columns_are_left_out_renamed_masked_and_added_from_the_first_row_on(
        self, shop: Shop
    ) -> None:
        describe(shop, ALL_BUT)
        assert not check(shop.run()).blocks
        form = plan_form(preview(shop.run()), shop.run().model)
        told = (
            "5 of 6 columns, renamed: city as town, n as number, masked: mail, born, "
            "constant: region, part"
        )
        assert sum(line.endswith(told) for line in plan_lines(form)) == 1
        catch_up(shop)
        assert is_as(shop, AS_COPIED)
        change(shop, "people", WRITES)
        catch_up(shop)
        assert is_as(shop, AS_COPIED)
        assert shop.sink_rows("SELECT twice = number * 2 FROM people WHERE id = 1") == [(1,)]
        keys = {row[2] for row in shop.sink_rows("SHOW INDEX FROM people")}
        assert keys == {"PRIMARY", "by_city"}

    def test_a_table_that_the_file_does_not_fit_any_more_at_the_hand_off_has_a_way_back(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        describe(shop, "columns: {exclude: [card_no]}")
        read, left = start_jobs.snapshot, ["ALTER TABLE people ADD COLUMN z INT AFTER id"]

        def altered_first(*given: Any, **named: Any) -> Any:
            if left:
                shop.at_source(left.pop())
            return read(*given, **named)

        monkeypatch.setattr(converging, "snapshot", altered_first)
        people = TableId(shop.database, "people")
        with pytest.raises(TableChangedError, match="people") as stopped:
            catch_up(shop)
        assert f"`remove` it with --table {people} and `run`" in stopped.value.remedy
        as_it_was = shop.path.read_text()
        without = as_it_was.split("tables:\n")[0]
        shop.path.write_text(without.replace('.*"]', f'.*"]\n  exclude: ["{people}"]', 1))
        remove_tables(shop.run(), [people])
        catch_up(shop)
        shop.sink.execute("DROP TABLE IF EXISTS people", database=shop.target)
        shop.path.write_text(as_it_was)
        assert add_tables(shop.run(), [people]) == (people,)
        catch_up(shop)
        copied = "id, z, mail, born, city, n"
        query = f"SELECT {copied} FROM people ORDER BY id"
        assert is_as(shop, (query, query))

    def test_an_enum_that_holds_no_member_is_chosen_by_the_empty_text(self, shop: Shop) -> None:
        kinds = "kind ENUM('a','b'), other ENUM('','c')"
        shop.at_source(f"CREATE TABLE kinds (id INT PRIMARY KEY, {kinds})")
        lenient = "SET sql_mode = ''"
        rows = "(1, 'no', 'no'), (2, 'a', ''), (3, NULL, 'c'), (4, 'b', 'c')"
        with closing(shop.source.connect(database=shop.database)) as connection:
            cursor = connection.cursor()
            for statement in (lenient, f"INSERT INTO kinds VALUES {rows}"):
                cursor.execute(statement)
            text = shop.path.read_text().split("tables:\n")[0]
            for number, where in enumerate(("kind = ''", "kind <> ''", "other = ''")):
                name = f"kinds_{number}"
                cursor.execute(f"CREATE TABLE {name} LIKE kinds")
                cursor.execute(f"INSERT INTO {name} SELECT * FROM kinds")
                text += "tables:\n" if not number else ""
                text += f'  "{shop.database}.{name}": {{where: "{where}"}}\n'
            shop.path.write_text(text)
            catch_up(shop)
            for number in range(3):
                cursor.execute(f"INSERT INTO kinds_{number} SELECT id + 10, kind, other FROM kinds")
                cursor.execute(f"UPDATE kinds_{number} SET kind = 'no' WHERE id = 4")
            connection.commit()
        catch_up(shop)
        found = [
            [row[0] for row in shop.sink_rows(f"SELECT id FROM kinds_{number} ORDER BY id")]
            for number in range(3)
        ]
        assert found == [[1, 4, 11], [2, 12, 14], [2, 12]]
        assert verify(shop.run(), settle_s=5).equal

    def test_a_new_column_comes_with_the_others_and_a_changed_one_under_its_name(
        self, shop: Shop
    ) -> None:
        describe(shop, ALL_BUT)
        catch_up(shop)
        change(
            shop,
            "people",
            [
                "ALTER TABLE people ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x' AFTER id",
                "ALTER TABLE people MODIFY COLUMN city VARCHAR(40) CHARACTER SET latin1",
                "UPDATE people SET more = 'y', city = REPEAT('c', 40) WHERE id = 2",
                "ALTER TABLE people DROP COLUMN card_no",
                *(
                    write.replace(", card_no", "").replace(", x'02'", "").replace(", x'03'", "")
                    for write in WRITES
                    if "x'aa'" not in write
                ),
            ],
        )
        run = catch_up(shop)
        assert is_as(shop, AS_COPIED, ", more")
        assert run.store.requests(run.name) == ()
        catch_up(shop)  # with a file that still leaves out what is gone

    def test_only_chosen_columns_are_copied_and_new_ones_are_not(self, shop: Shop) -> None:
        describe(shop, CHOSEN)
        catch_up(shop)
        change(shop, "people", ["ALTER TABLE people ADD COLUMN more INT", *WRITES])
        catch_up(shop)
        assert is_as(shop, AS_CHOSEN)
        assert [row[0] for row in shop.sink_rows("SHOW COLUMNS FROM people")] == [
            "n",
            "number",
            "mail",
        ]

    def test_rows_are_read_again_as_the_sink_has_them(self, shop: Shop) -> None:
        describe(shop, CHOSEN)
        catch_up(shop)
        for statement in (
            "UPDATE people SET mail = 'wrong', n = 0",
            "DELETE FROM people WHERE number = 2",
            "INSERT INTO people VALUES (3, 999, 'not at the source')",
        ):
            shop.sink.execute(statement, database=shop.target)
        name = f"{shop.database}.people"
        run = shop.run()
        part = resync_scope(run, [name], from_key="3", to_key=None)
        (counted,) = estimate(run, part).tables
        assert (counted.source_rows, counted.sink_rows) == (2, 3)
        ask_resync(run, part, request_id="part")
        change(shop, "people", WRITES[:2])
        catch_up(shop)
        assert shop.sink_rows("SELECT n FROM people WHERE number > 900") == []
        assert shop.sink_rows("SELECT number FROM people WHERE mail = 'wrong'") == []
        ask_resync(run, resync_scope(run, [name]), request_id="rest")
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        assert is_as(shop, AS_CHOSEN)

    def test_only_rows_that_meet_the_condition_are_there_whatever_moves(self, shop: Shop) -> None:
        describe(shop, FILTERED)
        catch_up(shop)
        assert is_as(shop, AS_FILTERED)
        change(
            shop,
            "people",
            [
                *WRITES,
                "UPDATE people SET city = 'Ulm' WHERE id = 5",
                "UPDATE people SET city = 'Ulm', n = 7 WHERE id = 1",
                "UPDATE people SET city = 'ulm' WHERE id = 50",
                "INSERT INTO people (mail, city, n, born) VALUES "
                "('g@x.org', 'Ulm', 1, '1999-12-31'), ('h@x.org', 'Ulm', 8, '2000-01-01')",
                "UPDATE people SET id = id + 100 WHERE mail LIKE 'h%'",
            ],
        )
        catch_up(shop)
        assert is_as(shop, AS_FILTERED)
        assert len(shop.sink_rows("SELECT 1 FROM people")) == 4
        shop.sink.execute("UPDATE people SET n = 99 WHERE id > 5", database=shop.target)
        run = shop.run()
        name = f"{shop.database}.people"
        ask_resync(run, resync_scope(run, [name], from_key="6", to_key=None), request_id="part")
        change(shop, "people", ["UPDATE people SET city = 'Bonn' WHERE id = 5"])
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        assert is_as(shop, AS_FILTERED)
        change(shop, "people", ["TRUNCATE people"])
        catch_up(shop)
        assert shop.sink_rows("SELECT 1 FROM people") == []

    def test_a_column_of_the_condition_that_gets_another_type_stops_its_table(
        self, shop: Shop
    ) -> None:
        describe(shop, FILTERED)
        catch_up(shop)
        change(shop, "people", ["ALTER TABLE people MODIFY COLUMN n BIGINT NOT NULL DEFAULT 0"])
        with pytest.raises(TablesStoppedError, match="filtered or masked by n, of another type"):
            catch_up(shop)
        shop.sink.execute("ALTER TABLE people MODIFY COLUMN n BIGINT", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "people")])
        catch_up(shop)
        assert is_as(shop, AS_FILTERED)

    def test_other_columns_than_the_rows_were_copied_by_are_refused_until_a_reset(
        self, shop: Shop
    ) -> None:
        describe(shop, CHOSEN)
        catch_up(shop)
        describe(shop, ALL_BUT)
        with pytest.raises(PipelineFileError, match="others now than those that were copied"):
            catch_up(shop)
        shop.sink.execute("DROP TABLE people", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "people")])
        catch_up(shop)
        assert is_as(shop, AS_COPIED)

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ("columns: {exclude: [card]}", "people has no column card"),
            ("columns: {include: [id, nobody]}", "has no column nobody that is copied"),
            ("columns: {include: [mail]}", "id of .*people is in its key"),
            ("columns: {mask: {id: null}}", "id of .*people is in its key"),
            ("columns: {mask: {n: {first: 1}}}", "n of .* is neither text nor binary"),
            ("columns: {rename: {city: MAIL}}", "two columns MAIL"),
            ("columns: {constants: {twice: 1}}", "two columns twice"),
            ("where: nobody = 1", "no column nobody that is copied"),
            ("where: twice = 2", "no column twice that is copied"),
            ("where: mail < 'a'", "mail is a text, whose order is the server's own"),
            ("where: n = 5000000000", "5000000000 is no value of n"),
            ("where: n = now()", "wanted a value"),
            ("columns: {exclude: [n], include: [id]}", "not by both"),
            ("columns: {exclude: [n], mask: {n: null}}", "n is renamed, masked or given a type"),
            ("columns: {mask: {mail: {first: 1, last: 2}}}", "a mask is one of"),
        ],
    )
    def test_columns_that_do_not_fit_the_table_are_refused_with_their_line(
        self, shop: Shop, settings: str, why: str
    ) -> None:
        describe(shop, settings)
        with pytest.raises(PipelineFileError, match=why) as refused:
            check(shop.run())
        name = rf'tables\["{shop.database}\.people"\]'
        assert re.search(rf"shop\.yaml:line (9|10), {name}", refused.value.what)

    def test_hashes_go_on_by_one_salt_which_is_stored_nowhere(self, shop: Shop) -> None:
        salt = "planted in no store at all"
        shop.environment["SHOP_SALT"] = salt
        describe(shop, HASHED)
        catch_up(shop)
        as_hashed = (AS_HASHED[0].format(salt=salt), AS_HASHED[1])
        assert is_as(shop, as_hashed)
        change(shop, "people", WRITES)
        catch_up(shop)
        assert is_as(shop, as_hashed)
        (state,) = shop.path.parent.glob("*.state.db")
        assert b"planted" not in state.read_bytes()
        ledger = shop.sink.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'airflow_cdc'"
        )
        rows = [shop.sink.execute(f"SELECT * FROM airflow_cdc.{name}") for (name,) in ledger]
        assert "planted" not in str(rows)
        shop.environment["SHOP_SALT"] = salt[::-1]
        change(shop, "people", ["UPDATE people SET mail = CONCAT('y', mail)"])
        with pytest.raises(PipelineFileError, match="salt_env SHOP_SALT has another value now"):
            catch_up(shop)
        shop.environment["SHOP_SALT"] = salt
        catch_up(shop)
        assert is_as(shop, as_hashed)
        people = [TableId(shop.database, "people")]
        other = shop.run(owner="another process")
        with closing(open_ledger(other)) as held:
            take_over(other, held)
        shop.environment["SHOP_SALT"] = salt[::-1]
        with pytest.raises(RefusedError, match="has another value of salt_env SHOP_SALT"):
            reset_some(shop.run(), people)
        give_back(other)
        reset_some(shop.run(), people)
        catch_up(shop)
        assert is_as(shop, (AS_HASHED[0].format(salt=salt[::-1]), AS_HASHED[1]))
        shop.forget_state()
        change(shop, "people", ["UPDATE people SET mail = CONCAT('x', mail) WHERE id % 2 = 0"])
        shop.environment["SHOP_SALT"] = salt
        catch_up(shop)
        assert is_as(shop, as_hashed)

    def test_a_masked_column_that_is_renamed_stops_its_table_alone(self, shop: Shop) -> None:
        describe(shop, ALL_BUT)
        catch_up(shop)
        change(
            shop,
            "people",
            [
                "ALTER TABLE people CHANGE COLUMN mail address VARCHAR(60) NOT NULL",
                "UPDATE people SET address = CONCAT('secret', id)",
            ],
        )
        shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
        with pytest.raises(TablesStoppedError, match="names its columns mail, which are gone"):
            catch_up(shop)
        assert shop.sink_rows("SELECT COUNT(*) FROM people WHERE mail LIKE 's%'") == [(0,)]
        assert shop.sink_rows("SELECT note FROM orders WHERE id = 9") == [("nine",)]
        describe(shop, ALL_BUT.replace("mail", "address"))
        shop.sink.execute("DROP TABLE people", database=shop.target)
        reset_tables(shop.run(), [TableId(shop.database, "people")])
        catch_up(shop)
        assert shop.sink_rows("SELECT DISTINCT address FROM people") == [("se",)]


class TestMySql(Shaped):
    pass


class TestFromMariaDb(Shaped):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Shaped):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def test_a_table_that_takes_the_place_of_a_masked_one_by_rename_shows_nothing(shop: Shop) -> None:
    for statement in (PEOPLE, PEOPLE.replace("people", "guests"), ROWS):
        shop.at_source(statement)
    describe(shop, "columns: {mask: {mail: {first: 2}}}")
    catch_up(shop)
    shop.at_source("RENAME TABLE people TO away, guests TO people, away TO guests")
    shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
    people = rf"{shop.database}\.people was, which the pipeline does not copy as it is"
    with pytest.raises(TablesStoppedError, match=people):
        catch_up(shop)
    assert shop.sink_rows("SELECT COUNT(*) FROM guests") == [(0,)]
    assert shop.sink_rows("SELECT note FROM orders WHERE id = 9") == [("nine",)]
    reset_tables(shop.run(), [TableId(shop.database, "guests")])  # a person wants it as it is
    catch_up(shop)
    assert shop.sink_rows("SELECT COUNT(*) FROM people") == [(0,)]
    assert shop.sink_rows("SELECT COUNT(*) FROM guests WHERE mail LIKE '%@x.org'") == [(4,)]
