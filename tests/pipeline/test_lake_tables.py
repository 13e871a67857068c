"""Tables of a lake follow their source's definitions, come later, begin again, stop and return."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    RefusedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.table_requests import reset_some
from tests.pipeline.altered_tables import alter_before_reading, change
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.systems.lake import damage


@pytest.fixture(params=FORMS)
def lake(shop: Shop, request: pytest.FixtureRequest) -> Lake:
    found = Lake.of(shop, request.param)
    found.catch_up()
    return found


FOLLOWED = {
    "a column that is NULL": (
        ["ALTER TABLE orders ADD COLUMN more INT AFTER id"],
        "UPDATE orders SET more = 8 WHERE id = 1",
    ),
    "a column that goes": (
        ["ALTER TABLE orders DROP COLUMN note"],
        "UPDATE orders SET code = code + 100 WHERE id = 1",
    ),
    "a longer text": (
        ["ALTER TABLE orders MODIFY note VARCHAR(200)"],
        "UPDATE orders SET note = REPEAT('x', 150) WHERE id = 2",
    ),
    "a unique key": (["ALTER TABLE orders DROP INDEX code"], "UPDATE orders SET code = 10"),
    "all rows taken away": (["TRUNCATE TABLE orders"], "SELECT 1"),
    "several one after another": (
        [
            "ALTER TABLE orders ADD COLUMN one INT",
            "INSERT INTO orders (id, one) VALUES (71, 1)",
            "ALTER TABLE orders ADD COLUMN two VARCHAR(9)",
            "INSERT INTO orders (id, two) VALUES (72, '3')",
        ],
        "DELETE FROM orders WHERE id = 71",
    ),
}


def test_changed_definitions_are_followed(lake: Lake) -> None:
    shop = lake.shop
    named = dict(zip(FOLLOWED, (f"t{number}" for number in range(len(FOLLOWED))), strict=True))
    for table in named.values():
        shop.at_source(f"CREATE TABLE {table} LIKE orders")
        shop.at_source(f"INSERT INTO {table} SELECT * FROM orders")
    lake.catch_up()
    for case, table in named.items():
        statements, then = FOLLOWED[case]
        shop.at_source(f"INSERT INTO {table} (id, note) VALUES (70, 'before')")
        change(shop, table, [*statements, "INSERT INTO orders (id) VALUES (80)", then])
    lake.catch_up()
    for case, table in named.items():
        if not lake.is_mirror:
            assert lake.operations(table).startswith("rrrc"), case
            assert lake.operations(table).count("r") == 3, f"{case}: it was read again"
        assert lake.is_equal(table), case
        shop.at_source(f"DELETE FROM {table} WHERE id = 80")
    lake.catch_up()
    assert all(map(lake.is_equal, named.values()))


def test_a_default_that_the_server_prints_with_a_question_mark_is_none_of_a_lake(
    lake: Lake,
) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    lake.catch_up()
    shop.at_source(
        "ALTER TABLE orders ADD COLUMN mood CHAR(5) CHARSET utf8mb4 DEFAULT '\N{GRINNING FACE}'"
    )
    shop.at_source("INSERT INTO orders (id) VALUES (9)")
    shop.at_source("INSERT INTO others VALUES (1)")
    for _ in range(2):
        lake.catch_up()
        assert not check(shop.run()).blocks
        assert all(map(lake.is_equal, ("orders", "others")))
    assert {*lake.changes("orders").column("mood").to_pylist()} >= {"\N{GRINNING FACE}"}


def test_a_column_is_there_without_a_row_behind_it(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, gone INT, v INT)")
    shop.at_source("CREATE TABLE third (id INT PRIMARY KEY)")
    lake.catch_up()
    shop.at_source("ALTER TABLE orders ADD COLUMN more INT NULL")
    shop.at_source("ALTER TABLE others DROP COLUMN gone, ADD COLUMN at DATETIME(3), MODIFY v INT")
    shop.at_source("ALTER TABLE others ADD COLUMN g POINT")
    for _ in range(2):
        lake.catch_up()
        assert lake.operations("orders") == "rrr"
        assert all(map(lake.is_equal, ("orders", "others", "third")))
        assert {"at", "g"} <= {*lake.changes("others").column_names}
    assert lake.verified().equal
    shop.at_source("INSERT INTO orders (id, more) VALUES (9, 8)")
    shop.at_source("INSERT INTO others (id, at) VALUES (9, '2024-01-01 00:00:00.123')")
    lake.catch_up()
    assert all(map(lake.is_equal, ("orders", "others")))


BEGINS_AGAIN = {
    "a column with a default": "ADD COLUMN more INT NOT NULL DEFAULT 7",
    "a default that may be NULL": "ADD COLUMN more INT DEFAULT 7",
    "another name": "RENAME COLUMN c TO d",
    "a name in another case": "RENAME COLUMN c TO C",
    "a number as a time": "DROP COLUMN c, ADD COLUMN c DATETIME(3)",
    "a name and a type that another column had": "DROP COLUMN c, RENAME COLUMN a TO c",
    "a number as text": "MODIFY c VARCHAR(20)",
    "beyond all numbers": "MODIFY c BIGINT UNSIGNED",
    "more digits behind the point": "MODIFY m DECIMAL(12,4)",
    "more digits than a lake has": "MODIFY m DECIMAL(50,2)",
    "a finer time": "MODIFY at DATETIME(6)",
    "bytes that are padded": "MODIFY bn BINARY(4)",
    "an ENUM as a number": "MODIFY e TINYINT",
}


WIDER = {"a bigger number": "MODIFY c BIGINT", "more digits": "MODIFY m DECIMAL(20,2)"}
"""Iceberg takes them as they are."""


def test_tables_begin_again_where_rows_of_before_would_be_read_wrongly(lake: Lake) -> None:
    shop, cases = lake.shop, {**BEGINS_AGAIN, **WIDER}
    named = dict(zip(cases, (f"t{number}" for number in range(len(cases))), strict=True))
    for table in named.values():
        shop.at_source(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, c INT, a INT, m DECIMAL(10,2), "
            "bn VARBINARY(2), at DATETIME, e ENUM('1','2'))"
        )
        shop.at_source(
            f"INSERT INTO {table} VALUES (1, 1, 10, 1.25, 'ab', '2024-01-01', '2'), "
            "(2, 2, 20, 2, 'xy', NULL, '1')"
        )
    lake.catch_up()
    for case, table in named.items():
        shop.at_source(f"UPDATE {table} SET a = 11 WHERE id = 1")
        shop.at_source(f"ALTER TABLE {table} {cases[case]}")
        shop.at_source(f"INSERT INTO {table} (id) VALUES (3)")
    lake.catch_up()
    for case, table in named.items():
        is_followed = case in WIDER and lake.form == "iceberg"
        assert lake.operations(table).endswith(
            lake.either("rruc", "ruc") if is_followed else lake.either("trrr", "rrr")
        ), case
        assert lake.is_equal(table), case
        shop.at_source(f"UPDATE {table} SET id = id + 10")
        shop.at_source(f"DELETE FROM {table} WHERE id = 11")
    lake.catch_up()
    assert all(map(lake.is_equal, named.values()))


@pytest.mark.parametrize("by", ["the stream", "reset"])
def test_a_table_gets_its_first_time_without_a_zone(lake: Lake, by: str) -> None:
    shop = lake.shop
    shop.at_source("UPDATE orders SET note = NULL")
    shop.at_source("ALTER TABLE orders MODIFY note DATETIME")
    if by == "reset":
        run = shop.run()
        reset(run)
        run.close()
    shop.at_source("INSERT INTO orders VALUES (9, '2024-01-01', 9)")
    lake.catch_up()
    assert lake.is_equal("orders")
    shop.at_source("DELETE FROM orders WHERE id = 9")
    lake.catch_up()
    assert lake.is_equal("orders")


def test_another_mode_is_refused_by_check_and_taken_by_a_reset(lake: Lake) -> None:
    shop = lake.shop
    was, now = ("mirror", "append") if lake.is_mirror else ("append", "mirror")
    text = shop.path.read_text()
    line = "  mode: mirror\n"
    shop.path.write_text(
        text.replace(line, "") if lake.is_mirror else text.replace("  path:", line + "  path:")
    )
    with pytest.raises(
        RefusedError, match=f"begun with `mode: {was}`, and the file says `mode: {now}`"
    ):
        check(shop.run())
    run = shop.run()
    reset(run)
    run.close()
    assert not check(shop.run()).blocks
    lake.catch_up()
    assert replace(lake, is_mirror=not lake.is_mirror).is_equal("orders")


def test_a_type_that_does_not_fit_is_mended_by_reset_of_the_pipeline(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("ALTER TABLE orders MODIFY code VARCHAR(9), RENAME COLUMN note TO remark")
    run = shop.run()
    reset(run)
    run.close()
    lake.catch_up()
    assert lake.operations("orders") == "rrr"
    assert lake.is_equal("orders")


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_catalog_that_is_gone_is_waited_for_and_reset_makes_it_anew(lake: Lake) -> None:
    shop, catalog = lake.shop, lake.folder / "catalog.db"
    shop.at_source("INSERT INTO orders (id) VALUES (9)")
    lake.catch_up()
    away = catalog.rename(lake.folder.with_name("away.db"))
    shop.at_source("INSERT INTO orders (id) VALUES (10)")
    made: list[bool] = []

    def put_back() -> None:
        made.append(catalog.exists())
        away.rename(catalog)

    later = threading.Timer(5, put_back)
    later.start()
    lake.catch_up()
    later.join()
    assert made == [False]
    assert lake.operations("orders") == "rrrcc"
    assert lake.is_equal("orders")
    catalog.unlink()
    run = shop.run()
    reset(run)
    run.close()
    lake.catch_up()
    assert lake.operations("orders") == "rrrrr"
    assert lake.is_equal("orders")


def test_a_column_that_readers_could_not_tell_from_ours_stops_its_table(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    lake.catch_up()
    shop.at_source("ALTER TABLE orders ADD COLUMN _OP INT")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    with pytest.raises(TablesStoppedError, match="_op would be there twice"):
        lake.catch_up()
    assert lake.operations("others") == "c"
    shop.at_source("ALTER TABLE orders RENAME COLUMN _OP TO op")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    assert lake.is_equal("orders")


def test_tables_that_change_while_they_are_first_read_begin_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = lake.shop
    run = shop.run()
    reset(run)
    run.close()
    left = alter_before_reading(shop, monkeypatch)
    lake.catch_up()
    assert left == []
    assert lake.is_equal("orders")


def test_rows_of_definitions_between_are_left_out_of_a_table_that_begins_again(lake: Lake) -> None:
    shop = lake.shop
    for table in (
        "later (id INT PRIMARY KEY, v INT, w INT)",
        "later (a INT, b INT, PRIMARY KEY (b, a))",
        "later (id INT PRIMARY KEY, v INT)",
    ):
        shop.at_source("DROP TABLE IF EXISTS later")
        shop.at_source(f"CREATE TABLE {table}")
        shop.at_source(
            "INSERT INTO later VALUES (1, 2, 3)"
            if "w" in table
            else "INSERT INTO later VALUES (1, 2)"
        )
        if "w" in table:
            lake.catch_up()
    lake.catch_up()
    assert lake.is_equal("later")


def test_a_table_that_comes_later_is_read_beside_the_stream(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES (1, 1), (2, 2)")
    lake.catch_up()
    shop.at_source("UPDATE later SET v = 3 WHERE id = 1")
    shop.at_source("DELETE FROM later WHERE id = 2")
    lake.catch_up()
    assert lake.operations("later") == lake.either("rrud", "u")
    assert lake.is_equal("later")
    assert lake.operations("orders") == "rrr"


def test_a_table_without_a_row_is_there_with_its_columns(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v VARCHAR(9))")
    lake.catch_up()
    assert lake.changes("later").column_names[:2] == ["id", "v"]
    assert lake.is_equal("later")
    shop.at_source("INSERT INTO later VALUES (1, 'x')")
    lake.catch_up()
    shop.at_source("DELETE FROM later")
    lake.catch_up()
    reset_tables(shop.run(), [TableId(shop.database, "later")])
    lake.catch_up()
    assert lake.operations("later") == lake.either("cdt", "")
    assert lake.is_equal("later")


@pytest.mark.parametrize("collation", ["utf8mb4_0900_ai_ci", "utf8mb4_bin"])
def test_a_table_whose_key_is_text_comes_later_and_begins_again(lake: Lake, collation: str) -> None:
    shop = lake.shop
    shop.at_source(f"CREATE TABLE later (k VARCHAR(20) COLLATE {collation} PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES ('a', 1), ('B', 2), ('c', 3)")
    lake.catch_up()
    shop.at_source("DELETE FROM later WHERE k = 'B'")
    lake.catch_up()
    assert lake.is_equal("later")
    shop.at_source("ALTER TABLE later MODIFY v VARCHAR(9)")
    shop.at_source("UPDATE later SET v = 'x', k = 'd' WHERE k = 'a'")
    lake.catch_up()
    assert lake.is_equal("later")


def test_a_table_that_goes_stays_and_begins_again_when_it_comes_back(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES (1, 1), (2, 2)")
    lake.catch_up()
    shop.at_source("UPDATE later SET v = 5")
    shop.at_source("DROP TABLE later")
    lake.catch_up()
    assert lake.operations("later") == lake.either("rruu", "uu")
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, w INT)")
    shop.at_source("INSERT INTO later VALUES (3, 3)")
    lake.catch_up()
    assert lake.operations("later") == lake.either("rruutr", "r")
    assert lake.is_equal("later")


def test_a_table_that_is_reset_begins_again_and_the_others_go_on(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO others VALUES (1)")
    lake.catch_up()
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    shop.at_source("INSERT INTO orders (id) VALUES (9)")
    lake.catch_up()
    assert lake.operations("orders") == lake.either("rrrtrrrr", "rrrr")
    assert lake.operations("others") == "r"
    assert lake.is_equal("orders")


@pytest.mark.parametrize("by", ["set back", "dropped"])
def test_a_table_that_was_set_back_is_mended_by_reset_of_it_alone(lake: Lake, by: str) -> None:
    shop, orders = lake.shop, TableId(lake.shop.database, "orders")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    for number in (8, 9):
        shop.at_source(f"INSERT INTO orders (id) VALUES ({number})")
        lake.catch_up()
    harm = damage.set_back if by == "set back" else damage.dropped
    harm(lake.form, lake.folder, orders)
    shop.at_source("DELETE FROM orders WHERE id = 9")
    shop.at_source("INSERT INTO others VALUES (1)")
    for _ in range(2):
        with pytest.raises(IntegrityError, match="dropped or set back") as error:
            lake.catch_up()
        assert f"--table {orders}" in error.value.remedy
    reset_tables(shop.run(), [orders])
    lake.catch_up()
    shop.at_source("INSERT INTO orders (id) VALUES (10)")
    for _ in range(2):
        lake.catch_up()
        assert all(map(lake.is_equal, ("orders", "others")))
    assert lake.operations("orders") == lake.either("trrrrc", "rrrrc")
    assert lake.operations("others") == "c"


def test_tables_that_may_not_be_committed_to_hold_no_reset_of_another_up(lake: Lake) -> None:
    shop, names = lake.shop, ("orders", "others", "items")
    for name in names[1:]:
        shop.at_source(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    for number in (8, 9):
        for name in names:
            shop.at_source(f"INSERT INTO {name} (id) VALUES ({number})")
        lake.catch_up()
    for name in names[:2]:
        damage.dropped(lake.form, lake.folder, TableId(shop.database, name))
        shop.at_source(f"INSERT INTO {name} (id) VALUES (10)")
    with pytest.raises(IntegrityError, match="dropped or set back"):
        lake.catch_up()
    for name in ("items", "others", "orders"):
        assert reset_tables(shop.run(), [TableId(shop.database, name)])
        if name != "orders":
            with pytest.raises(CdcError, match="orders"):
                lake.catch_up()
        assert lake.is_equal("items")
    lake.catch_up()
    assert all(map(lake.is_equal, names))


@pytest.mark.parametrize("lake", ["iceberg", "iceberg_mirror"], indirect=True)
def test_a_mirror_of_which_others_took_a_column_is_made_anew_by_reset(lake: Lake) -> None:
    shop, orders = lake.shop, TableId(lake.shop.database, "orders")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO orders (id, note) VALUES (8, 'eight')")
    lake.catch_up()
    table = damage.catalog_of(lake.folder).load_table((orders.database, orders.table))
    with table.update_schema() as changed:
        changed.delete_column("note")
    shop.at_source("UPDATE orders SET note = 'nine' WHERE id = 8")
    if lake.is_mirror:
        with pytest.raises(IntegrityError, match="others have taken note"):
            lake.catch_up()
    reset_some(shop.run(), [orders])
    lake.catch_up()
    assert lake.is_equal("orders")


def test_dates_of_the_year_0_are_written_and_compared(lake: Lake) -> None:
    shop = lake.shop
    lake.logged(
        "CREATE TABLE days (id INT PRIMARY KEY, day DATE, at DATETIME(6))",
        "INSERT INTO days VALUES (1, '0000-06-01', '0000-12-31 23:59:59.000001'), (2, NULL, NULL)",
    )
    lake.catch_up()
    lake.logged(
        "INSERT INTO days VALUES (3, '0000-01-01', '0001-01-01 00:00:00')",
        "UPDATE days SET day = '0000-02-29' WHERE id = 2",
    )
    lake.catch_up()
    assert shop.source.execute("SELECT COUNT(*) FROM days", database=shop.database) == [(3,)]
    (verdict,) = lake.verified("days").tables
    assert (verdict.equal, verdict.rows_sink) == (True, 3), verdict


def test_a_table_whose_folder_is_gone_is_mended_by_reset_of_it_alone(lake: Lake) -> None:
    if lake.form == "iceberg":
        pytest.skip("its catalog still knows the table")
    shop, orders = lake.shop, TableId(lake.shop.database, "orders")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    lake.catch_up()
    shutil.rmtree(lake.folder / str(orders))
    shop.at_source("INSERT INTO others VALUES (1)")
    shop.at_source("INSERT INTO orders (id) VALUES (8)")
    for _ in range(2):
        with pytest.raises(IntegrityError, match="a file that the log names is gone"):
            lake.catch_up()
    reset_tables(shop.run(), [orders])
    lake.catch_up()
    assert all(map(lake.is_equal, ("orders", "others")))


def test_a_table_that_cannot_be_followed_stops_alone_and_begins_again_by_reset(
    lake: Lake,
) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    lake.catch_up()
    shop.at_source("UPDATE orders SET note = 'last' WHERE id = 1")
    shop.at_source("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, code)")
    shop.at_source("UPDATE others SET n = 2")
    for _ in range(2):
        with pytest.raises(TablesStoppedError, match="orders") as stopped:
            lake.catch_up()
        assert "only that is read again" in stopped.value.remedy
    assert lake.operations("orders") == lake.either("rrru", "rru")
    assert lake.operations("others") == lake.either("ru", "u")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    assert lake.operations("orders") == lake.either("rrrutrrr", "rrr")
    assert lake.is_equal("orders")


def test_a_table_that_is_paused_comes_back_by_the_log(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    lake.catch_up()
    pause_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    change(
        shop,
        "orders",
        [
            "UPDATE orders SET note = 'while it stands'",
            "UPDATE others SET n = 2",
            "ALTER TABLE orders ADD COLUMN more INT",
            "INSERT INTO orders (id, more) VALUES (9, 8)",
        ],
    )
    lake.catch_up()
    assert lake.operations("orders") == "rrr"
    assert lake.operations("others") == lake.either("ru", "u")
    resume_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    assert lake.operations("orders") == lake.either("rrruuuc", "uuuc")
    assert lake.is_equal("orders")
    shop.at_source("DELETE FROM orders WHERE id = 9")
    lake.catch_up()
    assert lake.is_equal("orders")
