"""What the page asks for, and what it asks of others: wishes and requests, nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, status
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    RefusedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.core.spark_place import SparkPlace
from airflow_cdc_provider.links.spark import spark_url
from airflow_cdc_provider.state.asking import ask_about_tables
from airflow_cdc_provider.state.desired_state import want, what_of
from airflow_cdc_provider.state.store import SqlStateStore
from airflow_cdc_provider.state.throttling import wish_throttle
from airflow_cdc_provider.views.page import (
    job_log_form,
    list_row,
    pipeline_form,
    sample_forms,
    unseen_row,
)
from airflow_cdc_provider.views.request_text import request_form
from airflow_cdc_provider.web.guards import (
    READS_DAG,
    READS_LOGS,
    may_read_logs,
    may_run,
    readable_dags,
    writes,
)
from airflow_cdc_provider.web.job_log import log_text, with_place
from airflow_cdc_provider.web.known import (
    KnownPipeline,
    KnownPipelines,
    each_once,
    resync_dag_ids,
)
from airflow_cdc_provider.web.new_pipeline import add_routes
from airflow_cdc_provider.web.rows import AirflowSide, approval_forms, row_of
from airflow_cdc_provider.web.runs import task_to_read
from airflow_cdc_provider.web.stores import OpenStores

Form = dict[str, Any]
_ONE = "/pipelines/{dag_id}/{pipeline}"
_DAY_US = 24 * 3600 * 1_000_000
_EVENTS = 100
_MOST_TABLES = 1000
_NO_JOB = "no job was started: the task did the work itself, see its log"
_ELSEWHERE = "the newest job's log is not on this machine"
_KNOWN = KnownPipelines()
_STORES = OpenStores()


class Nothing(BaseModel):
    """The request's body: empty."""

    model_config = ConfigDict(extra="forbid")


class Wish(BaseModel):
    """The request's body: what a person wants of a pipeline."""

    model_config = ConfigDict(extra="forbid")
    wanted: Literal["run", "stop", "restart"]


class Change(BaseModel):
    """The request's body: tables, and what is to be done with them."""

    model_config = ConfigDict(extra="forbid")
    change: Literal["pause", "resume", "add", "remove", "reset"]
    tables: Annotated[list[str], Field(min_length=1, max_length=_MOST_TABLES)]


Limit = Annotated[float, Field(gt=0, lt=1e12)] | None


class Limits(BaseModel):
    """The request's body: limits of how fast rows are read; null takes one away."""

    model_config = ConfigDict(extra="forbid")
    rows_per_second: Limit = None
    mb_per_second: Limit = None
    max_threads_running: Limit = None
    critical_threads_running: Limit = None
    max_replica_lag_s: Limit = None


class ThrottleChange(BaseModel):
    """The request's body: the limits that are to be others; none: those of the file hold again."""

    model_config = ConfigDict(extra="forbid")
    changes: Limits


_KINDS = {
    "pause": RequestKind.PAUSE,
    "resume": RequestKind.RESUME,
    "add": RequestKind.FOLLOW,
    "remove": RequestKind.REMOVE,
    "reset": RequestKind.RESET,
}


def known_pipeline(dag_id: str, pipeline: str, session: SessionDep) -> KnownPipeline:
    """Return the pipeline that a URL names; the user's access to its DAG is checked before."""
    for each in _KNOWN.find(session, {dag_id, *resync_dag_ids(dag_id, pipeline)}):
        if (each.dag_id, each.name) == (dag_id, pipeline):
            return each
    raise HTTPException(status.HTTP_404_NOT_FOUND, f"DAG {dag_id} runs no pipeline {pipeline}")


Known = Annotated[KnownPipeline, Depends(known_pipeline)]
Readable = Annotated[set[str], Depends(readable_dags)]


def routes() -> APIRouter:
    """Return the page's routes; they need permission to read, or to run, the pipeline's DAG."""
    router = APIRouter()
    router.get("/pipelines")(every_pipeline)
    router.get(_ONE, dependencies=[READS_DAG])(one_pipeline)
    router.get(f"{_ONE}/samples", dependencies=[READS_DAG])(samples)
    router.get(f"{_ONE}/job_log", dependencies=[READS_LOGS])(job_log)
    router.post(f"{_ONE}/wanted", dependencies=writes("cdc_want"))(wanted)
    router.post(f"{_ONE}/tables", dependencies=writes("cdc_change_tables"))(change_tables)
    router.post(f"{_ONE}/throttle", dependencies=writes("cdc_throttle"))(throttle)
    request = f"{_ONE}/requests/{{request_id}}"
    router.post(f"{request}/cancel", dependencies=writes("cdc_cancel_request"))(cancel)
    router.post(f"{request}/approve", dependencies=writes("cdc_approve_request"))(approve)
    add_routes(router)
    return router


