"""A table of another shape at the sink: rows that differ are read again, or that is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.row_filters import Comparator, Comparison
from airflow_cdc_provider.core.table_shape import (
    SAME_SHAPE,
    Mask,
    MaskKind,
    OutputColumn,
    TableShape,
)
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.steps.range_requests import known
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import verify_lines
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import synced

NUMBER, CODE = OutputColumn("number", "id"), OutputColumn("code", "code")
FIRST = OutputColumn("note", "note", Mask(MaskKind.FIRST, length=1))


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, TableShape]:
    """What the file says of tables; not all of it can be written there in this release."""
    shapes: dict[str, TableShape] = {}
    monkeypatch.setattr(
        PipelineFile,
        "shape_of",
        lambda _, table, ignore_case=False: shapes.get(table.table, SAME_SHAPE),
    )
    return shapes


def reshape(
    shop: Shop, said: dict[str, TableShape], shape: TableShape, *statements: str, key: str = "id"
) -> None:
    """Give `items` another shape at the sink, as if it had been planned so."""
    columns = "id INT, note VARCHAR(40), code INT"
    shop.at_source(f"CREATE TABLE items ({columns}, PRIMARY KEY ({key}))")
    shop.at_source("INSERT INTO items VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30)")
    run = synced(shop)
    for statement in statements:
        shop.sink.execute(statement, database=shop.target)
    plans = {state.table.table: state.plan for state in run.store.tables(run.name)}
    plan = plans["items"]
    target = sink_of(run).target_of(plan.schema, plan.sink_table, shape)
    generation = run.store.take_over(run.name, "test").generation
    shaped = replace(plan, target=target, shape=shape)
    run.store.change_plan(run.name, generation, changed=[shaped])
    run.store.release_lease(run.name, generation)
    said["items"] = shape


def test_rows_of_another_shape_are_read_again(shop: Shop, said: dict[str, TableShape]) -> None:
    shape = TableShape((NUMBER, FIRST), where=Comparison("code", Comparator.GREATER, 10))
    reshape(
        shop,
        said,
        shape,
        "ALTER TABLE items DROP COLUMN code, RENAME COLUMN id TO number",
        "DELETE FROM items WHERE number = 3",
        "UPDATE items SET note = LEFT(note, 1)",
    )
    run = synced(shop)
    report = verify(run, tables=[TableId(shop.database, "items")])
    (table,) = report.tables
    found = {(each.kind.value, each.key) for each in table.samples}
    assert found == {("extra", "1"), ("missing", "3")}
    lines = verify_lines(report)
    assert "    compared by columns: the table has another shape at the sink" in lines
    (repair,) = repairs(run, report)
    assert repair.scope.ranges == (KeyRange((1,), (2,)), KeyRange((3,), None))
    assert (repair.estimated.source_rows, repair.estimated.most_rows) == (2, 2)
    (request,) = ask_repairs(run, [repair])
    run = synced(shop)
    assert known(run, request.request_id).status is RequestStatus.DONE
    assert shop.sink_rows("SELECT * FROM items ORDER BY number") == [(2, "t"), (3, None)]
    assert verify(run).equal


def test_rows_whose_key_has_another_order_are_read_again(
    shop: Shop, said: dict[str, TableShape]
) -> None:
    reshape(
        shop,
        said,
        TableShape(key=("code", "id")),
        "ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (code, id)",
        "UPDATE items SET note = 'wrong' WHERE id = 1",
        "UPDATE items SET code = 21 WHERE id = 2",
        key="id, code",
    )
    run = synced(shop)
    items = [TableId(shop.database, "items")]
    report = verify(run, tables=items)
    (table,) = report.tables
    found = {(each.kind.value, each.key, each.source_key) for each in table.samples}
    assert found == {
        ("different", "10/1", "1/10"),
        ("missing", "20/2", "2/20"),
        ("extra", "21/2", "2/21"),
    }
    (repair,) = repairs(run, report)
    (request,) = ask_repairs(run, [repair])
    run = synced(shop)
    assert known(run, request.request_id).status is RequestStatus.DONE
    (table,) = verify(run, tables=items).tables
    assert table.equal, table.samples


@pytest.mark.parametrize("key", [(), ("code", "id")], ids=["by ranges", "by keys"])
def test_rows_of_a_shard_are_read_again_and_those_of_others_stay(
    key: tuple[str, ...], shop: Shop, said: dict[str, TableShape]
) -> None:
    shape = TableShape(
        (OutputColumn("shop", constant="north"),), others=True, key=key, shard="shop"
    )
    at_sink = ", ".join(("shop", *(key or ("id",))))
    text = "VARCHAR(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
    reshape(
        shop,
        said,
        shape,
        f"ALTER TABLE items ADD COLUMN shop {text} DEFAULT 'north' FIRST",
        f"ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY ({at_sink})",
        "INSERT INTO items (shop, id, note, code) VALUES ('south', 1, 'theirs', 10)",
        "UPDATE items SET note = 'drifted' WHERE id = 1 AND shop = 'north'",
        "DELETE FROM items WHERE id = 2",
        "INSERT INTO items (id, note, code) VALUES (4, 'extra', 40)",
        key="id, code" if key else "id",
    )
    run = synced(shop)
    items = [TableId(shop.database, "items")]
    report = verify(run, tables=items)
    (table,) = report.tables
    assert (table.rows_source, table.rows_sink) == (3, 3)
    assert (table.missing, table.extra, table.different) == (1, 1, 1)
    (repair,) = repairs(run, report)
    (counted,) = repair.estimated.tables
    assert (counted.source_rows, counted.sink_rows) == (2, 2)
    (request,) = ask_repairs(run, [repair])
    run = synced(shop)
    assert known(run, request.request_id).status is RequestStatus.DONE
    (table,) = verify(run, tables=items).tables
    assert table.equal, table.samples
    found = shop.sink_rows("SELECT shop, id, note, code FROM items ORDER BY shop, id")
    assert found == [
        ("north", 1, "one", 10),
        ("north", 2, "two", 20),
        ("north", 3, None, 30),
        ("south", 1, "theirs", 10),
    ]


def test_a_repair_whose_keys_cannot_be_told_is_refused_by_name(
    shop: Shop, said: dict[str, TableShape]
) -> None:
    reshape(
        shop,
        said,
        TableShape((CODE, FIRST), key=("code",)),
        "ALTER TABLE items DROP PRIMARY KEY, DROP COLUMN id, MODIFY code INT NOT NULL PRIMARY KEY",
        "UPDATE items SET note = LEFT(note, 1)",
        "UPDATE items SET code = 31 WHERE code = 30",
    )
    run = shop.run()
    report = verify(run, tables=[TableId(shop.database, "items")])
    (table,) = report.tables
    found = {(each.kind.value, each.key, each.source_key) for each in table.samples}
    assert found == {("missing", "30", "3"), ("extra", "31", "")}
    assert repairs(run, report) == ()
    lines = verify_lines(report)
    assert "    missing: key 30, at the source 3" in lines
    assert (
        "    no repair by keys is possible: the sink's key has other columns than the source's"
        in lines
    )
    assert "    to read only what differs again: verify --repair" not in lines
