"""Pipelines whose runs have nothing to stream, and the Spark that none of them may start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.pipeline.shop_steps import planned_splits, publish

if TYPE_CHECKING:
    from tests.pipeline.conftest import Shop

NO_SPARK = "spark://127.0.0.1:1"


def read(run: Run, splits: list[SnapshotSplit]) -> list[tuple[SnapshotSplit, SplitReport]]:
    """Read splits as a reader does; what they report is the source's own log."""
    schemas = {table.table: table.plan.schema for table in run.store.tables(run.name)}
    reader = SnapshotReader(run.servers.source, schemas, server_id=5_410)
    with closing(reader):
        return [(split, reader.read(split)[1]) for split in splits]


def handed_off(
    shop: Shop,
    change: Callable[[SplitReport], SplitReport] = lambda report: report,
    between: Callable[[], None] = lambda: None,
) -> Run:
    """Hand off a snapshot of two splits; `between` happens between their reads."""
    run = shop.run()
    plan(run)
    state = run.store.ensure(run.name)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.SNAPSHOT)
    splits = planned_splits(run)
    reports = read(run, splits[:1])
    between()
    reports += read(run, splits[1:])
    publish(shop, run, [(split, change(report)) for split, report in reports])
    hand_off(run)
    return run


def options(shop: Shop) -> SparkOptions:
    return SparkOptions(master=NO_SPARK, log_folder=shop.path.parent / "logs", always=True)


def refused_job(shop: Shop, run: Run) -> CdcError:
    """Return what a job that is started is refused with."""
    with pytest.raises(CdcError) as refused:
        catch_up(run, options(shop))
    assert NO_SPARK.removeprefix("spark://") in str(refused.value)
    return refused.value


def of_another_log(report: SplitReport) -> SplitReport:
    """Return the report with another beginning of its log."""
    high = own(report.high)
    imprint = high.imprint
    assert imprint is not None
    begun = replace(imprint, created=imprint.created - 60)
    return replace(report, high=replace(high, imprint=begun))
