"""Whether a run has only to follow the log: what speaks against it is left to the steps."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.settled import is_settled
from airflow_cdc_provider.pipeline.steps.start_jobs import has_nothing_to_stream
from tests.pipeline.test_nothing_to_stream import shop
from tests.pipeline.without_spark import handed_off

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.run import Run
    from tests.pipeline.conftest import Shop

__all__ = ["shop"]


@pytest.fixture
def ended(shop: Shop) -> Run:
    """Give a pipeline whose first run has come to its end."""
    run = handed_off(shop)
    assert has_nothing_to_stream(run)
    give_back(run)
    return run


def _settled(run: Run) -> bool:
    return is_settled(run, check(run))


def test_a_pipeline_whose_run_ended_is_settled_and_looking_changes_nothing(ended: Run) -> None:
    before = ended.store.ensure(ended.name)
    assert _settled(ended)
    assert ended.store.ensure(ended.name) == before


def test_rows_that_wait_in_the_log_are_for_the_stream_alone(ended: Run, shop: Shop) -> None:
    shop.at_source("INSERT INTO orders VALUES (9, 'nine')")
    assert _settled(ended)
    assert not has_nothing_to_stream(ended)


def test_a_pipeline_that_was_never_streamed_is_not_settled(shop: Shop) -> None:
    with closing(shop.run()) as run:
        assert not _settled(run)


def test_a_stream_that_is_not_known_to_have_ended_is_not_settled(shop: Shop) -> None:
    run = handed_off(shop)
    assert run.store.ensure(run.name).phase is Phase.HANDED_OFF
    assert not _settled(run)


def test_a_table_that_came_is_left_to_planning(ended: Run, shop: Shop) -> None:
    shop.at_source("CREATE TABLE orders_2 (id INT PRIMARY KEY)")
    assert not _settled(ended)


def test_a_sink_table_that_is_gone_is_left_to_planning(ended: Run, shop: Shop) -> None:
    (state,) = ended.store.tables(ended.name)
    shop.sink_rows(f"DROP TABLE {state.plan.sink_table}")
    assert not _settled(ended)
