"""Patterns pick tables and routes say where they go."""

from __future__ import annotations

import pytest
from hypothesis import given

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern, parse_routes, sink_table
from airflow_cdc_provider.core.wrong_value import WrongValueError
from tests.strategies import table_ids


@pytest.mark.parametrize(
    ("pattern", "table", "picked"),
    [
        ("shop.*", "shop.orders", True),
        ("shop.*", "shop2.orders", False),
        ("*.orders", "a.orders", True),
        ("shop.tmp_*", "shop.tmp_", True),
        ("shop.tmp_*", "shop.tmpx", False),
        ("shop.a+b", "shop.aab", False),
        ("shop.Orders", "shop.orders", False),
        ("sh..op.*", "sh..op.x", True),
    ],
)
def test_a_pattern_picks_what_it_says(pattern: str, table: str, picked: bool) -> None:
    assert TablePattern.parse(pattern).matches(TableId.parse(table)) is picked


def test_case_counts_unless_the_server_folds_it() -> None:
    pattern = TablePattern.parse("Shop.*")
    assert not pattern.matches(TableId("shop", "a"))
    assert pattern.matches(TableId("shop", "a"), ignore_case=True)


@given(table_ids)
def test_without_a_route_a_table_keeps_its_name(table: TableId) -> None:
    assert sink_table(table, []) == table


@pytest.mark.parametrize(
    ("table", "target"),
    [
        ("shop.orders", "special.o"),
        ("shop.items", "dr_shop.items"),
        ("inv_1.parts", "copy.inv_1_parts"),
        ("other.x", "other.x"),
    ],
)
def test_exact_routes_go_before_patterns(table: str, target: str) -> None:
    routes = parse_routes({"shop.*": "dr_shop.*", "shop.orders": "special.o"})
    more = parse_routes({"inv_1.*": "copy.inv_1_*"})
    assert str(sink_table(TableId.parse(table), [*routes, *more])) == target


@pytest.mark.parametrize(
    ("source", "target"), [("a.b", "c.*"), ("a.*", "*.b"), ("a.x*y*", "b.*"), ("a", "b.c")]
)
def test_a_route_that_says_nothing_sure_is_refused(source: str, target: str) -> None:
    with pytest.raises(WrongValueError):
        parse_routes({source: target})
