"""A sink's folder that a pipeline copied to is away when a run begins: no other one is begun."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import LedgerSetBackError
from airflow_cdc_provider.engine.snapshot.assigner_server import DriverPlace
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import resync_scope
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import (
    _snapshot_to_do,
    has_nothing_to_stream,
    snapshot,
)
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.change_logs import Logged
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import Lake
from tests.pipeline.without_spark import NO_SPARK

QUICK = BackOff(first_s=0.1, longest_s=0.1, give_up_s=0.3)


@dataclass(frozen=True)
class Sink:
    """The folder of a shop's sink."""

    shop: Shop
    folder: Path
    copied: Lake | Logged

    def is_equal(self) -> bool:
        self.copied.catch_up()
        return self.copied.is_equal("orders")

    def operations(self) -> str:
        return self.copied.operations("orders")

    @property
    def without_spark(self) -> SparkOptions:
        return SparkOptions(NO_SPARK, log_folder=self.shop.path.parent / "logs")


@pytest.fixture(params=["changelog", "iceberg", "delta"])
def sink(shop: Shop, request: pytest.FixtureRequest) -> Sink:
    if request.param == "changelog":
        logged = Logged.of(shop)
        return Sink(shop, Path(logged.place.path), logged)
    lake = Lake.of(shop, request.param)
    return Sink(shop, lake.folder, lake)


class NoReaders:
    """Readers of which none begins."""

    driver, at_once = DriverPlace("127.0.0.1"), None

    def run(self, *_: object) -> None:
        raise AssertionError


def not_mounted(folder: Path) -> None:
    folder.mkdir()


def moved(_: Path) -> None:
    pass


@pytest.mark.parametrize("leave", [not_mounted, moved])
def test_nothing_is_begun_in_its_place_and_a_run_goes_on_once_it_is_back(
    sink: Sink, leave: Callable[[Path], None]
) -> None:
    assert sink.is_equal()
    away = sink.folder.rename(sink.folder.with_name("away"))
    leave(sink.folder)
    is_there = sink.folder.exists()
    sink.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    run = sink.shop.run()
    steps: list[Callable[..., object]] = [check, plan, has_nothing_to_stream, run_until_caught_up]
    steps += [verify, resync_scope] if isinstance(sink.copied, Lake) else [verify]
    for step in steps:
        with pytest.raises(LedgerSetBackError, match="has copied 1 table to it") as error:
            step(run)
        assert "`reset` the pipeline" in error.value.remedy
    assert sink.folder.exists() == is_there
    if is_there:
        sink.folder.rmdir()  # it is empty
    away.rename(sink.folder)
    assert sink.is_equal()
    assert sink.operations() == "rrrc"


def test_one_that_was_deleted_on_purpose_is_begun_anew_by_reset(sink: Sink) -> None:
    assert sink.is_equal()
    shutil.rmtree(sink.folder)
    sink.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    with pytest.raises(LedgerSetBackError):
        sink.copied.catch_up()
    reset(sink.shop.run())
    assert sink.is_equal()
    assert sink.operations() == "rrrr"


def test_a_pipeline_that_was_dropped_begins_anew_in_an_empty_folder(sink: Sink) -> None:
    assert sink.is_equal()
    shutil.rmtree(sink.folder)
    drop(sink.shop.run())
    assert sink.is_equal()


def test_a_folder_that_has_no_rows_yet_may_be_deleted(sink: Sink) -> None:
    plan(sink.shop.run())
    shutil.rmtree(sink.folder)
    assert sink.is_equal()


def test_a_snapshot_that_begins_while_it_is_away_makes_no_other_one(sink: Sink) -> None:
    run = sink.shop.run()
    plan(run)
    spec = _snapshot_to_do(run)
    assert spec is not None
    away = sink.folder.rename(sink.folder.with_name("away"))
    with pytest.raises(LedgerSetBackError, match="gone, or set back"):
        run_snapshot(_job(run, spec, threading.Event()), NoReaders(), back_off=QUICK)
    assert not sink.folder.exists()
    away.rename(sink.folder)
    assert sink.is_equal()


def test_rows_that_were_read_and_not_handed_off_are_missed(sink: Sink) -> None:
    plan(sink.shop.run())
    snapshot(sink.shop.run(), sink.without_spark)
    away = sink.folder.rename(sink.folder.with_name("away"))
    with pytest.raises(LedgerSetBackError, match="not mounted"):
        hand_off(sink.shop.run())
    away.rename(sink.folder)
    assert sink.is_equal()
    assert sink.operations() == "rrr"
