"""Foreign keys added to tables in use: checked by a query, added without a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import CdcError
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.made_tables import CUSTOMERS, ORDERS, Tables

PLACES = "CREATE TABLE places (a INT, `b c` VARCHAR(9), PRIMARY KEY (a, `b c`))"
VISITS = """CREATE TABLE visits (id INT PRIMARY KEY, x INT, `y z` VARCHAR(9), before_it INT,
  CONSTRAINT of_place FOREIGN KEY (x, `y z`) REFERENCES places (a, `b c`) ON DELETE SET NULL,
  CONSTRAINT follows FOREIGN KEY (before_it) REFERENCES visits (id))"""


@pytest.fixture(
    params=[
        pytest.param("mysql_sink", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ]
)
def tables(request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]) -> Tables:
    server = request.getfixturevalue(request.param)
    return Tables(server, fresh_database(server), fresh_database(server))


def number_of(tables: Tables, table: str) -> object:
    """InnoDB's number of a table, another one for each copy."""
    for view in ("innodb_tables", "innodb_sys_tables"):
        if tables.server.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_name = %s", (view.upper(),)
        ):
            return tables.server.execute(
                f"SELECT table_id FROM information_schema.{view} WHERE name = %s",
                (f"{tables.sink}/{table}",),
            )
    raise LookupError(table)


def test_adding_a_foreign_key_does_not_copy_the_table(tables: Tables) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    plans = tables.plans("customers", "orders")
    tables.create(plans)
    tables.at_sink("INSERT INTO customers (id, mail) VALUES (7, 'a')")
    tables.at_sink("INSERT INTO orders (customer) VALUES (7), (NULL)")
    before = number_of(tables, "orders")
    assert before
    tables.finish(plans)
    assert tables.keys("orders") == {"PRIMARY", "of_customer"}
    assert number_of(tables, "orders") == before


def test_rows_that_break_a_foreign_key_are_told_and_stand_beside_it(tables: Tables) -> None:
    tables.at_source(PLACES, VISITS)
    plans = tables.plans("places", "visits")
    tables.create(plans)
    tables.at_sink(
        "INSERT INTO places VALUES (1, 'here')",
        "INSERT INTO visits VALUES (10, 1, 'here', NULL), (11, 1, NULL, 10), (12, NULL, 'x', 11)",
    )
    assert tables.finish(plans) == ()
    assert tables.keys("visits") == {"PRIMARY", "of_place", "follows"}
    tables.at_sink(
        "ALTER TABLE visits DROP FOREIGN KEY of_place, DROP FOREIGN KEY follows",
        "SET foreign_key_checks = 0",
        "INSERT INTO visits VALUES (13, 1, 'there', 99)",
    )
    place, follows = sorted(tables.finish(plans), key=lambda remark: "follows" in remark)
    assert f"{tables.sink}.visits break its foreign key of_place" in place
    assert "id=13, x=1, y z='there';" in place
    assert "id=13, before_it=99;" in follows
    assert tables.keys("visits") == {"PRIMARY", "of_place", "follows"}
    assert tables.finish(plans) == ()


def test_a_row_that_comes_before_the_one_it_refers_to_is_waited_for(tables: Tables) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    plans = tables.plans("customers", "orders")
    tables.create(plans)
    tables.at_sink("INSERT INTO orders (customer) VALUES (7)")
    late = threading.Timer(
        0.5, lambda: tables.at_sink("INSERT INTO customers (id, mail) VALUES (7, 'a')")
    )
    late.start()
    tables.finish(plans)
    late.join()
    assert tables.keys("orders") == {"PRIMARY", "of_customer"}


def test_rows_may_be_written_while_they_are_looked_at(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    plans = tables.plans("customers", "orders")
    tables.create(plans)
    monkeypatch.setattr(
        "airflow_cdc_provider.systems.mysql.sink.foreign_key_checks.orphans_query",
        lambda child, *_: f"SELECT 1 FROM `{child.database}`.orders WHERE SLEEP(2) AND 1 = 0",
    )
    tables.at_sink("INSERT INTO customers (id, mail) VALUES (7, 'a')")
    tables.at_sink("INSERT INTO orders (customer) VALUES (7)")
    finishing = threading.Thread(target=tables.finish, args=(plans,))
    finishing.start()
    time.sleep(0.7)
    began = time.monotonic()
    tables.at_sink("INSERT INTO orders (customer) VALUES (7)")
    took = time.monotonic() - began
    finishing.join()
    assert took < 1
    assert tables.keys("orders") == {"PRIMARY", "of_customer"}


def test_a_key_to_columns_without_an_index_is_still_refused(tables: Tables) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    tables.at_sink(
        "CREATE TABLE customers (id INT, mail VARCHAR(80) COLLATE utf8mb4_bin NOT NULL)",
        "CREATE TABLE orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT, "
        "price DECIMAL(12,2))",
    )
    plans = tables.plans("orders", "customers")
    with (
        closing(tables.opened().open_tables()) as builder,
        pytest.raises(CdcError, match=r"error (6125|18\d\d|1005)"),
    ):
        builder.finish(plans)
    assert tables.keys("orders") == {"PRIMARY"}
