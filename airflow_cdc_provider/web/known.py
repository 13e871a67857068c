"""Which pipelines Airflow knows: those of the DAGs with the tag `cdc`, from their serialised form.

The API server need not have the DAG files, and parses none. Every DAG that `cdc_dags` makes has the
tag; a DAG of one's own that uses `sync_group` or the operators is listed once it is given it. The
task that streams says which pipeline it is and where its state is kept; where it does not, the
pipeline file is read if it is there.

Serialised DAGs are large, so each is read once for every version of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow.models.dag import DagModel, DagTag  # noqa: TID251 - the API server's own tables
from airflow.models.dagrun import DagRun  # noqa: TID251
from airflow.models.serialized_dag import SerializedDagModel  # noqa: TID251
from airflow.models.taskinstance import TaskInstance  # noqa: TID251
from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError, PipelineFileError
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.file.shown import ShownPipeline

TAG = "cdc"
_NO_SCHEDULE = frozenset({None, "", "None"})
_UNENDED = ("queued", "running")
_ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_STREAMING = "CdcStreamOperator"
_ASKING = ("resync", "verify", "backfill", "tables")
SHARED = "cdc"
SHARED_DAGS = frozenset(f"{SHARED}__{kind}" for kind in _ASKING)
"""DAGs of several pipelines, whose runs are told which one is meant."""


@dataclass(frozen=True, slots=True)
class KnownDag:
    """The DAG that runs a pipeline, as Airflow's database has it."""

    dag_id: str
    is_paused: bool = False
    begins_alone: bool = False
    """A schedule begins its runs."""
    next_run_us: int | None = None
    """When a schedule begins the next one, if that is known."""
    has_run: bool = False
    """A run of it waits or is under way."""
    was_run: bool = True
    """There is a run of it, or there was one."""
    over_in: str = ""
    """The run under way in which this pipeline's tasks have ended, and those of others have not."""
    group: str = ""
    """The group of this pipeline's tasks, of a DAG of several pipelines."""


@dataclass(frozen=True, slots=True)
class KnownPipeline:
    """A pipeline and the DAG that runs it, whose permissions apply to the pipeline."""

    dag: KnownDag
    shown: ShownPipeline
    file: str
    """Path of the pipeline file, as the DAG processor saw it."""
    resync_dag: str | None = None
    """The DAG whose form asks for a resync, if there is one."""
    problem: CdcError | None = None
    """Why its state store is not known."""

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def dag_id(self) -> str:
        return self.dag.dag_id


@dataclass(frozen=True, slots=True)
class _Task:
    """The task of a DAG that streams, and the pipeline it describes."""

    pipeline: str
    shown: ShownPipeline | None
    group: str
    """The group of tasks that it is in; empty for none."""


@dataclass(slots=True)
class KnownPipelines:
    """Finds pipelines in Airflow's serialised DAGs; what was read of each DAG is cached."""

    _read: dict[str, tuple[str, tuple[_Task, ...]]] = field(default_factory=dict)

    def find(self, session: Session, readable: Collection[str]) -> tuple[KnownPipeline, ...]:
        """Return the pipelines of the DAGs that a user may read, by name."""
        every = _tagged(session)
        for gone in self._read.keys() - every.keys():
            self._read.pop(gone, None)
        tagged = {dag_id: dag for dag_id, dag in every.items() if dag_id in readable}
        self._refresh(session, tagged)
        ended = _ended_groups(session, self._with_groups(tagged))
        found = [each for dag_id in tagged for each in self._of_dag(dag_id, tagged, ended)]
        return tuple(sorted(found, key=lambda each: (each.name, each.dag_id)))

    def of_name(self, session: Session, name: str) -> tuple[KnownPipeline, ...]:
        """Return the pipelines of that name, whoever may read their DAGs."""
        return tuple(each for each in self.find(session, _tagged(session)) if each.name == name)

    def _refresh(self, session: Session, tagged: Collection[str]) -> None:
        """Read again the serialised DAGs that changed since the last read."""
        hashes = dict(_hashes(session, tagged))
        stale = [key for key, text in hashes.items() if self._read.get(key, ("",))[0] != text]
        if not stale:
            return
        for dag in SerializedDagModel.get_latest_serialized_dags(dag_ids=stale, session=session):
            self._read[dag.dag_id] = (dag.dag_hash, tuple(_streaming_tasks(dag.data or {})))

    def _with_groups(self, tagged: Mapping[str, KnownDag]) -> dict[str, list[str]]:
        """Return the groups of the DAGs that have several pipelines, and a run."""
        groups = {
            dag_id: [task.group for task in self._read.get(dag_id, ("", ()))[1] if task.group]
            for dag_id, dag in tagged.items()
            if dag.has_run
        }
        return {dag_id: found for dag_id, found in groups.items() if len(found) > 1}

    def _of_dag(
        self, dag_id: str, tagged: Mapping[str, KnownDag], ended: Mapping[tuple[str, str], str]
    ) -> Iterator[KnownPipeline]:
        """Yield the pipelines of one DAG; `ended` are groups of tasks, each with the run of it."""
        for task in self._read.get(dag_id, ("", ()))[1]:
            problem = None
            shown = task.shown
            if shown is None:
                shown, problem = _from_file(task.pipeline, dag_id)
            elif not shown.place:
                problem = _unread(task.pipeline, shown.refused)
            resync = (each for each in resync_dag_ids(dag_id, shown.name) if each in tagged)
            dag = tagged[dag_id]
            if over_in := ended.get((dag_id, task.group)):
                dag = replace(dag, has_run=False, over_in=over_in, group=task.group)
            yield KnownPipeline(dag, shown, task.pipeline, next(resync, None), problem)


