"""A layout that a table's files cannot have is refused with the column, its type and a way."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.systems.lake.layouts import DELTA, require_layout

_INTEGER, _KEY = TypeKind.INTEGER, KeyKind.INTEGER
ORDERS = TableSchema(
    TableId("shop", "orders"),
    (
        Column("id", ColumnType("int", _INTEGER, _KEY), nullable=False),
        Column("many", ColumnType("bigint", _INTEGER, _KEY, unsigned=True)),
    ),
    ("id",),
    (0,),
)


def by(*fields: str) -> TableLayout:
    return TableLayout(tuple(map(PartitionField.parse, fields)))


@pytest.mark.parametrize("field", ["many", "bucket(4, many)", "truncate(100, many)"])
def test_a_type_that_has_no_such_partitions_is_named(field: str) -> None:
    named = r"many of .*orders, a BIGINT UNSIGNED, cannot be .* whole numbers but BIGINT UNSIGNED"
    with pytest.raises(ValueError, match=named):
        require_layout(ORDERS, by(field), "iceberg")


def test_a_lost_column_of_partitions_needs_another_name_for_tables_of_delta_alone() -> None:
    with pytest.raises(ValueError, match=r"no column gone .*: route it to another name$"):
        require_layout(ORDERS, by("gone"), DELTA)
    for layout, form in ((by("gone"), "iceberg"), (TableLayout((), ("gone",)), DELTA)):
        with pytest.raises(ValueError, match=r"no column gone to lay out its files by$"):
            require_layout(ORDERS, layout, form)
