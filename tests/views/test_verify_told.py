"""What a task of Airflow returns of a comparison are numbers, and equal tables are one line."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
from airflow_cdc_provider.views.reports import told_lines
from airflow_cdc_provider.views.summaries import verify_summary


def verdict(name: str, *, missing: int = 0) -> TableVerdict:
    table = TableId("shop", name)
    return TableVerdict(table, table, 10, 10, 100, 10, missing, 0, 0, 0, (), False, 0.1)


REPORT = VerifyReport((verdict("orders"), verdict("odd", missing=2), verdict("items")), 1.0)


def test_each_table_is_told_in_numbers() -> None:
    tables = verify_summary(PipelineName("shop"), REPORT)["tables"]
    assert set(tables) == {"shop.orders", "shop.odd", "shop.items"}
    assert tables["shop.odd"]["missing"] == 2
    assert not any(isinstance(count, str) for each in tables.values() for count in each.values())


def test_a_table_that_differs_has_its_lines_and_the_equal_ones_share_one() -> None:
    lines = told_lines(REPORT)
    assert [line for line in lines if "shop.odd" in line]
    assert not [line for line in lines if "shop.orders" in line or "shop.items" in line]
    assert [line for line in lines if line.startswith("2 of 3 tables equal")]


def test_where_all_are_equal_one_line_says_so() -> None:
    (line,) = told_lines(VerifyReport((verdict("orders"), verdict("items")), 1.0))
    assert line.startswith("equal: 2 tables")


def test_where_none_is_equal_no_line_counts_equal_ones() -> None:
    lines = told_lines(VerifyReport((verdict("odd", missing=2),), 1.0))
    assert not [line for line in lines if "0 of" in line]
    assert lines[-1].startswith("DIFFERENT: 1 table")