def each_once(pipelines: Sequence[KnownPipeline]) -> tuple[KnownPipeline, ...]:
    """Leave out the paused DAGs of pipelines that another DAG runs which is not paused.

    So it is with a pair in a DAG of its own, whose folder has a DAG for each edge, too.
    """
    run = {(each.name, each.shown.place) for each in pipelines if not each.dag.is_paused}
    return tuple(
        each
        for each in pipelines
        if not each.dag.is_paused or (each.name, each.shown.place) not in run
    )


def _ended_groups(
    session: Session, groups: Mapping[str, Collection[str]]
) -> dict[tuple[str, str], str]:
    """Return groups all of whose tasks have ended in a run that is under way, with that run."""
    if not groups:
        return {}
    ti = TaskInstance
    query = (
        select(ti.dag_id, ti.run_id, ti.task_id, ti.state)
        .join(DagRun, (DagRun.dag_id == ti.dag_id) & (DagRun.run_id == ti.run_id))
        .where(ti.dag_id.in_(groups), DagRun.state == "running")
    )
    states: dict[tuple[str, str], dict[str, set[str]]] = {}
    for dag_id, run_id, task_id, state in session.execute(query):
        for group in groups[dag_id]:
            if task_id.startswith(f"{group}."):
                runs = states.setdefault((dag_id, group), {})
                runs.setdefault(run_id, set()).add(str(state or ""))
    return {
        of_group: max(runs)
        for of_group, runs in states.items()
        if all(found <= _ENDED for found in runs.values())
    }


def resync_dag_ids(dag_id: str, pipeline: str) -> tuple[str, str]:
    """Return the ids of DAGs that request a resync of a pipeline: its own, and the shared one."""
    return _beside(dag_id, pipeline, "resync"), f"{SHARED}__resync"


def asking_dag_ids(dag_id: str, pipeline: str) -> tuple[str, ...]:
    """Return the ids of the DAGs of a pipeline whose tasks may ask a person."""
    return (dag_id, *(_beside(dag_id, pipeline, kind) for kind in _ASKING), *SHARED_DAGS)


def _beside(dag_id: str, pipeline: str, kind: str) -> str:
    """Return the id of another DAG of a pipeline."""
    return f"{dag_id.removesuffix('__sync') if dag_id.endswith('__sync') else pipeline}__{kind}"


def _tagged(session: Session) -> dict[str, KnownDag]:
    """Return the DAGs with the tag `cdc`, by id."""
    run = exists().where(DagRun.dag_id == DagModel.dag_id)
    unended = run.where(DagRun.state.in_(_UNENDED))
    of_dag = DagModel.dag_id, DagModel.is_paused, DagModel.timetable_summary
    query = (
        select(
            *of_dag,
            DagModel.next_dagrun_create_after,
            unended.label("has_run"),
            run.label("was_run"),
        )
        .join(DagTag, DagTag.dag_id == DagModel.dag_id)
        .where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    )
    return {
        dag_id: KnownDag(
            dag_id,
            bool(paused),
            summary not in _NO_SCHEDULE,
            None if next_run is None else int(next_run.timestamp() * 1e6),
            bool(has_run),
            bool(was_run),
        )
        for dag_id, paused, summary, next_run, has_run, was_run in session.execute(query)
    }


def _hashes(session: Session, dag_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return the hash of each DAG's latest version."""
    model = SerializedDagModel
    latest = (
        select(model.dag_id, func.max(model.created_at).label("made"))
        .where(model.dag_id.in_(dag_ids))
        .group_by(model.dag_id)
        .subquery()
    )
    is_latest = (model.dag_id == latest.c.dag_id) & (model.created_at == latest.c.made)
    query = select(model.dag_id, model.dag_hash).join(latest, is_latest)
    return [(dag_id, dag_hash) for dag_id, dag_hash in session.execute(query)]


def _streaming_tasks(data: Mapping[str, Any]) -> Iterator[_Task]:
    """Yield the streaming tasks of a serialised DAG."""
    for encoded in data.get("dag", {}).get("tasks", ()):
        task = encoded.get("__var", encoded)
        if task.get("task_type") == _STREAMING or "shown" in task:
            path = str(task.get("pipeline", ""))
            shown = ShownPipeline.from_text(str(task.get("shown", "")))
            yield _Task(path, shown, str(task.get("task_id", "")).rpartition(".")[0])


def _from_file(path: str, dag_id: str) -> tuple[ShownPipeline, CdcError | None]:
    """Read what a pipeline's file says, for a DAG that does not describe it."""
    try:
        return ShownPipeline.of(load_pipeline(path).model, path), None
    except CdcError as error:
        return ShownPipeline(dag_id), PipelineFileError(
            f"DAG {dag_id} does not say where the state of its pipeline is kept, and its file "
            f"cannot be read here: {error.what}",
            where=path,
            risk=NOTHING_CHANGED,
            remedy="make the DAG by cdc_dags, sync_dag or sync_group, or give the API server "
            "the pipeline file under the same path",
        )


def _unread(path: str, refused: StoredError) -> CdcError:
    """Return the error for a pipeline whose file could not be read."""
    if refused:
        return refused.read()
    return PipelineFileError(
        "the pipeline file could not be read when its DAG was made, so nobody knows where its "
        "state is kept",
        where=path,
        risk="none: a stream that runs goes on",
        remedy="correct the file; the DAG's documentation says what is wrong with it",
    )
