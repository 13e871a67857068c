"""DAGs from pipeline files: one YAML file, one pipeline, one `<pipeline>__sync`.

    from airflow_cdc_provider.operators.dags import cdc_dags

    cdc_dags("pipelines/", globals())

Parsing reads the files and asks no server. A run converges: it looks at what is done and does the
rest, so the first one takes the snapshot, later ones only stream, and running, clearing or
retrying anything is safe.

    bounded:     preflight > plan > snapshot > hand_off > stream > finish > verify
    continuous:  preflight > plan > snapshot > hand_off > stream > consistent > finish > verify
                                                                       `-----> follow

A bounded pipeline is scheduled: each run catches up with the log and ends. A continuous one is
not: its run ends when the pipeline is paused, and a schedule would at once begin another, which a
paused pipeline has no use for. Trigger it once, and again after `resume`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup
from airflow.sdk.bases.operator import chain

from airflow_cdc_provider.operators.assets import outlets_of
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.steps import (
    CdcFinishOperator,
    CdcHandoffOperator,
    CdcPlanOperator,
    CdcPreflightOperator,
)
from airflow_cdc_provider.operators.verify import CdcVerifyOperator
from airflow_cdc_provider.pipeline.loader import LoadedPipeline, load_folder, load_pipeline
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.verdict import Goal

DEFAULT_SCHEDULE = "*/15 * * * *"
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_DEFAULTS: Mapping[str, Any] = {
    "retries": 5,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}


def cdc_dags(
    folder: str | Path,
    into: MutableMapping[str, Any],
    *,
    schedule: str | None = DEFAULT_SCHEDULE,
    continuous_schedule: str | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> dict[str, DAG]:
    """
    Make a DAG of every pipeline file in a folder, and put it where Airflow finds it.

    :param folder: folder of the YAML files, relative to the DAG file.
    :param into: the DAG file's `globals()`.
    :param schedule: cron of bounded pipelines; None leaves them to be triggered.
    :param continuous_schedule: schedule of continuous pipelines; None, as they run until paused.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAGs.
    """
    here = Path(str(into.get("__file__", "."))).parent
    made: dict[str, DAG] = {}
    for loaded in load_folder(here / folder):
        is_continuous = loaded.model.stream.mode == "continuous"
        dag = sync_dag(
            loaded,
            schedule=continuous_schedule if is_continuous else schedule,
            default_args=default_args,
            tags=tags,
        )
        into[dag.dag_id] = made[dag.dag_id] = dag
    return made


def sync_dag(
    pipeline: LoadedPipeline | str | Path,
    *,
    schedule: str | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make `<pipeline>__sync` of one pipeline.

    :param pipeline: the pipeline file, or its path.
    :param schedule: when it runs; None leaves it to be triggered.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    loaded = _loaded(pipeline)
    name = loaded.model.pipeline
    with DAG(
        dag_id=f"{name}__sync",
        schedule=schedule,
        start_date=_FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        default_args={**_DEFAULTS, **(default_args or {})},
        tags=sorted({"cdc", name, *tags}),
        params={
            "verify": Param(
                default=True,
                type="boolean",
                title="Verify",
                description="Compare source and sink, both ways, once the tables are consistent.",
            )
        },
        doc_md=_doc(loaded),
    ) as dag:
        sync_group(loaded, group_id="sync", prefix_group_id=False)
    return dag


def sync_group(
    pipeline: LoadedPipeline | str | Path,
    *,
    group_id: str | None = None,
    prefix_group_id: bool = True,
    verify: str | bool = "{{ params.verify }}",
) -> TaskGroup:
    """
    Make the tasks of one pipeline, for a DAG of your own.

    :param pipeline: the pipeline file, or its path.
    :param group_id: name of the group; the pipeline's if None.
    :param prefix_group_id: put the group's name before the names of its tasks.
    :param verify: whether to verify; a template by default, over the DAG's parameter `verify`.
    """
    loaded = _loaded(pipeline)
    model, path = loaded.model, str(loaded.path.resolve())
    group_name = group_id or model.pipeline
    with TaskGroup(group_name, prefix_group_id=prefix_group_id) as group:
        stream = CdcStreamOperator(task_id="stream", pipeline=path)
        finish = CdcFinishOperator(task_id="finish", pipeline=path, outlets=outlets_of(model))
        chain(
            CdcPreflightOperator(task_id="preflight", pipeline=path),
            CdcPlanOperator(task_id="plan", pipeline=path),
            CdcSnapshotOperator(task_id="snapshot", pipeline=path),
            CdcHandoffOperator(task_id="hand_off", pipeline=path),
            stream,
        )
        if model.stream.mode == "continuous":
            consistent = CdcStreamSensor(
                task_id="consistent", pipeline=path, goal=Goal.CONSISTENT.value
            )
            follow = CdcStreamSensor(task_id="follow", pipeline=path, goal=Goal.STOPPED.value)
            chain(stream, consistent, [finish, follow])
        else:
            chain(stream, finish)
        chain(finish, CdcVerifyOperator(task_id="verify", pipeline=path, enabled=verify))
    return group


def _loaded(pipeline: LoadedPipeline | str | Path) -> LoadedPipeline:
    return pipeline if isinstance(pipeline, LoadedPipeline) else load_pipeline(pipeline)


def _doc(loaded: LoadedPipeline) -> str:
    model = loaded.model
    tables = ", ".join(f"`{pattern}`" for pattern in model.source.tables)
    return (
        f"Copies {tables} and keeps them in step ({model.stream.mode}).\n\n"
        "Any task may be retried or cleared, and the DAG run again, at any time: what is done is "
        "not done again, and the sink's ledger decides what is done."
    )