def every_pipeline(session: SessionDep, readable: Readable, user: GetUserDep) -> Form:
    """Return a row for each pipeline that the user may read."""
    pipelines = each_once(_KNOWN.find(session, readable))
    side = AirflowSide.of(session, pipelines, user)
    of_stores: dict[SqlStateStore, list[KnownPipeline]] = {}
    rows: list[Form] = []
    for known in pipelines:
        try:
            of_stores.setdefault(_looked_at(known), []).append(known)
        except CdcError as error:
            rows.append(row_of(known, unseen_row(known.name, error), side))
    for store, those in of_stores.items():
        rows += _rows(store, those, side)
    return {"pipelines": sorted(rows, key=lambda row: (row["pipeline"], row["dag_id"]))}


def _rows(store: SqlStateStore, pipelines: list[KnownPipeline], side: AirflowSide) -> list[Form]:
    """Return the rows of the pipelines in one state store, by one read of it."""
    now_us = store.now_us()
    names = [PipelineName(known.name) for known in pipelines]
    try:
        found = {str(each.name): each for each in store.overviews(names, now_us)}
    except CdcError as error:
        return [row_of(known, unseen_row(known.name, error), side) for known in pipelines]
    return [
        row_of(known, list_row(known.name, found.get(known.name), now_us, _target(known)), side)
        for known in pipelines
    ]


def _target(known: KnownPipeline) -> int | None:
    """Return the age that the pipeline's copy may have, in seconds."""
    return known.shown.freshness_s or None


def one_pipeline(known: Known, session: SessionDep, user: GetUserDep) -> Form:
    """Return all that the page shows of one pipeline, except its samples."""
    store, side = _looked_at(known), AirflowSide.of(session, [known], user)
    form = pipeline_form(
        store,
        PipelineName(known.name),
        now_us=store.now_us(),
        events=_EVENTS,
        freshness_s=_target(known),
    )
    row = row_of(known, form, side)
    return {
        **row,
        "file": known.file,
        "file_throttle": {
            "limits": known.shown.file_throttle[0].to_json(),
            "has_replicas": known.shown.file_throttle[1],
        },
        "opposite": _opposite(known, session, user),
        "approvals": approval_forms(user, side.approvals_of(known)),
        "task": task_to_read(session, known.dag_id, row["run_id"]),
        "spark": _spark(row),
        "job_log": with_place(
            row["job_log"], known.name, may_read=may_read_logs(user, known.dag_id)
        ),
        "resync_dag": known.resync_dag,
        "may_write": may_run(user, known.dag_id),
        "may_resync": known.resync_dag is not None
        and known.shown.reads_rows_again
        and may_run(user, known.resync_dag),
        "changes": [each for each, kind in _KINDS.items() if not known.shown.refusal_of(kind)],
    }


def _opposite(known: KnownPipeline, session: SessionDep, user: GetUserDep) -> list[Form]:
    """Return the pipelines that bring changes back over an edge, of those a user may read."""
    mine = known.shown
    if mine.edge is None:
        return []
    back = (mine.topology, mine.dst_node, mine.src_node)
    return [
        {"dag_id": each.dag_id, "pipeline": each.name}
        for each in each_once(_KNOWN.find(session, readable_dags(user)))
        if (each.shown.topology, each.shown.src_node, each.shown.dst_node) == back
    ]


def _spark(row: Form) -> Form | None:
    """Return where the pipeline's Spark UI or its history is."""
    told = row["spark"]
    if told is None:
        return None
    place = SparkPlace(told["application"], told["generation"], told["ui"] if row["owner"] else "")
    url = spark_url(place)
    return {"application": place.application, "url": url} if url.startswith("http") else None


def samples(known: Known) -> Form:
    """Return the samples of lag, changes and rows of the last day."""
    store = _looked_at(known)
    since_us = store.now_us() - _DAY_US
    return {"samples": sample_forms(store.samples(PipelineName(known.name), since_us))}


