"""Runs of the DAGs that run pipelines, and tasks of theirs that wait for a person's answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.models.dagrun import DagRun  # noqa: TID251 - the API server's own tables
from airflow.models.hitl import HITLDetail  # noqa: TID251
from airflow.models.taskinstance import TaskInstance  # noqa: TID251
from sqlalchemy import func, select
from sqlalchemy.orm import Session

Form = dict[str, Any]
_WAITING = ("awaiting_input", "deferred")
_READ_FIRST = ("failed", "up_for_retry", "running", "deferred", "awaiting_input", "queued")
"""States of a task whose log says why a run is where it is, the first ones first."""


@dataclass(frozen=True, slots=True)
class DagRuns:
    """The newest run of a DAG, and when one last succeeded."""

    run_id: str = ""
    """The newest one's."""
    state: str = ""
    began_us: int | None = None
    succeeded_us: int | None = None
    """When the last one that succeeded ended."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A task that waits until a person approves or rejects."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    body: str
    options: tuple[str, ...]
    since_us: int | None
    assignees: frozenset[str] = frozenset()
    pipeline: str = ""
    """Which its run was told to be about, of a DAG of several pipelines."""

    def to_form(self, *, may_answer: bool) -> Form:
        """Return the approval as JSON."""
        names = ("dag_id", "run_id", "task_id", "map_index", "subject", "body", "since_us")
        form: Form = {name: getattr(self, name) for name in names}
        return {**form, "options": list(self.options), "may_answer": may_answer}


def runs_of(session: Session, dag_ids: Collection[str]) -> Mapping[str, DagRuns]:
    """Return each DAG's newest run, in two queries for all of them."""
    mine = DagRun.dag_id.in_(dag_ids)
    newest = select(func.max(DagRun.id)).where(mine).group_by(DagRun.dag_id)
    latest = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date)
    ended = (
        select(DagRun.dag_id, func.max(DagRun.end_date))
        .where(mine, DagRun.state == "success")
        .group_by(DagRun.dag_id)
    )
    succeeded = {dag_id: _us(at) for dag_id, at in session.execute(ended)}
    return {
        dag_id: DagRuns(run_id, str(state or ""), _us(began), succeeded.get(dag_id))
        for dag_id, run_id, state, began in session.execute(latest.where(DagRun.id.in_(newest)))
    }


def approvals_of(session: Session, dag_ids: Collection[str]) -> tuple[Approval, ...]:
    """Return the tasks of some DAGs that wait for a person, the oldest first."""
    ti = TaskInstance
    query = (
        select(ti.dag_id, ti.run_id, ti.task_id, ti.map_index, HITLDetail, DagRun.conf)
        .join(HITLDetail, HITLDetail.ti_id == ti.id)
        .join(DagRun, (DagRun.dag_id == ti.dag_id) & (DagRun.run_id == ti.run_id))
        .where(ti.dag_id.in_(dag_ids), ti.state.in_(_WAITING), HITLDetail.responded_at.is_(None))
        .order_by(HITLDetail.created_at)
    )
    return tuple(
        Approval(
            dag_id,
            run_id,
            task_id,
            int(map_index),
            str(asked.subject),
            str(asked.body or ""),
            tuple(map(str, asked.options)),
            _us(asked.created_at),
            frozenset(str(each["id"]) for each in asked.assignees or ()),
            str((conf or {}).get("pipeline", "")),
        )
        for dag_id, run_id, task_id, map_index, asked, conf in session.execute(query)
    )


def task_to_read(session: Session, dag_id: str, run_id: str) -> Form | None:
    """Return the task of a run whose log is worth reading: one that failed, or runs."""
    ti = TaskInstance
    query = select(ti.task_id, ti.map_index, ti.state, ti.try_number).where(
        ti.dag_id == dag_id, ti.run_id == run_id, ti.state.in_(_READ_FIRST)
    )
    found = sorted(session.execute(query), key=lambda row: _READ_FIRST.index(str(row.state)))
    if not found:
        return None
    first = found[0]
    return {"task_id": first.task_id, "map_index": first.map_index, "state": str(first.state)}


def _us(moment: datetime | None) -> int | None:
    """Return a time in microseconds since the epoch."""
    return None if moment is None else int(moment.timestamp() * 1e6)
