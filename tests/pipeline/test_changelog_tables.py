"""A change log follows its source's definitions, and takes tables that are added later."""

from __future__ import annotations

import pytest

from tests.pipeline.altered_tables import change
from tests.pipeline.change_logs import Logged
from tests.pipeline.conftest import Shop

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
