"""What several tests need of `test_table_announcements`."""

from __future__ import annotations

from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up
from tests.pipeline.conftest import Shop


def caught_up(shop: Shop, run: Run) -> None:
    give_back(run)
    catch_up(run, SparkOptions(master="local[1]", log_folder=shop.path.parent / "logs"))
