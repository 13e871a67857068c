"""DAGs from pipeline files: one YAML file, one pipeline, one `<pipeline>__sync` and others.

    from airflow_cdc_provider.operators.dags import cdc_dags

    cdc_dags("pipelines/", globals())

Parsing reads the files and asks no server. A run converges: it looks at what is done and does the
rest, so the first one takes the snapshot, later ones only stream, and running, clearing or
retrying anything is safe.

    bounded:     preflight > plan > snapshot > hand_off > stream > finish > verify
    continuous:  preflight > plan > snapshot > hand_off > stream > consistent > finish > verify
                                                                       `-----> follow

Each task costs a process and a turn of the scheduler, about a second. So a bounded run leaves out
the tasks that have nothing to do: once the plan is made and read, `preflight` skips `plan`,
`snapshot` and `hand_off`; where the sink has all of the log, `stream` as well; and `finish` skips
`verify` where no table is to be compared. An idle run is `preflight` and `finish`.

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

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup, TriggerRule
from airflow.sdk.bases.operator import chain
from airflow.sdk.bases.timetable import BaseTimetable

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.operators.backfill_dag import DEFAULT_SCHEDULE as BACKFILL_SCHEDULE
from airflow_cdc_provider.operators.backfill_dag import backfill_dag
from airflow_cdc_provider.operators.base import CdcOperator
from airflow_cdc_provider.operators.changes_dag import changes_dag
from airflow_cdc_provider.operators.jobs import CdcSnapshotOperator, CdcStreamOperator
from airflow_cdc_provider.operators.parts import RETRIES, Parts, new_dag
from airflow_cdc_provider.operators.resync_dag import resync_dag_of
from airflow_cdc_provider.operators.seed_dag import seed_dag
from airflow_cdc_provider.operators.seeding import CdcSeedOperator
from airflow_cdc_provider.operators.shared_dags import shared_dags
from airflow_cdc_provider.operators.steps import (
    CdcFinishOperator,
    CdcHandoffOperator,
    CdcPlanOperator,
    CdcPreflightOperator,
)
from airflow_cdc_provider.operators.tables_dag import tables_dag
from airflow_cdc_provider.operators.verify import BY_FILE, CdcVerifyOperator
from airflow_cdc_provider.operators.verify_dag import Repair, verify_dag
from airflow_cdc_provider.pipeline.file.folder import FolderFile, read_folder
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.sensors.stream import CdcStreamSensor
from airflow_cdc_provider.triggers.verdict import Goal

_VERIFY = "{{ params.verify }}"
DEFAULT_SCHEDULE = "*/15 * * * *"
_RUN_TYPES = (
    "scheduled",
    "manual",
    "operator_triggered",
    "asset_triggered",
    "asset_materialization",
)
"""Not Airflow's backfill: `max_active_runs` is not its limit, and its runs would all own the
pipeline, each for as long as the next one lets it."""


def cdc_dags(  # noqa: PLR0913 - each is one a DAG's author may set
    folder: str | Path,
    into: MutableMapping[str, Any],
    *,
    schedule: str | None = DEFAULT_SCHEDULE,
    continuous_schedule: str | None = None,
    changes_every_s: float | None = 300.0,
    resync: bool = True,
    tables: bool = True,
    backfill_schedule: str | BaseTimetable | None = BACKFILL_SCHEDULE,
    verify: str = BY_FILE,
    verify_schedule: str | None = None,
    verify_repair: Repair = "never",
    verify_only_changed: bool = False,
    verify_percent: float = 100.0,
    shared: bool = False,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> dict[str, DAG]:
    """
    Make the DAGs of every pipeline file in a folder, and put them into a DAG file's globals.

    :param folder: folder of the YAML files, relative to the DAG file.
    :param into: the DAG file's `globals()`.
    :param schedule: cron of bounded pipelines; None leaves them to be triggered.
    :param continuous_schedule: schedule of continuous pipelines; None, as they run until paused.
    :param changes_every_s: seconds that a continuous stream's changes are gathered before other
        DAGs are notified of the changed tables; None makes no `<pipeline>__changes`.
    :param resync: make `<pipeline>__resync`, too, of pipelines whose sink takes rows again.
    :param tables: make `<pipeline>__tables`, too, a form to add, remove and reset single tables.
    :param backfill_schedule: cron, in UTC, or timetable of `<pipeline>__backfill`, which files with
        `backfill` have; None leaves it to be triggered.
    :param verify: when a run of `<pipeline>__sync` compares both sides: `after_snapshot`, `always`,
        `never`, or `by_file`, what the file's `verify` says.
    :param verify_schedule: cron of `<pipeline>__verify`; None leaves it to be triggered.
    :param verify_repair: what becomes of rows that differ: `never`, `ask` or `always`.
    :param verify_only_changed: let `<pipeline>__verify` leave out tables that were found equal and
        did not change since.
    :param verify_percent: about how many percent of each table's splits it compares.
    :param shared: make one `cdc__resync`, `cdc__tables`, `cdc__verify` and `cdc__backfill`, whose
        form has the pipeline as a field, in the place of one for each pipeline. What has a
        schedule keeps a DAG for each: `verify_schedule`, and `backfill_schedule` unless it is None.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAGs.
    """
    here = Path(str(into.get("__file__", "."))).parent
    files = read_folder(here / folder)
    made: dict[str, DAG] = {}
    every: list[Parts] = []
    common: dict[str, Any] = {"default_args": default_args, "tags": tags}
    compared: dict[str, Any] = {
        "repair": verify_repair,
        "only_changed": verify_only_changed,
        "percent": verify_percent,
    }
    for file in sorted(files, key=lambda file: file.loaded is None):  # what is read has its id
        parts = _parts(file, made)
        schedules = {
            "continuous": continuous_schedule,
            "bounded": schedule,
            "snapshot_only": schedule,
        }
        when = schedules.get(file.mode)  # a run of what may be continuous would begin at once again
        every.append(parts)
        dags = [_dag(parts, schedule=when, verify=verify, **common)]
        if resync and parts.takes_rows_again and not shared:
            dags.append(resync_dag_of(parts, **common))
        if tables and parts.takes_tables and not shared:
            dags.append(tables_dag(parts, **common))
        if file.mode == "continuous" and file.problem is None and changes_every_s is not None:
            dags.append(changes_dag(parts, every_s=changes_every_s, **common))
        if parts.model is not None and parts.model.edge is not None:
            dags.append(seed_dag(parts, **common))
        has_backfill = parts.model is not None and bool(parts.model.backfill)
        if has_backfill and not (shared and backfill_schedule is None):
            dags.append(backfill_dag(parts, schedule=backfill_schedule, **common))
        if parts.is_compared and not (shared and verify_schedule is None):
            dags.append(verify_dag(parts, schedule=verify_schedule, **compared, **common))
        _add(dags, made)
    if shared:
        _add(shared_dags(every, resync=resync, tables=tables, **compared, **common), made)
    into.update(made)
    return made


def _add(dags: Iterable[DAG], made: MutableMapping[str, DAG]) -> None:
    """Add DAGs whose ids are not taken yet."""
    for dag in dags:
        made.setdefault(dag.dag_id, dag)


def _parts(file: FolderFile, made: Mapping[str, DAG]) -> Parts:
    """Return what a file's DAGs are made from; a broken file takes no id of a good one."""
    parts = Parts.of_file(file)
    if file.loaded is not None or parts.dag_id("sync") not in made:
        return parts
    return replace(parts, file_name=file.path.name)