def job_log(known: Known) -> PlainTextResponse:
    """Return the end of the newest job's log as text."""
    store, name = _looked_at(known), PipelineName(known.name)
    state = store.pipeline(name)
    if state is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{name} has not run yet")
    generation = state.generation
    told = job_log_form(store.job_events(name, generation), generation)
    text = log_text(told, known.name)
    if text is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, _NO_JOB if told is None else _ELSEWHERE)
    return PlainTextResponse(text)


def wanted(known: Known, wish: Wish, user: GetUserDep) -> Form:
    """Store that a pipeline is to run, to stop, or to begin again.

    No run is begun here. Of a pipeline that failed the answer says so, and what begins one.
    """
    store, name = _store(known), PipelineName(known.name)
    now = want(store, name, Wanted(wish.wanted), by=_person(user))
    state = store.ensure(name)
    if now is not Wanted.RUN or state.phase is not Phase.FAILED:
        return {"wanted": now.value}
    first = f"switch the DAG {known.dag_id} on, then " if known.dag.is_paused else ""
    return {
        "wanted": now.value,
        "what": f"{name} has failed, and stays so until a run begins: {what_of(state.error)}",
        "remedy": f"{first}begin a run of the DAG {known.dag_id}, which tries it again",
    }


def change_tables(known: Known, wish: Change, user: GetUserDep) -> Form:
    """Store a request to pause, resume, add, remove or reset tables."""
    store, name = _store(known), PipelineName(known.name)
    if refused := known.shown.refusal_of(_KINDS[wish.change]):
        raise refused
    is_planned = bool(store.ensure(name).plan_id)
    if not (store.is_handed_off(name) or (wish.change == "remove" and is_planned)):
        raise RefusedError(
            f"{name} has no stream yet: its tables are read together",
            where=f"state of {name}",
            risk=NOTHING_CHANGED,
            remedy="let its snapshot end first; `remove` alone leaves a table out of it",
        )
    try:
        tables = [TableId.parse(text) for text in wish.tables]
    except ValueError as error:
        raise RefusedError(
            str(error), where="tables", risk=NOTHING_CHANGED, remedy="write database.table"
        ) from None
    asked = ask_about_tables(store, name, _KINDS[wish.change], tables, by=_person(user))
    store.tell(name, f"request {asked.request_id}: {wish.change} {asked.scope}, by {_person(user)}")
    return request_form(asked)


def throttle(known: Known, wish: ThrottleChange, user: GetUserDep) -> Form:
    """Store how fast rows may be read, in place of what the file says."""
    store, name = _store(known), PipelineName(known.name)
    found = wish_throttle(
        store,
        name,
        wish.changes.model_dump(exclude_unset=True),
        file=known.shown.file_throttle,
        by=_person(user),
    )
    return {
        "limits": found.limits.to_json(),
        "limits_text": str(found.limits),
        "origin": found.origin,
    }


def cancel(known: Known, request_id: str, _body: Nothing, user: GetUserDep) -> Form:
    """Cancel a request."""
    store, name = _store(known), PipelineName(known.name)
    cancelled = store.cancel_request(name, request_id)
    if not (cancelled.status.is_open or cancelled.status is RequestStatus.CANCELLED):
        raise StateMovedError(
            f"request {request_id} is {cancelled.status.value}: there is nothing to cancel",
            where=f"requests of {name}",
            risk=NOTHING_CHANGED,
            remedy="nothing; look at the requests again",
        )
    store.tell(name, f"request {request_id} to be cancelled, by {_person(user)}")
    return request_form(cancelled)


def approve(known: Known, request_id: str, _body: Nothing, user: GetUserDep) -> Form:
    """Approve a request that waits for approval."""
    store, name = _store(known), PipelineName(known.name)
    approved = store.approve_request(name, request_id)
    store.tell(name, f"request {request_id} approved by {_person(user)}")
    return request_form(approved)


def _looked_at(known: KnownPipeline) -> SqlStateStore:
    """Return the state store to read; an empty one if the pipeline never ran."""
    if known.problem is not None:
        raise known.problem
    return _STORES.of(known.shown.place, was_run=known.dag.was_run)


def _store(known: KnownPipeline) -> SqlStateStore:
    """Return the state store to write."""
    if known.problem is not None:
        raise known.problem
    return _STORES.of(known.shown.place)


def _person(user: GetUserDep) -> str:
    """Return the name by which a user is recorded."""
    return f"{user.get_name()} in Airflow"
