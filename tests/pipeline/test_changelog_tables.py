"""A change log follows its source's definitions, and takes tables that are added later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import (
    NotConsistentError,
    RefusedError,
    RowsNotLoggedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.overrides import skip_place
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.pipeline.altered_tables import alter_before_reading, change
from tests.pipeline.change_logs import Logged, rows_of
from tests.pipeline.conftest import Shop
from tests.pipeline.statements_as_text import as_text
from tests.servers.given import SqlServer

FOLLOWED = {
    "a column with a default": (
        ["ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7 AFTER id"],
        "UPDATE orders SET more = 8 WHERE id = 1",
        {"more": 7},
    ),
    "a column that goes": (
        ["ALTER TABLE orders DROP COLUMN note"],
        "UPDATE orders SET code = code + 100 WHERE id = 1",
        {},
    ),
    "a wider type": (
        ["ALTER TABLE orders MODIFY code BIGINT"],
        "UPDATE orders SET code = 5000000000 WHERE id = 2",
        {},
    ),
    "a unique key": (
        ["ALTER TABLE orders DROP INDEX code"],
        "UPDATE orders SET code = 10",
        {},
    ),
    "several one after another": (
        [
            "ALTER TABLE orders ADD COLUMN one INT",
            "INSERT INTO orders (id, one) VALUES (71, 1)",
            "ALTER TABLE orders ADD COLUMN two INT DEFAULT 2",
            "INSERT INTO orders (id, two) VALUES (72, 3)",
        ],
        "DELETE FROM orders WHERE id = 71",
        {"two": 2},
    ),
    "all rows taken away": (["TRUNCATE TABLE orders"], "SELECT 1", {}),
}


@pytest.fixture(params=["json", "parquet"])
def logged(shop: Shop, request: pytest.FixtureRequest) -> Logged:
    found = Logged.of(shop, form=request.param)
    found.catch_up()
    return found


@pytest.mark.parametrize("case", FOLLOWED)
def test_a_changed_definition_is_followed_and_the_log_makes_the_sources_rows(
    logged: Logged, case: str
) -> None:
    statements, then, defaults = FOLLOWED[case]
    before = logged.events("orders")
    logged.shop.at_source("INSERT INTO orders (id, note) VALUES (70, 'before')")
    change(logged.shop, "orders", statements)
    logged.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    logged.shop.at_source(then)
    logged.catch_up()
    assert logged.events("orders")[: len(before)] == before
    assert logged.is_equal("orders", defaults)
    logged.shop.at_source("DELETE FROM orders WHERE id = 80")
    logged.catch_up()
    assert logged.is_equal("orders", defaults)


def test_a_column_has_its_new_name_from_the_statement_on(logged: Logged) -> None:
    logged.shop.at_source("UPDATE orders SET note = 'old name' WHERE id = 1")
    logged.shop.at_source("ALTER TABLE orders RENAME COLUMN note TO remark")
    logged.shop.at_source("UPDATE orders SET remark = 'new name' WHERE id = 1")
    logged.catch_up()
    *_, old, new = logged.events("orders")
    assert (old["after"]["note"], "remark" in old["after"]) == ("old name", False)
    assert (new["before"]["remark"], new["after"]["remark"]) == ("old name", "new name")
    assert "note" not in new["after"]


READ_AGAIN = {
    "a default that servers print in their own way": "ADD COLUMN f FLOAT DEFAULT 1.5",
    "a narrower type": "MODIFY note CHAR(3)",
    "a column no more NULL": "MODIFY note VARCHAR(40) NOT NULL DEFAULT 'n'",
}


@pytest.mark.parametrize("case", READ_AGAIN)
def test_a_table_whose_values_may_have_changed_begins_again_in_the_log(
    logged: Logged, case: str
) -> None:
    shop = logged.shop
    shop.at_source("UPDATE orders SET note = CONCAT('x', id)")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    logged.catch_up()
    shop.at_source(f"ALTER TABLE orders {READ_AGAIN[case]}")
    shop.at_source("INSERT INTO orders (id, note) VALUES (80, 'new')")
    shop.at_source("UPDATE others SET n = 2")
    logged.catch_up()
    assert logged.operations("orders").startswith("rrruuutrrrr")
    assert logged.is_equal("orders")
    assert logged.operations("others") == "ru"
    shop.at_source("DELETE FROM orders WHERE id = 80")
    logged.catch_up()
    assert logged.is_equal("orders")


NOT_AS_WRITTEN = {
    "a name that a dropped column had": (["DROP COLUMN c"], "ADD COLUMN c INT DEFAULT 9"),
    "a name that a renamed column had": (["RENAME COLUMN a TO b"], "ADD COLUMN a INT"),
    "a name that it had once": (["RENAME COLUMN a TO b", "DROP COLUMN c"], "RENAME COLUMN b TO a"),
    "bytes that are padded": ([], "MODIFY bn BINARY(4)"),
    "another fraction of a second": ([], "MODIFY at DATETIME(6)"),
    "a wider floating number": ([], "MODIFY f DOUBLE"),
}


@pytest.mark.parametrize("case", NOT_AS_WRITTEN)
@pytest.mark.sample(3)
def test_a_table_begins_again_where_events_of_before_would_be_read_wrongly(
    logged: Logged, case: str
) -> None:
    first, last = NOT_AS_WRITTEN[case]
    shop = logged.shop
    shop.at_source(
        "CREATE TABLE kept (id INT PRIMARY KEY, c INT, a INT, bn BINARY(2), at DATETIME, f FLOAT)"
    )
    shop.at_source(
        "INSERT INTO kept VALUES (1, 1, 1, 'ab', '2024-01-01', 0.1), (2, 2, 2, 'x', NULL, 7)"
    )
    logged.catch_up()
    for clause in first:
        shop.at_source(f"ALTER TABLE kept {clause}")
        logged.catch_up()
    assert logged.operations("kept") == "rr"
    shop.at_source(f"ALTER TABLE kept {last}")
    logged.catch_up()
    assert logged.operations("kept") == "rrtrr"
    shop.at_source("UPDATE kept SET id = id + 10")
    logged.catch_up()
    _, _, _, *rows = logged.events("kept")
    rows_of(rows)  # each fits what is there before it
    shop.at_source("ALTER TABLE kept MODIFY id BIGINT, ADD COLUMN more VARCHAR(9)")
    logged.catch_up()
    assert "t" not in logged.operations("kept")[3:]  # numbers are written alike


def test_a_partition_that_is_dropped_is_gone_from_the_log_too(logged: Logged) -> None:
    """Its rows go without an event: the table begins again."""
    logged.shop.at_source(
        "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))"
    )
    logged.shop.at_source("INSERT INTO parted VALUES (1), (11)")
    logged.catch_up()
    logged.shop.at_source("ALTER TABLE parted DROP PARTITION a")
    logged.catch_up()
    assert logged.operations("parted") == "rrtr"
    assert logged.is_equal("parted")


def test_a_table_that_changes_while_it_is_first_read_begins_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = Logged.of(shop, form="parquet")
    left = alter_before_reading(shop, monkeypatch)
    logged.catch_up()
    assert (left, logged.operations("orders")) == ([], "rrrr")
    assert logged.is_equal("orders")


def test_a_table_that_comes_later_is_read_beside_the_stream(logged: Logged) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES (1, 1), (2, 2)")
    logged.catch_up()
    shop.at_source("UPDATE later SET v = 3 WHERE id = 1")
    shop.at_source("DELETE FROM later WHERE id = 2")
    logged.catch_up()
    assert logged.operations("later") == "rrud"
    assert logged.is_equal("later")
    assert logged.operations("orders") == "rrr"


def test_a_table_that_is_being_read_needs_no_resume_and_the_answer_says_so(logged: Logged) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES (1, 1), (2, 2)")
    plan(shop.run())
    with pytest.raises(RefusedError, match="later is being read, and needs no `resume`"):
        resume_tables(shop.run(), [TableId(shop.database, "later")])
    with pytest.raises(RefusedError, match="orders is not stopped, and needs no `resume`"):
        resume_tables(shop.run(), [TableId(shop.database, "orders")])


def test_a_table_that_goes_stays_in_the_log_and_begins_again_when_it_comes_back(
    logged: Logged,
) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, v INT)")
    shop.at_source("INSERT INTO later VALUES (1, 1), (2, 2)")
    logged.catch_up()
    shop.at_source("DROP TABLE later")
    logged.catch_up()
    assert logged.operations("later") == "rr"
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, w INT)")
    shop.at_source("INSERT INTO later VALUES (3, 3)")
    logged.catch_up()
    assert logged.operations("later") == "rrtr"
    assert logged.is_equal("later")


def test_a_table_that_is_reset_begins_again_and_the_others_go_on(logged: Logged) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    logged.catch_up()
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    shop.at_source("INSERT INTO orders (id) VALUES (9)")
    logged.catch_up()
    assert (logged.operations("orders"), logged.operations("others")) == ("rrrtrrrr", "")
    assert logged.is_equal("orders")


def test_rows_of_a_table_that_the_log_has_are_not_read_again(logged: Logged) -> None:
    with pytest.raises(RefusedError, match="takes no rows again"):
        resync_scope(logged.shop.run(), [f"{logged.shop.database}.orders"])


def test_a_table_that_cannot_be_followed_stops_alone_and_begins_again_by_reset(
    logged: Logged,
) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    logged.catch_up()
    shop.at_source("UPDATE orders SET note = 'last' WHERE id = 1")
    shop.at_source("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, code)")
    shop.at_source("UPDATE others SET n = 2")
    with pytest.raises(TablesStoppedError, match="orders"):
        logged.catch_up()
    error = isolated(shop)
    assert "CDC-INT-008" in error
    assert "at the sink" not in error.partition("what to do")[2]  # a log has no table to change
    assert f"`reset` it with --table {shop.database}.orders: only that" in error
    assert (logged.operations("orders"), logged.operations("others")) == ("rrru", "ru")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    logged.catch_up()
    assert logged.operations("orders") == "rrrutrrr"
    assert logged.is_equal("orders")


def isolated(shop: Shop) -> str:
    """The error of the one table that is isolated from the stream."""
    (found,) = (each.error for each in shop.run().store.tables(shop.run().name) if each.error)
    return str(found)


def test_a_table_that_is_paused_comes_back_by_the_log(logged: Logged) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    logged.catch_up()
    pause_tables(shop.run(), [TableId(shop.database, "orders")])
    logged.catch_up()
    change(
        shop,
        "orders",
        [
            "UPDATE orders SET note = 'while it stands'",
            "UPDATE others SET n = 2",
            "ALTER TABLE orders ADD COLUMN more INT DEFAULT 7",
            "INSERT INTO orders (id, more) VALUES (9, 8)",
        ],
    )
    logged.catch_up()
    assert (logged.operations("orders"), logged.operations("others")) == ("rrr", "ru")
    resume_tables(shop.run(), [TableId(shop.database, "orders")])
    logged.catch_up()
    assert logged.operations("orders") == "rrruuuc"
    assert logged.is_equal("orders", {"more": 7})
    shop.at_source("DELETE FROM orders WHERE id = 9")
    logged.catch_up()
    assert logged.is_equal("orders", {"more": 7})


def test_rows_that_the_source_logged_as_text_are_in_the_log_once_the_table_is_read_again(
    logged: Logged,
) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    logged.catch_up()
    as_text(shop, "INSERT INTO orders (id, note) VALUES (5, 'five')")
    shop.at_source("UPDATE others SET n = 2")
    with pytest.raises(TablesStoppedError, match="INSERT as a statement"):
        logged.catch_up()
    assert (logged.operations("orders"), logged.operations("others")) == ("rrr", "ru")
    resume_tables(shop.run(), [TableId(shop.database, "orders")])
    shop.at_source("UPDATE orders SET note = 'after' WHERE id = 5")
    logged.catch_up()
    logged.catch_up()
    assert logged.operations("orders").startswith("rrrtrrrr")
    assert logged.is_equal("orders")


ZERO_DATES = {
    "when its rows are read again": ("ADD COLUMN day DATE NOT NULL", "SELECT 1"),
    "when a row changes": (
        "ADD COLUMN day DATE NOT NULL DEFAULT '0000-00-00'",
        "UPDATE orders SET note = 'x' WHERE id = 1",
    ),
}


@pytest.mark.parametrize("case", ZERO_DATES)
def test_a_zero_date_that_a_new_column_brings_names_the_command_that_brings_its_table_back(
    logged: Logged, case: str
) -> None:
    shop = logged.shop
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    logged.catch_up()
    loose = "SET SESSION sql_mode = ''"
    clause, then = ZERO_DATES[case]
    change(shop, "orders", [loose, f"ALTER TABLE orders {clause}", then])
    with pytest.raises((NotConsistentError, TablesStoppedError)) as refused:
        logged.catch_up()
    told = str(refused.value)
    assert "CDC-INT-004" in told
    assert f"then `reset` it with --table {shop.database}.orders" in told
    assert "zero_dates" not in told  # another one is refused before a `reset` of all
    change(shop, "orders", [loose, "UPDATE orders SET day = '2026-01-02'"])
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    logged.catch_up()
    assert logged.operations("orders") == "rrrtrrr"
    assert all(event["after"]["day"] for event in logged.events("orders")[-3:])


def test_a_place_that_is_skipped_has_its_tables_begin_again_in_the_log(
    logged: Logged, fresh_database: Callable[[SqlServer], str]
) -> None:
    shop, tools = logged.shop, fresh_database(logged.shop.source)
    shop.source.execute(f"CREATE TABLE {tools}.checksums (id INT PRIMARY KEY)")
    shop.source.execute(
        f"CREATE TRIGGER {tools}.r AFTER INSERT ON {tools}.checksums FOR EACH ROW "
        f"INSERT INTO {shop.database}.orders (id) VALUES (NEW.id)"
    )
    logged.catch_up()
    as_text(shop, f"INSERT INTO {tools}.checksums VALUES (70)")
    shop.at_source("INSERT INTO orders (id) VALUES (5)")
    with pytest.raises(RowsNotLoggedError, match="which may change any table") as refused:
        logged.catch_up()
    place = refused.value.remedy.partition("--at ")[2].partition(" ")[0]
    skip_place(shop.run(), place, reason="only a checksum")
    logged.catch_up()
    logged.catch_up()
    assert logged.operations("orders").startswith("rrrt")
    assert logged.is_equal("orders")
