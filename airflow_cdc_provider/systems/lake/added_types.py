"""The types of columns that a lake's tables of current rows have beside the source's."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.row_metadata import MetadataTypes
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.systems.file_log.added_types import ADDED_TYPES

LAKE_TYPES = replace(
    ADDED_TYPES,
    metadata=MetadataTypes(
        operation=ADDED_TYPES.text,
        text=ADDED_TYPES.text,
        moment=ColumnType("timestamp", TypeKind.TEMPORAL, KeyKind.TEMPORAL, fraction=6),
    ),
)
