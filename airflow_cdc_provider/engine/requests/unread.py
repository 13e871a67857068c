"""Asking for the rows of tables that the ledger calls unread: added, begun again, or changed."""

from __future__ import annotations

import uuid

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.requests import Request, RequestKind, Scope
from airflow_cdc_provider.core.stream_split import StreamSplit


def ask_for_unread(
    store: StateStore, name: PipelineName, generation: int, stream: StreamSplit, *, by: str
) -> None:
    """Ask for the rows of tables that the ledger calls unread, unless that is asked already.

    Each table by itself: one that cannot be read does not keep the others from being read.
    """
    if not stream.unread:
        return
    asked = {
        table
        for request in store.requests(name, only_open=True)
        if request.kind is RequestKind.ADD and not request.is_cancel_wanted
        for table in request.scope.tables
    }
    for table in (table for table in stream.unread if table not in asked):
        store.mark_table(name, generation, table, TablePhase.SNAPSHOT)
        _ask(store, name, table, by)


def _ask(store: StateStore, name: PipelineName, table: TableId, by: str) -> None:
    """Store a request to read a new table's rows, and record it among the events."""
    request_id = f"add-{uuid.uuid4().hex[:8]}"
    store.ask(Request(name, request_id, RequestKind.ADD, Scope((table,)), by, store.now_us()))
    store.tell(name, f"{table} will be read beside the stream: request {request_id}")
