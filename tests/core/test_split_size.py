"""How many rows a split holds, by what the source says of its table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.schema_codec import plan_from_json, plan_to_json
from airflow_cdc_provider.core.split_size import SplitSize
from airflow_cdc_provider.systems.mysql.dialect.column_types import type_of_before_kinds
from tests.behaviours.state_behaviours import plan_of

MB = 1024 * 1024
LAKE = SplitSize(50_000, 24 * MB)


@pytest.mark.parametrize(
    ("size", "rows", "row_bytes", "split"),
    [
        (LAKE, 10_000_000, 160, 157_286),  # 24 MB of rows
        (LAKE, 10_000_000, 10, 10_000_000 // 12),  # readers share a table
        (LAKE, 1_000_000_000, 8, 1_000_000),  # never more
        (LAKE, 10_000_000, 5_000, 50_000),  # wide rows: never fewer than without
        (LAKE, 600_000, 160, 50_000),  # a small table
        (LAKE, 0, 160, 50_000),
        (LAKE, 10_000_000, 0, 50_000),  # nobody knows
        (SplitSize(700), 10_000_000, 160, 700),
    ],
)
def test_a_split_is_as_large_as_its_file_should_be(
    size: SplitSize, rows: int, row_bytes: int, split: int
) -> None:
    plan = replace(plan_of(), estimated_rows=rows, estimated_bytes=rows * row_bytes)
    if row_bytes and not rows:
        plan = replace(plan, estimated_bytes=16_384)
    assert size.rows_of(plan) == split


def test_a_stored_plan_has_its_size_and_one_of_before_has_none() -> None:
    plan = replace(plan_of(), estimated_bytes=16_384)
    form = plan_to_json(plan)
    assert plan_from_json(form, type_of_before_kinds) == plan
    del form["estimated_bytes"]
    assert plan_from_json(form, type_of_before_kinds) == replace(plan, estimated_bytes=0)
