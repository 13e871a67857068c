"""Deleted rows that stay in a lake's tables of current rows, marked, with all that may happen."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.systems.lake.publisher import Publisher
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import Lake

METADATA = "deleted: gone, operation: op, position: place, committed_at: at, table: t, server: s"


@pytest.fixture(params=["iceberg_mirror", "delta_mirror"])
def lake(empty_shop: Shop, request: pytest.FixtureRequest) -> Lake:
    """Five rows of `orders`, whose deleted rows stay, read and published."""
    shop = empty_shop
    text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    settings = f"{{deletes: soft, metadata: {{{METADATA}}}}}"
    shop.path.write_text(f'{text}tables: {{"{shop.database}.orders": {settings}}}\n')
    shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)")
    shop.at_source(
        "INSERT INTO orders VALUES " + ", ".join(f"({n}, 'n{n}', {n})" for n in range(5))
    )
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    found = Lake.of(shop, request.param)
    assert not check(shop.run()).blocks
    found.catch_up()
    return found


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The rows of `orders`, as the format's library reads them."""
    found: list[dict[str, Any]] = lake.changes("orders").sort_by("id").to_pylist()
    return found


def told(lake: Lake) -> list[tuple[Any, ...]]:
    """What each row of `orders` has, its flag, and what wrote it."""
    return [(row["id"], row["note"], row["gone"], row["op"]) for row in rows(lake)]


def is_equal(lake: Lake) -> bool:
    """Tell whether the living rows are the source's, by themselves and by verify."""
    living = sorted((str(row["id"]), str(row["note"])) for row in rows(lake) if not row["gone"])
    assert living == [(key, note) for key, note, *_ in lake.source_rows("orders")]
    assert sorted(each[:2] for each in lake.current("orders")) == living
    (verdict,) = lake.verified("orders").tables
    assert (verdict.equal, verdict.rows_sink) == (True, len(living)), verdict
    return True


def test_rows_stay_marked_whatever_takes_them_away(lake: Lake) -> None:
    shop = lake.shop
    assert told(lake) == [(n, f"n{n}", 0, "r") for n in range(5)]
    assert {(row["at"], row["t"]) for row in rows(lake)} == {(None, f"{shop.database}.orders")}
    shop.at_source("DELETE FROM orders WHERE id IN (0, 1)")
    shop.at_source("UPDATE orders SET id = 12 WHERE id = 2")
    shop.at_source("UPDATE orders SET note = 'N3' WHERE id = 3")
    lake.catch_up()
    marked = [(0, "n0", 1, "d"), (1, "n1", 1, "d"), (2, "n2", 1, "d")]
    assert told(lake) == [*marked, (3, "N3", 0, "u"), (4, "n4", 0, "r"), (12, "n2", 0, "c")]
    deleted = rows(lake)[0]
    assert (deleted["place"], deleted["at"]) == (deleted["_position"], deleted["_committed_at"])
    assert deleted["s"]
    assert is_equal(lake)
    shop.at_source("INSERT INTO orders VALUES (1, 'again', 1)")
    shop.at_source("UPDATE orders SET note = 'late' WHERE id = 12")
    shop.at_source("TRUNCATE orders")
    shop.at_source("INSERT INTO orders VALUES (4, 'new', 4)")
    lake.catch_up()
    assert told(lake) == [
        (0, "n0", 1, "d"),
        (1, "again", 1, "t"),
        (2, "n2", 1, "d"),
        (3, "N3", 1, "t"),
        (4, "new", 0, "c"),
        (12, "late", 1, "t"),
    ]
    assert rows(lake)[0] == deleted
    assert len({(row["place"], row["at"]) for row in rows(lake) if row["op"] == "t"}) == 1
    assert is_equal(lake)


def test_rows_that_are_read_again_are_marked_or_revived_and_never_deleted(lake: Lake) -> None:
    shop, name = lake.shop, f"{lake.shop.database}.orders"
    shop.at_source("DELETE FROM orders WHERE id IN (0, 1)")
    lake.catch_up()
    lake.unlogged(
        "DELETE FROM orders WHERE id = 2",
        "UPDATE orders SET note = 'other' WHERE id = 3",
        "INSERT INTO orders VALUES (1, 'back', 1), (7, 'more', 7)",
    )
    deleted, untouched = rows(lake)[0], rows(lake)[4]
    run = shop.run()
    (counted,) = estimate(run, resync_scope(run, [name])).tables
    assert (counted.source_rows, counted.sink_rows) == (4, 3)
    report = lake.verified("orders")
    assert {each.key for each in report.tables[0].samples} == {"1", "2", "3", "7"}
    part = ask_resync(run, resync_scope(run, [name], from_key="0", to_key="3"))
    lake.catch_up()
    assert known(run, part.request_id).status is RequestStatus.DONE
    assert told(lake)[:3] == [(0, "n0", 1, "d"), (1, "back", 0, "r"), (2, "n2", 1, "d")]
    ask_repairs(run, repairs(run, lake.verified("orders")))
    lake.catch_up()
    assert [each[2:] for each in told(lake)] == [
        (1, "d"),
        (0, "r"),
        (1, "d"),
        (0, "r"),
        (0, "r"),
        (0, "r"),
    ]
    assert (rows(lake)[0], rows(lake)[4]) == (deleted, untouched)
    assert rows(lake)[2]["at"] is None
    assert is_equal(lake)


