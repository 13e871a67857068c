"""The types of columns that a log of files has beside the source's."""

from __future__ import annotations

from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.core.table_shape import AddedTypes

ADDED_TYPES = AddedTypes(
    number=ColumnType("bigint", TypeKind.INTEGER, KeyKind.INTEGER),
    text=ColumnType("varchar", TypeKind.TEXT, KeyKind.TEXT),
    flag=ColumnType("tinyint", TypeKind.INTEGER, KeyKind.INTEGER),
    digest=ColumnType("char", TypeKind.TEXT, KeyKind.TEXT),
)
