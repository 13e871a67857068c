"""A job hears of the tables that its file picks, and of no other."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks, came, is_new_table_event

PICKS = TablePicks(("shop.*", "in[v].a*c", "x..y.t"), ("shop.tmp_*",))


@pytest.mark.parametrize(
    "name", ["shop.orders", "SHOP.Orders", "in[v].abc", "in[v].ac", "x..y.t", "shop.tm_"]
)
def test_a_name_that_fits_is_picked_in_whatever_case(name: str) -> None:
    table = TableId.parse(name)
    assert table in PICKS
    patterns = map(TablePattern.parse, PICKS.include)
    assert any(pattern.matches(table, ignore_case=True) for pattern in patterns)


@pytest.mark.parametrize("name", ["shops.orders", "shop.tmp_1", "inv.abc", "in[v].abx", "x.y"])
def test_others_are_not(name: str) -> None:
    assert TableId.parse(name) not in PICKS
    assert TableId.parse(name) not in NO_PICKS


def test_they_travel_with_a_job() -> None:
    spec = JobSpec(PipelineName("p"), 1, JobKind.STREAM, picks=PICKS)
    assert JobSpec.from_json(spec.to_json()) == spec


def test_what_is_told_is_known_again() -> None:
    assert is_new_table_event(came(TableId("shop", "orders")))
    assert not is_new_table_event("shop.orders will be read beside the stream")
