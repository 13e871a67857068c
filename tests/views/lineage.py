"""What several tests need of `test_lineage`."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.records import TablePlan, TableState
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.behaviours.state_behaviours import plan_of

CONSISTENT = TableState(plan_of(), TablePhase.CONSISTENT, splits_finished=2, rows=20, bytes=900)


def wide(count: int, columns: int, *, name: str = "column") -> list[TableState]:
    """Return tables of many columns."""
    made = tuple(Column(f"{name}_{i}", mysql_type("varchar", length=40)) for i in range(columns))
    tables = [TableId("shop", f"table_{number:05d}") for number in range(count)]
    return [
        replace(CONSISTENT, plan=TablePlan.alike(TableSchema(each, made, ("c",)), each, 1))
        for each in tables
    ]
