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

One file, one failure. Airflow drops all DAGs of a DAG file that raises, those of the other
pipelines too, and with them the watch over streams that run. So a file that is wrong still has its
DAG, under the id and with the tasks that its runs know; the DAG is called broken, and its tasks
fail with what is wrong. A stream that runs goes on, and `follow` watches it for as long as it
lives: only to start it again the file is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetAlias, Param, TaskGroup
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
from airflow_cdc_provider.pipeline.file.folder import FolderFile, read_folder
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, load_pipeline
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.verdict import Goal

_VERIFY = "{{ params.verify }}"
DEFAULT_SCHEDULE = "*/15 * * * *"
_NOT_IN_AN_ID = re.compile(r"[^\w.-]", re.ASCII)
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
    files = read_folder(here / folder)
    made: dict[str, DAG] = {}
    for file in sorted(files, key=lambda file: file.loaded is None):  # what is read has its id
        schedules = {"continuous": continuous_schedule, "bounded": schedule}
        dag = _dag(
            _Tasks.of_file(file),
            dag_id=_free_id(file, made),
            schedule=schedules.get(file.mode, schedule),
            default_args=default_args,
            tags=tags,
        )
        if dag.dag_id not in made:
            into[dag.dag_id] = made[dag.dag_id] = dag
    return made


@dataclass(frozen=True, slots=True)
class _Tasks:
    """What the tasks of one pipeline are made from."""

    name: str
    path: str
    is_continuous: bool
    doc: str
    outlets: Sequence[Asset | AssetAlias] = ()
    is_compared: bool = True
    """False: the sink is a log, which verify does not compare."""
    problem: str = ""
    """Why nothing may start, of a file that is wrong."""
    is_read: bool = True
    """False: the tasks find out themselves what is wrong with the file."""

    @classmethod
    def of(cls, loaded: LoadedPipeline) -> _Tasks:
        """Take them from a pipeline."""
        model, path = loaded.model, str(loaded.path.resolve())
        is_continuous = model.stream.mode == "continuous"
        return cls(
            model.pipeline,
            path,
            is_continuous,
            _doc(loaded),
            outlets_of(model),
            is_compared=model.sink.folder is None,
        )

    @classmethod
    def of_file(cls, file: FolderFile) -> _Tasks:
        """Take them from a file of a folder, as far as it can be read."""
        problem = "" if file.problem is None else str(file.problem)
        doc = f"**This pipeline cannot be started.**\n\n```\n{problem}\n```"
        if file.loaded is None:
            path, is_continuous = str(file.path.resolve()), file.mode != "bounded"
            return cls(file.name, path, is_continuous, doc, problem=problem, is_read=False)
        tasks = cls.of(file.loaded)
        return replace(tasks, problem=problem, doc=doc) if problem else tasks

    @property
    def refused(self) -> str:
        """Return what tasks fail with that do not find out themselves."""
        return self.problem if self.is_read else ""


def _free_id(file: FolderFile, made: Mapping[str, DAG]) -> str:
    """Return a DAG's id; a file that cannot be read does not take that of one that can."""
    dag_id = f"{file.name}__sync"
    if file.loaded is not None or dag_id not in made:
        return dag_id
    return f"{file.name}__{_NOT_IN_AN_ID.sub('_', file.path.name)}__sync"


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
    tasks = _Tasks.of(_loaded(pipeline))
    return _dag(
        tasks,
        dag_id=f"{tasks.name}__sync",
        schedule=schedule,
        default_args=default_args,
        tags=tags,
    )


def _dag(
    tasks: _Tasks,
    *,
    dag_id: str,
    schedule: str | None,
    default_args: Mapping[str, Any] | None,
    tags: Iterable[str],
) -> DAG:
    broken = {"broken"} if tasks.problem else set()
    with DAG(
        dag_id=dag_id,
        dag_display_name=f"{dag_id} (broken)" if broken else dag_id,
        schedule=schedule,
        start_date=_FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        default_args={**_DEFAULTS, **(default_args or {})},
        tags=sorted({"cdc", tasks.name, *broken, *tags}),
        params={
            "verify": Param(
                default=True,
                type="boolean",
                title="Verify",
                description="Compare source and sink, both ways, once the tables are consistent.",
            )
        },
        doc_md=tasks.doc,
    ) as dag:
        _group(tasks, group_id="sync", prefix_group_id=False, verify=_VERIFY)
    return dag


def sync_group(
    pipeline: LoadedPipeline | str | Path,
    *,
    group_id: str | None = None,
    prefix_group_id: bool = True,
    verify: str | bool = _VERIFY,
) -> TaskGroup:
    """
    Make the tasks of one pipeline, for a DAG of your own.

    :param pipeline: the pipeline file, or its path.
    :param group_id: name of the group; the pipeline's if None.
    :param prefix_group_id: put the group's name before the names of its tasks.
    :param verify: whether to verify; a template by default, over the DAG's parameter `verify`.
    """
    tasks = _Tasks.of(_loaded(pipeline))
    return _group(
        tasks, group_id=group_id or tasks.name, prefix_group_id=prefix_group_id, verify=verify
    )


def _group(tasks: _Tasks, *, group_id: str, prefix_group_id: bool, verify: str | bool) -> TaskGroup:
    path, refused = tasks.path, tasks.refused
    with TaskGroup(group_id, prefix_group_id=prefix_group_id) as group:
        stream = CdcStreamOperator(task_id="stream", pipeline=path, refused=refused)
        finish = CdcFinishOperator(
            task_id="finish", pipeline=path, refused=refused, outlets=[*tasks.outlets]
        )
        chain(
            CdcPreflightOperator(task_id="preflight", pipeline=path, refused=refused),
            CdcPlanOperator(task_id="plan", pipeline=path, refused=refused),
            CdcSnapshotOperator(task_id="snapshot", pipeline=path, refused=refused),
            CdcHandoffOperator(task_id="hand_off", pipeline=path, refused=refused),
            stream,
        )
        if tasks.is_continuous:
            consistent = CdcStreamSensor(
                task_id="consistent", pipeline=path, goal=Goal.CONSISTENT.value
            )
            follow = CdcStreamSensor(task_id="follow", pipeline=path, goal=Goal.STOPPED.value)
            chain(stream, consistent, [finish, follow])
        else:
            chain(stream, finish)
        if tasks.is_compared:
            verify_task = CdcVerifyOperator(
                task_id="verify", pipeline=path, refused=refused, enabled=verify
            )
            chain(finish, verify_task)
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
