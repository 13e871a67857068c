"""Making, comparing and finishing the sink's tables, from definitions of real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import IntegrityError, RefusedError, SinkTableChangedError
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import hand_off
from tests.behaviours.source_log import at
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.made_tables import CUSTOMERS, ORDERS, Tables


@pytest.fixture(
    params=[
        pytest.param("mysql_sink", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ]
)
def tables(request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]) -> Tables:
    server = request.getfixturevalue(request.param)
    return Tables(server, fresh_database(server), fresh_database(server))


def test_missing_tables_are_made_without_unique_and_foreign_keys(tables: Tables) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    plans = tables.plans("customers", "orders")
    assert tables.create(plans) == {"customers": True, "orders": True}
    assert tables.create(plans) == {"customers": False, "orders": False}
    assert tables.keys("customers") == {"PRIMARY"}
    assert tables.keys("orders") == {"PRIMARY"}


def test_a_table_that_somebody_locks_holds_up_no_other(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    tables.at_sink("CREATE TABLE theirs (id INT PRIMARY KEY)")
    with closing(tables.server.connect(database=tables.sink)) as other:
        other.cursor().execute("LOCK TABLES theirs WRITE")
        began_s = time.monotonic()
        assert tables.create(tables.plans("t")) == {"t": True}
        assert time.monotonic() - began_s < 10  # the session's patience with locks is longer


def test_what_is_created_is_named_as_at_the_sink(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    (plan,) = tables.plans("t")
    with closing(tables.opened().open_tables()) as builder:
        assert builder.create_missing([plan]) == {plan.sink_table: True}
        assert builder.create_missing([plan]) == {plan.sink_table: False}


def test_finishing_adds_the_keys_once(tables: Tables) -> None:
    tables.at_source(CUSTOMERS, ORDERS)
    plans = tables.plans("orders", "customers")
    tables.create(plans)
    tables.finish(plans)
    tables.finish(plans)
    assert tables.keys("customers") == {"PRIMARY", "mail"}
    assert tables.keys("orders") == {"PRIMARY", "of_customer"}


def test_a_key_that_the_rows_break_is_named(tables: Tables) -> None:
    tables.at_source(CUSTOMERS)
    plans = tables.plans("customers")
    tables.create(plans)
    tables.at_sink("INSERT INTO customers (id, mail) VALUES (1, 'a'), (2, 'a')")
    with pytest.raises(IntegrityError, match="unique key mail cannot be added"):
        tables.finish(plans)


def test_unique_keys_are_taken_off_a_table_to_be_filled_anew(tables: Tables) -> None:
    tables.at_source(CUSTOMERS)
    tables.at_sink(CUSTOMERS)
    plans = tables.plans("customers")
    tables.create(plans)
    assert tables.keys("customers") == {"PRIMARY"}
    tables.finish(plans)
    assert tables.keys("customers") == {"PRIMARY", "mail"}


def test_a_table_the_stream_owns_keeps_its_unique_keys(tables: Tables) -> None:
    tables.at_source(CUSTOMERS)
    plans = tables.plans("customers")
    tables.create(plans)
    tables.finish(plans)
    schema = plans[0].schema
    split = SnapshotSplit(schema.table, 0, ("id",), schema.key_kinds, KeyRange())
    report = SplitReport(split.split_id, at(1), at(1), 0, 0, "f", 1)
    with closing(tables.opened(plans).open_ledger()) as ledger:
        ledger.take_over(1)
        ledger.store_stream(hand_off([FinishedSplit.of(split, report, backfilled=True)]))
    tables.create(plans)
    assert tables.keys("customers") == {"PRIMARY", "mail"}


@pytest.mark.parametrize(
    ("definition", "finding"),
    [
        ("id INT PRIMARY KEY, name VARCHAR(20), n INT", r"name is varchar\(20\), .* varchar\(40\)"),
        ("id INT PRIMARY KEY, name VARCHAR(40), n INT UNSIGNED", "n is int unsigned"),
        ("id INT PRIMARY KEY, name VARCHAR(40)", "column n is missing"),
        ("id INT, name VARCHAR(40), n INT, PRIMARY KEY (id, n)", "primary key is"),
        ("id INT PRIMARY KEY, name VARCHAR(40), n INT NOT NULL", "n does not take NULL"),
        ("id INT PRIMARY KEY, name VARCHAR(40), n INT, UNIQUE (n)", "unique key n over n"),
        ("id INT PRIMARY KEY, name VARCHAR(40), n INT AS (1)", "n is computed"),
        ("id INT PRIMARY KEY, name VARCHAR(40) CHARSET latin1, n INT", "charset latin1"),
    ],
)
def test_a_table_that_cannot_hold_the_rows_is_refused(
    tables: Tables, definition: str, finding: str
) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), n INT)")
    tables.at_sink(f"CREATE TABLE t ({definition})")
    with pytest.raises(RefusedError, match=finding):
        tables.create(tables.plans("t"))


def test_a_text_key_of_another_collation_is_refused(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY)")
    tables.at_sink("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    with pytest.raises(RefusedError, match="key column k has the collation utf8mb4_general_ci"):
        tables.create(tables.plans("t"))


def test_wider_columns_and_more_columns_are_fine(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), at DATETIME)")
    tables.at_sink(
        "CREATE TABLE t (id INT PRIMARY KEY, more INT, name VARCHAR(90), at DATETIME(6))"
    )
    assert tables.create(tables.plans("t")) == {"t": False}


def test_a_table_that_was_copied_and_is_gone_is_not_made_anew_without_its_rows(
    tables: Tables,
) -> None:
    tables.at_source(CUSTOMERS)
    plans = tables.plans("customers")
    schema = plans[0].schema
    split = SnapshotSplit(schema.table, 0, ("id",), schema.key_kinds, KeyRange())
    with closing(tables.opened(plans).open_ledger()) as ledger:
        ledger.take_over(1)
        ledger.start_plan("first")
        tables.create(plans)
        ledger.store_stream(hand_off([FinishedSplit(split, at(10), at(10))]))
        tables.at_sink("DROP TABLE customers")
        with pytest.raises(SinkTableChangedError, match=r"customers: it is gone.*reset"):
            tables.create(plans)
        ledger.start_plan("second")
        assert tables.create(plans) == {"customers": True}