def test_a_table_that_had_no_marks_gets_them_by_reset_of_it_alone(lake: Lake) -> None:
    shop = lake.shop
    soft = shop.path.read_text()
    hard = "\n".join(line for line in soft.splitlines() if not line.startswith("tables:"))
    shop.path.write_text(hard)
    with pytest.raises(PipelineFileError, match=r"rows and columns of .*orders are others now"):
        lake.catch_up()
    shop.at_source("DELETE FROM orders WHERE id = 4")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    assert [(row["id"], row["gone"]) for row in rows(lake)] == [(n, None) for n in range(4)]
    shop.path.write_text(soft)
    lake.unlogged("DELETE FROM orders WHERE id = 1")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    flags = [(0, 0, "r"), (1, 1, "d"), (2, 0, "r"), (3, 0, "r")]
    assert [(row["id"], row["gone"], row["op"]) for row in rows(lake)] == flags
    assert is_equal(lake)


def test_rows_stay_where_the_table_begins_again_or_the_pipeline_is_reset(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("DELETE FROM orders WHERE id = 0")
    lake.catch_up()
    shop.at_source("ALTER TABLE orders MODIFY code VARCHAR(9)")
    shop.at_source("DELETE FROM orders WHERE id = 1")
    lake.catch_up()
    assert told(lake)[:2] == [(0, "n0", 1, "d"), (1, "n1", 1, "d")]
    assert rows(lake)[0]["code"] is None  # a text of it would be a guess
    assert [row["code"] for row in rows(lake)][2:] == ["2", "3", "4"]
    told_of = [each.text for each in shop.run().store.events(shop.run().name, limit=9)]
    assert [text for text in told_of if "Rows marked in gone stay, and lose values" in text]
    assert is_equal(lake)
    lake.unlogged("DELETE FROM orders WHERE id = 2")
    reset_tables(shop.run(), [TableId(shop.database, "orders")])
    lake.catch_up()
    marked = [(n, f"n{n}", 1, "d") for n in range(3)]
    assert told(lake) == [*marked, (3, "n3", 0, "r"), (4, "n4", 0, "r")]
    lake.unlogged("DELETE FROM orders WHERE id = 3")
    run = shop.run()
    reset(run)
    run.close()
    lake.catch_up()
    assert told(lake) == [*marked, (3, "n3", 1, "d"), (4, "n4", 0, "r")]
    assert is_equal(lake)


def test_marked_rows_keep_numbers_whose_type_grows(lake: Lake) -> None:
    shop = lake.shop
    shop.at_source("ALTER TABLE orders ADD price DECIMAL(10,2), ADD day DATE")
    shop.at_source("UPDATE orders SET price = id + 0.25, day = '2024-02-29'")
    shop.at_source("DELETE FROM orders WHERE id = 0")
    lake.catch_up()
    shop.at_source("ALTER TABLE orders MODIFY price DECIMAL(14,4), MODIFY code DECIMAL(9,1)")
    shop.at_source("ALTER TABLE orders MODIFY day DATETIME")
    shop.at_source("DELETE FROM orders WHERE id = 1")
    lake.catch_up()
    kept = [(row["price"], row["code"], str(row["day"])) for row in rows(lake)]
    day = "2024-02-29 00:00:00"
    assert kept == [(n + Decimal("0.25"), Decimal(n), day) for n in range(5)]
    assert told(lake)[:2] == [(0, "n0", 1, "d"), (1, "n1", 1, "d")]
    assert is_equal(lake)


def test_another_key_is_refused_for_marked_rows_do_not_have_it(lake: Lake) -> None:
    shop, table = lake.shop, TableId(lake.shop.database, "orders")
    shop.at_source("DELETE FROM orders WHERE id = 1")
    lake.catch_up()
    before = rows(lake)
    shop.at_source(
        "ALTER TABLE orders ADD k2 INT NOT NULL DEFAULT 5, DROP PRIMARY KEY, "
        "ADD PRIMARY KEY (id, k2)"
    )
    with pytest.raises(TablesStoppedError):
        lake.catch_up()
    shop.at_source("INSERT INTO others VALUES (1)")
    for ask in (lambda: reset_tables(shop.run(), [table]), lambda: reset(shop.run())):
        with pytest.raises(RefusedError, match=r"its key was \(id\), and is \(id, k2\) now"):
            ask()
    assert rows(lake) == before
    soft = shop.path.read_text()
    shop.path.write_text(soft.replace("deletes: soft, ", "").replace("deleted: gone, ", ""))
    reset_tables(shop.run(), [table])
    lake.catch_up()
    assert [row["id"] for row in rows(lake)] == [0, 2, 3, 4]
    assert lake.changes("others").num_rows == 1
    shop.path.write_text(soft)
    reset_tables(shop.run(), [table])
    shop.at_source("DELETE FROM orders WHERE id = 2")
    lake.catch_up()
    assert [(row["id"], row["gone"]) for row in rows(lake)] == [(0, 0), (2, 1), (3, 0), (4, 0)]


def test_another_name_of_the_flag_is_refused_by_a_reset_of_the_pipeline(lake: Lake) -> None:
    shop = lake.shop
    shop.path.write_text(shop.path.read_text().replace("deleted: gone", "deleted: removed"))
    with pytest.raises(RefusedError, match="marks them was gone, and is to be removed"):
        reset(shop.run())


def test_a_reset_keeps_what_the_log_has_and_the_table_has_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = lake.shop
    with monkeypatch.context() as patched:  # the tables are late
        patched.setattr(Publisher, "publish", lambda _: None)
        shop.at_source("INSERT INTO orders VALUES (7, 'n7', 7)")
        shop.at_source("DELETE FROM orders WHERE id = 2")
        lake.catch_up()
    assert [each[0] for each in told(lake)] == [0, 1, 2, 3, 4]
    shop.at_source("DELETE FROM orders WHERE id = 7")
    reset(shop.run())
    lake.catch_up()
    marked = {row["id"]: row["gone"] for row in rows(lake)}
    assert marked == {0: 0, 1: 0, 2: 1, 3: 0, 4: 0, 7: 1}
    assert is_equal(lake)
