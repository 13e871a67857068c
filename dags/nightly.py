"""Read the rows of each day again, and compare their table then, in a DAG of your own."""

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cdc_provider.operators.backfill import CdcBackfillOperator
from airflow_cdc_provider.operators.verify import CdcVerifyOperator

FILE = str(Path(__file__).parent / "pipelines" / "demo.yaml")

with DAG(
    "demo_nightly",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),  # a plain cron has no intervals
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["cdc", "demo"],
):
    read_again = CdcBackfillOperator(
        task_id="read_again",
        pipeline=FILE,
        table="tpch.orders",
        column="o_orderdate",
        timezone="UTC",
    )
    compare = CdcVerifyOperator(task_id="compare", pipeline=FILE, tables=["tpch.orders"])
    read_again >> compare
