"""What the metadata columns hold: of rows that were read, and of changes."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.columns.row_stamps import stamp_of, stamps_of
from airflow_cdc_provider.columns.shaping import shaped_changes, shaped_columns, shaped_rows
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import (
    MetadataTypes,
    Operation,
    RowMetadata,
    RowStamp,
)
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.core.table_shape import AddedTypes, TableShape, shaped_schema
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPoint
from tests.columns.test_shaping import NUMBER, ORDERS, ROWS, TEXT, changes_of, listed, rows_of

MOMENT = ColumnType("moment", TypeKind.TEMPORAL, KeyKind.TEMPORAL)
ADDED = AddedTypes(NUMBER, TEXT, NUMBER, TEXT, MetadataTypes(TEXT, TEXT, MOMENT))
ALL = RowMetadata("op", "place", "at", "origin", "server")


def planned(shape: TableShape) -> TablePlan:
    target = shaped_schema(ORDERS, TableId("dw", "orders"), shape, ADDED)
    return TablePlan(ORDERS, target, 0, shape)


def point(file: int, start: int, committed_us: int, server: str = "one") -> MySqlPoint:
    begin = BinlogPosition(file, start, "bin")
    return MySqlPoint(server, None, begin, begin.at(start + 50), committed_us)


POINTS = [point(7, 4, 0), point(7, 999_999, 1_500_000), point(1_000_000, 10, 1, "two")]


def test_transactions_are_told_by_their_place_time_and_server() -> None:
    stamps = stamps_of(POINTS, "mysql")
    assert listed(stamps) == [
        ("bin.000007:4", None, "one"),
        ("bin.000007:999999", datetime.fromisoformat("1970-01-01 00:00:01.500"), "one"),
        ("bin.1000000:10", datetime.fromisoformat("1970-01-01 00:00:00.000001"), "two"),
    ]
    assert stamps_of([], "mysql").num_rows == 0
    assert stamp_of(POINTS[1], "mysql", Operation.TRUNCATE) == RowStamp(
        Operation.TRUNCATE, "bin.000007:999999", "one", 1_500_000
    )


def test_rows_that_were_read_say_so_and_nothing_of_a_time() -> None:
    plan = planned(TableShape(deleted_flag="gone", metadata=ALL))
    stamp = RowStamp(Operation.READ, "bin.000001:9", "one")
    rows = shaped_rows(rows_of((1, "EU", 2), (2, "US", 3)), plan, stamp)
    told = (0, "r", "bin.000001:9", None, "shop.orders", "one")
    assert [row for batch in rows.batches() for row in listed(batch)] == [
        (1, "EU", 2, *told),
        (2, "US", 3, *told),
    ]
    assert rows.schema == shaped_columns(ROWS, plan)
    assert rows.schema.names == [column.name for column in plan.target.columns]


def test_each_change_says_its_own_operation_and_what_its_transaction_says() -> None:
    log = stamps_of(POINTS, "mysql")
    changes = changes_of(
        (Op.INSERT, None, (1, "EU", 1)),
        (Op.UPDATE, (2, "EU", 1), (2, "EU", 2)),
        (Op.UPDATE, (3, "EU", 1), (4, "EU", 2)),
        (Op.DELETE, (5, "EU", 5), None),
        (Op.INSERT, None, (6, "EU", 1)),
        (Op.UPDATE, (6, "EU", 1), (6, "EU", 2)),
        (Op.DELETE, (7, "EU", 5), None),
        (Op.INSERT, None, (7, "EU", 6)),
    )
    of = pa.array(np.array([0, 0, 1, 1, 2, 2, 2, 2], np.int32))
    changes = type(changes)(
        changes.table, of, changes.ordinal, changes.op, changes.before, changes.after
    )
    soft = planned(TableShape(deleted_flag="gone", metadata=RowMetadata("op", "place")))
    merged = merge([shaped_changes(changes, soft, log)], ("id",))
    assert listed(merged.deletes) == []
    assert listed(merged.upserts) == [
        (1, "EU", 1, 0, "c", "bin.000007:4"),
        (2, "EU", 2, 0, "u", "bin.000007:4"),
        (3, "EU", 1, 1, "d", "bin.000007:999999"),
        (4, "EU", 2, 0, "c", "bin.000007:999999"),
        (5, "EU", 5, 1, "d", "bin.000007:999999"),
        (6, "EU", 2, 0, "u", "bin.1000000:10"),
        (7, "EU", 6, 0, "c", "bin.1000000:10"),
    ]
    hard = planned(TableShape(metadata=RowMetadata(operation="op", server="server")))
    merged = merge([shaped_changes(changes, hard, log)], ("id",))
    assert listed(merged.deletes) == [(3,), (5,)]
    assert listed(merged.upserts) == [
        (1, "EU", 1, "c", "one"),
        (2, "EU", 2, "u", "one"),
        (4, "EU", 2, "c", "one"),
        (6, "EU", 2, "u", "two"),
        (7, "EU", 6, "c", "two"),
    ]


def test_a_shape_is_stored_with_its_metadata_and_read_where_there_was_none() -> None:
    shape = TableShape(deleted_flag="gone", metadata=ALL)
    form = dict(shape.to_json())
    assert TableShape.from_json(form) == shape
    del form["metadata"]
    assert TableShape.from_json(form) == shape.without_metadata
    assert shape.marks == ("gone", "op", "place", "at", "origin", "server")
    assert not shape.is_same_for(ORDERS, shape.without_metadata)
