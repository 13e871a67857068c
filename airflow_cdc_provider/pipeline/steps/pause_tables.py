"""Pause and resume single tables: each is a request, which the pipeline's owner carries out.

Whoever is at work begins again from the ledger for it, which takes a second or two; where nobody
is, the next run does it as it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, TablePhase
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.edges import require_edge_does
from airflow_cdc_provider.pipeline.steps.range_requests import is_at_work, this_person
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.state.asking import ask_about_tables

_POLL_S = 0.5
_BEING_READ = frozenset(
    {TablePhase.PLANNED, TablePhase.SNAPSHOT, TablePhase.READ, TablePhase.CHANGED}
)


def pause_tables(run: Run, tables: Collection[TableId]) -> Request:
    """Request that the stream isolates tables at their position."""
    require_edge_does(run, RequestKind.PAUSE)
    phases = _phases(run, tables)
    flowing = {table for table, phase in phases.items() if phase not in LEFT_ALONE}
    if not flowing - set(tables):
        raise _refused("no table would be left in the stream", "pause the pipeline, without tables")
    return ask_about_tables(run.store, run.name, RequestKind.PAUSE, tables, by=this_person())


def resume_tables(run: Run, tables: Collection[TableId]) -> Request:
    """Request that isolated tables come back to the stream: by the log, or read again."""
    require_edge_does(run, RequestKind.RESUME)
    phases = _phases(run, tables)
    for table in tables:
        if phases[table] not in LEFT_ALONE and not _is_being_paused(run, table):
            now = "being read" if phases[table] in _BEING_READ else "not stopped"
            raise _refused(f"{table} is {now}, and needs no `resume`", "leave it out")
    return ask_about_tables(run.store, run.name, RequestKind.RESUME, tables, by=this_person())


def outcome_of(
    run: Run, request: Request, *, wait_s: float = 0.0, on_tick: Callable[[], None] = lambda: None
) -> str:
    """Wait for a request if a process owns the pipeline, and describe its result."""
    deadline = time.monotonic() + wait_s
    while (found := run.store.request(run.name, request.request_id)) and found.status.is_open:
        if not is_at_work(run):
            return f"{_text(found)}: asked; nobody is at work, and the next run does it"
        if time.monotonic() >= deadline:
            waits = f", {found.error}" if found.error else ""
            return f"{_text(found)}: asked, and not done yet{waits}; `requests` shows it"
        on_tick()
        time.sleep(_POLL_S)
    if found is None or found.status is not RequestStatus.DONE:
        why = "it was cancelled or dropped" if found is None or not found.error else found.error
        raise _refused(f"{_text(request)}: not done; {why}", "see `status`, and ask again")
    return f"{_text(found)}: done"


def _text(request: Request) -> str:
    """Describe a request: its kind and tables."""
    return f"{request.kind.value} {', '.join(map(str, request.scope.tables))}"


def _phases(run: Run, tables: Collection[TableId]) -> dict[TableId, TablePhase]:
    """Return the tables' phases; refuse what cannot be paused or resumed."""
    if not run.store.is_handed_off(run.name):
        raise _refused(
            f"{run.name} has no stream yet, and its tables are read together",
            "`run` it to the end of its snapshot first",
        )
    if not sink_of(run).abilities.isolates_tables:
        raise _refused(
            f"a sink of type {run.model.sink.type} keeps all tables at one position",
            "pause or resume the pipeline, without tables",
        )
    phases = {state.table: state.phase for state in run.store.tables(run.name)}
    for table in tables:
        if table not in phases:
            raise _refused(f"{table} is not copied", "name a table as the source spells it")
    return phases


def _is_being_paused(run: Run, table: TableId) -> bool:
    """Tell whether an open request pauses the table."""
    open_ones = run.store.requests(run.name, only_open=True)
    return any(
        request.kind is RequestKind.PAUSE and table in request.scope.tables for request in open_ones
    )


def _refused(what: str, remedy: str) -> RefusedError:
    """Return the error for tables that cannot be paused or resumed."""
    return RefusedError(what, where="--table", risk=NOTHING_CHANGED, remedy=remedy)