def sync_dag(
    pipeline: LoadedPipeline | str | Path,
    *,
    schedule: str | None = None,
    verify: str = BY_FILE,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__sync` that runs one pipeline.

    :param pipeline: the pipeline file, or its path.
    :param schedule: when it runs; None leaves it to be triggered.
    :param verify: when a run compares both sides; see `cdc_dags`.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    common: dict[str, Any] = {"default_args": default_args, "tags": tags}
    return _dag(Parts.of(pipeline), schedule=schedule, verify=verify, **common)


def _dag(
    tasks: Parts,
    *,
    schedule: str | None,
    verify: str,
    default_args: Mapping[str, Any] | None,
    tags: Iterable[str],
) -> DAG:
    """Make the DAG `<pipeline>__sync` with its tasks."""
    with new_dag(
        tasks,
        "sync",
        default_args=default_args,
        tags=tags,
        schedule=schedule,
        allowed_run_types=_RUN_TYPES,
        params={
            "verify": Param(
                default=verify,
                type=["string", "boolean"],  # runs of before said true or false
                examples=[BY_FILE, "after_snapshot", "always", "never"],
                title="Verify",
                description="When to compare the rows of source and sink, both ways: by_file is "
                "what the pipeline file's key `verify` says.",
            )
        },
    ) as dag:
        _add_tasks(tasks, verify=_VERIFY)
    return dag


def sync_group(
    pipeline: LoadedPipeline | str | Path,
    *,
    group_id: str | None = None,
    prefix_group_id: bool = True,
    verify: str | bool = _VERIFY,
) -> TaskGroup:
    """
    Make a task group of one pipeline's tasks, for a DAG of your own.

    :param pipeline: the pipeline file, or its path.
    :param group_id: name of the group; the pipeline's if None.
    :param prefix_group_id: put the group's name before the names of its tasks.
    :param verify: when to verify, see `cdc_dags`, or true or false; a template by default, over
        the DAG's parameter `verify`.
    """
    tasks = Parts.of(pipeline)
    with _trying_again(TaskGroup(group_id or tasks.name, prefix_group_id=prefix_group_id)) as group:
        _add_tasks(tasks, verify=verify)
    return group


def _trying_again(group: TaskGroup) -> TaskGroup:
    """Have a group's tasks tried again as those of `cdc_dags` are, unless their DAG says how."""
    said = {**group.dag.default_args, **group.default_args}
    group.default_args.update({name: RETRIES[name] for name in RETRIES.keys() - said.keys()})
    return group


def pair_group(
    there: LoadedPipeline | str | Path,
    back: LoadedPipeline | str | Path,
    *,
    group_id: str | None = None,
    verify: str | bool = BY_FILE,
) -> TaskGroup:
    """
    Make a task group that lets two nodes follow each other, for a DAG of your own.

    Each edge is a group within it, named as its pipeline. `there` makes the first copy; `back`
    begins with the rows that it copied. Then both stream, and `back` compares the nodes. One of
    them that fails or is paused later does not hold up the other.

    :param there: the file of the edge that copies the rows, or its path.
    :param back: the file of the opposite edge, or its path.
    :param group_id: name of the group; the topology's if None.
    :param verify: when to compare the nodes, see `cdc_dags`, or true or false (templated).
    """
    first, second = Parts.of(there), Parts.of(back)
    with _trying_again(TaskGroup(group_id or _topology_of(first, second))) as group:
        with TaskGroup(first.name):
            copied = _add_tasks(replace(first, is_compared=False), verify=False)[-1]
        with TaskGroup(second.name):
            seed = CdcSeedOperator(
                task_id="seed",
                pipeline=second.path,
                refused=second.refused,
                seeded_from=first.path,
                waits=False,  # behind its copy a way there is consistent, or has failed
                trigger_rule=TriggerRule.ALL_DONE,
            )
            begin = _add_tasks(second, verify=verify)[0]
    chain(copied, seed, begin)
    return group


def _topology_of(there: Parts, back: Parts) -> str:
    """Return the name of the topology of which two pipelines are edges, there and back."""
    first, second = (each.model.edge if each.model else None for each in (there, back))
    if first is None or second is None or not second.is_back_of(first):
        raise PipelineFileError(
            f"{there.name} and {back.name} are not the two edges of a pair: "
            f"{first or 'no edge'}, and {second or 'no edge'}",
            where=f"{there.path} and {back.path}",
            risk="there is no DAG for them; what runs goes on",
            remedy="give both a section `topology` of one name, with its two nodes exchanged",
        )
    return first.name


def _add_tasks(tasks: Parts, *, verify: str | bool) -> tuple[CdcOperator, CdcOperator]:
    """Add the pipeline's tasks to the DAG or group that is being made.

    Return its first one, and the one behind which the sink has all tables, with their keys.
    """
    path, refused = tasks.path, tasks.refused
    preflight = CdcPreflightOperator(task_id="preflight", pipeline=path, refused=refused)
    snapshot: list[CdcOperator] = [
        CdcPlanOperator(task_id="plan", pipeline=path, refused=refused),
        CdcSnapshotOperator(task_id="snapshot", pipeline=path, refused=refused),
        CdcHandoffOperator(task_id="hand_off", pipeline=path, refused=refused),
    ]
    stream = CdcStreamOperator(task_id="stream", pipeline=path, refused=refused, shown=tasks.shown)
    finish = CdcFinishOperator(
        task_id="finish", pipeline=path, refused=refused, outlets=[*tasks.outlets]
    )
    chain(preflight, *snapshot, stream)
    if tasks.is_continuous:
        consistent = CdcStreamSensor(
            task_id="consistent", pipeline=path, goal=Goal.CONSISTENT.value
        )
        follow = CdcStreamSensor(task_id="follow", pipeline=path, goal=Goal.STOPPED.value)
        chain(stream, consistent, [finish, follow])
    else:
        chain(stream, finish)
        _leave_out_what_is_done(preflight, snapshot, stream, finish)
    if tasks.is_compared:
        verify_task = CdcVerifyOperator(
            task_id="verify", pipeline=path, refused=refused, enabled=verify
        )
        chain(finish, verify_task)
        finish.verify_task, finish.verify = verify_task.task_id, verify
    return preflight, finish


def _leave_out_what_is_done(
    preflight: CdcPreflightOperator,
    snapshot: Sequence[CdcOperator],
    stream: CdcStreamOperator,
    finish: CdcFinishOperator,
) -> None:
    """Let preflight skip tasks that have nothing to do, while those after them still run.

    Where preflight itself is skipped, as of a paused pipeline, so are these.
    """
    preflight.snapshot_tasks = tuple(task.task_id for task in snapshot)
    preflight.stream_tasks = (stream.task_id,)
    for task in (stream, finish):
        task.trigger_rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
        preflight >> task
