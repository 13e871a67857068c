"""A pipeline whose name is used from two folders, with two state stores, says so at its start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done


@pytest.fixture
def twin(shop: Shop, tmp_path: Path) -> Iterator[Run]:
    """The same file in another folder."""
    path = tmp_path / "elsewhere" / "shop.yaml"
    path.parent.mkdir()
    path.write_text(shop.path.read_text())
    with open_run(load_pipeline(path), EnvironmentDsns(shop.environment), owner="twin") as run:
        yield run


def test_a_run_that_reads_all_again_says_that_another_store_has_a_plan(
    shop: Shop, twin: Run
) -> None:
    run = shop.run()
    first = plan(run)
    assert first.warning == ""
    second = plan(twin)
    assert second.is_new
    assert f"the sink's ledger holds plan {first.plan_id}" in second.warning
    assert "everything is read again" in second.warning
    assert f"runs a pipeline of the name {run.name} into this sink" in second.warning
    third = plan(run)
    assert f"holds plan {second.plan_id}" in third.warning
    assert f"and not {first.plan_id}" in third.warning
    assert any(third.warning == event.text for event in run.store.events(run.name))
    assert plan(run).warning == ""


def test_a_plan_that_is_taken_over_while_it_streams_is_said(shop: Shop, twin: Run) -> None:
    run = shop.run()
    made = plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    taken = plan(twin)
    assert (taken.plan_id, taken.handed_off) == (made.plan_id, True)
    assert "it is taken over" in taken.warning
    assert plan(twin).warning == ""


def test_what_was_asked_for_is_no_warning(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    reset(run)
    assert plan(run).warning == ""
    drop(run)
    assert plan(run).warning == ""
