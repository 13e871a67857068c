"""Rows of the list: what the state store says of a pipeline, with what Airflow does of its DAG."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from sqlalchemy.orm import Session

from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.views.error_facts import stored_facts
from airflow_cdc_provider.web.guards import is_asked, may_answer
from airflow_cdc_provider.web.known import SHARED_DAGS, KnownPipeline, asking_dag_ids
from airflow_cdc_provider.web.nobody import with_nobody
from airflow_cdc_provider.web.runs import Approval, DagRuns, approvals_of, runs_of
from airflow_cdc_provider.web.standing import Standing, standing_of, with_failed_run

Form = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AirflowSide:
    """What Airflow has of some pipelines: their DAGs' runs, and approvals that a user may see."""

    runs: Mapping[str, DagRuns] = field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()

    @classmethod
    def of(
        cls, session: Session, pipelines: Collection[KnownPipeline], user: GetUserDep
    ) -> AirflowSide:
        """Read runs and approvals of all pipelines from Airflow's database at once."""
        asking = {each for known in pipelines for each in asking_dag_ids(known.dag_id, known.name)}
        found = approvals_of(session, asking)
        seen = {dag_id: may_answer(user, dag_id, method="GET") for dag_id in _dags(found)}
        runs = runs_of(session, {known.dag_id for known in pipelines})
        return cls(runs, tuple(each for each in found if seen[each.dag_id]))

    def runs_of(self, known: KnownPipeline) -> DagRuns:
        """Return the runs of a pipeline's DAG."""
        return self.runs.get(known.dag_id, DagRuns())

    def approvals_of(self, known: KnownPipeline) -> list[Approval]:
        """Return the approvals that wait in the DAGs of a pipeline."""
        asking = asking_dag_ids(known.dag_id, known.name)
        return [
            each
            for each in self.approvals
            if each.dag_id in asking
            and (each.dag_id not in SHARED_DAGS or each.pipeline == known.name)
        ]


def approval_forms(user: GetUserDep, approvals: Collection[Approval]) -> list[Form]:
    """Return waiting approvals as JSON, with whether the user may answer."""
    may = {dag_id: may_answer(user, dag_id) for dag_id in _dags(approvals)}
    return [
        each.to_form(may_answer=may[each.dag_id] and is_asked(user, each.assignees))
        for each in approvals
    ]


def _dags(approvals: Collection[Approval]) -> set[str]:
    """Return the DAGs of some approvals."""
    return {each.dag_id for each in approvals}


def row_of(known: KnownPipeline, row: Form, side: AirflowSide) -> Form:
    """Return a pipeline's row, with its DAG's facts and its overall state."""
    dag, runs, shown = known.dag, side.runs_of(known), known.shown
    form = {
        "dag_id": dag.dag_id,
        "dag_paused": dag.is_paused,
        "dag_has_run": dag.has_run,
        "begins_alone": dag.begins_alone,
        "next_run_us": None if dag.is_paused else dag.next_run_us,
        "run_id": runs.run_id,
        "run_state": runs.state,
        "succeeded_us": runs.succeeded_us,
        "source": shown.source,
        "sink": shown.sink,
        "mode": shown.mode,
        "edge": shown.edge,
        "waiting_approvals": len(side.approvals_of(known)),
        **row,
    }
    if row["problem"] is not None:
        is_broken = bool(shown.refused)
        standing = Standing.BROKEN if is_broken else Standing.UNREADABLE
        return {**form, "state": standing.value}
    form = with_failed_run(with_nobody(form, dag), runs)
    form = {**form, "state": standing_of(form, dag, runs).value}
    return _with_refusal(form, shown.refused, known.name)


def _with_refusal(row: Form, refused: StoredError, name: str) -> Form:
    """Return a row, with the file's error as its first problem if it has one."""
    if not refused:
        return row
    problem = {"table": "", "level": "error", **stored_facts(refused, pipeline=name)}
    return {**row, "problems": [problem, *row["problems"]]}
