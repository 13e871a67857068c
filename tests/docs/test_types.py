"""The table of types is the value model."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.systems.mysql.dialect import value_model
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_type
from tests.docs.pages import first_cells, page, rows

KNOWN = sorted({*value_model._SIGNED, *value_model._FIXED, *value_model.CHARACTER_TYPES, "decimal"})
_TABLE, _, _REST = page("types.md").partition("\n## ")
TOLD = {cells[0].strip("`"): cells for cells in rows(_TABLE)}


@pytest.mark.parametrize("name", KNOWN)
def test_a_type_s_arrow_type_is_on_the_page(name: str) -> None:
    assert TOLD[name][1].strip("`") == str(arrow_type(mysql_type(name)))


@pytest.mark.parametrize("name", sorted(value_model._UNSIGNED))
def test_an_unsigned_type_s_arrow_type_is_on_the_page(name: str) -> None:
    assert f"`{arrow_type(mysql_type(name, unsigned=True))}`" in TOLD[name][2]


@pytest.mark.parametrize("name", KNOWN)
def test_a_type_is_text_where_the_page_says_so(name: str) -> None:
    as_text = arrow_type(mysql_type(name), ZeroDates.TEXT) != arrow_type(mysql_type(name))
    assert as_text == ("zero_dates: text" in TOLD[name][2])


def test_every_policy_of_zero_dates_is_on_the_page() -> None:
    assert first_cells(_REST) == {policy.value for policy in ZeroDates}


def test_the_page_names_no_type_that_there_is_not() -> None:
    assert TOLD.keys() - {"type"} == set(KNOWN)
