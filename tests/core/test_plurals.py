"""Counts have their noun in the right number."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.plurals import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")]
)
def test_one_has_no_s(number: int, said: str) -> None:
    assert counted(number, "row") == said


def test_a_plural_may_be_another_word() -> None:
    assert counted(1, "row was", "rows were") == "1 row was"
    assert counted(3, "row was", "rows were") == "3 rows were"
