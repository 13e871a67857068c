"""Alerts: a pipeline that lags, stands or waits for a person, and a sync that takes too long."""

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, DeadlineAlert, DeadlineReference, SyncCallback

from airflow_cdc_provider.notifications.status import CdcStatusNotifier, tell_status
from airflow_cdc_provider.operators.health import CdcHealthOperator

DEMO = str(Path(__file__).parent / "pipelines" / "demo.yaml")

with DAG(
    "demo_health",
    schedule="*/5 * * * *",
    catchup=False,
    max_active_runs=1,
    tags=["cdc", "demo"],
    # give `through=[SlackNotifier(text="{{ cdc_status }}")]`, or another notifier that you use
    on_failure_callback=CdcStatusNotifier(pipeline=DEMO),
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=10),
        callback=SyncCallback(tell_status, {"pipeline": DEMO}),
    ),
):
    CdcHealthOperator(task_id="health", pipeline=DEMO, max_lag_s=60, max_silence_s=120)
