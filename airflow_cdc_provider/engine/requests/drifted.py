"""Asking for the rows of tables that somebody changed at the sink: they may be wrong by now."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.requests import Request, RequestKind, Scope
from airflow_cdc_provider.core.topology import Topology


def ask_for_drifted(
    store: StateStore, name: PipelineName, tables: Collection[TableId], *, edge: Topology | None
) -> None:
    """Ask for a resync of tables that changed at the sink, unless one is asked for already.

    Nothing is asked of an edge: it reads no rows again.
    """
    if edge is not None:
        return
    asked = {
        table
        for request in store.requests(name, only_open=True)
        if request.status.is_to_do
        and request.kind.reads_rows
        and not (request.is_cancel_wanted or request.scope.ranges or request.scope.chosen)
        for table in request.scope.tables
    }
    for table in (table for table in tables if table not in asked):
        request_id, scope = f"resync-{uuid.uuid4().hex[:8]}", Scope((table,))
        store.ask(Request(name, request_id, RequestKind.RESYNC, scope, "stream", store.now_us()))
        text = f"{table} was changed at the sink, and is to be read again: request {request_id}"
        store.tell(name, text, level="warning")
