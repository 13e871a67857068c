"""Runs of a pipeline's DAG, begun from Airflow's command line, which has Airflow's own database."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError, RetryableError


def begin_sync_run(pipeline: str, *, is_stopped: bool) -> str:
    """Start a run of `<pipeline>__sync` unless one waits or runs; return a text that names it.

    A run that is under way while the pipeline is stopped is about to end, and does nothing more: a
    new one waits behind it.
    Refused where Airflow has no such DAG, or the DAG is paused.
    """
    # the models of Airflow's database cost seconds, and no other command needs them
    from airflow.models import DagModel, DagRun  # noqa: PLC0415, TID251 - there is no other way to
    from airflow.utils.state import DagRunState  # noqa: PLC0415, TID251 - as those have it

    dag_id = f"{pipeline}__sync"
    dag = DagModel.get_dagmodel(dag_id)
    if dag is None or dag.is_stale:
        raise RefusedError(
            f"Airflow has no DAG {dag_id}",
            where=f"Airflow, for pipeline {pipeline}",
            risk=NOTHING_STARTED,
            remedy="look at the import errors of Airflow's DAGs; trigger the DAG yourself if the "
            "pipeline's tasks are in one of your own",
        )
    waiting = DagRun.find(dag_id=dag_id, state=DagRunState.QUEUED)
    under_way = DagRun.find(dag_id=dag_id, state=DagRunState.RUNNING)
    if waiting:
        return f"Run {waiting[0].run_id} of {dag_id} waits to begin."
    if under_way and not is_stopped:
        return f"Run {under_way[0].run_id} of {dag_id} is under way."
    if dag.is_paused:
        raise RefusedError(
            f"the DAG {dag_id} is paused",
            where=f"Airflow, for pipeline {pipeline}",
            risk=NOTHING_STARTED,
            remedy=f"switch it on (airflow dags unpause {dag_id}), then `start` the pipeline",
        )
    behind = f" when {under_way[0].run_id} has ended" if under_way else ""
    return f"Run {_trigger(dag_id)} of {dag_id} begins{behind}."


def _trigger(dag_id: str) -> str:
    """Trigger a DAG run as `airflow dags trigger` does; return its id."""
    from airflow.api.client import get_current_api_client  # noqa: PLC0415 - see above

    try:
        run = get_current_api_client().trigger_dag(dag_id=dag_id)
    except AirflowException as error:
        raise RetryableError(
            f"Airflow did not begin a run: {error}",
            where=f"DAG {dag_id}",
            risk=NOTHING_STARTED,
            remedy=f"trigger the DAG yourself (airflow dags trigger {dag_id})",
        ) from error
    return "" if run is None else str(run["dag_run_id"])
