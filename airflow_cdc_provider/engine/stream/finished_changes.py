"""Bringing changes of definitions to their end: also those that an owner before began."""

from __future__ import annotations

import logging
from contextlib import closing

from airflow_cdc_provider.columns.sink_port import Sink, SinkLedger
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.engine.requests.unread import ask_for_unread

log = logging.getLogger(__name__)


def finish_changes(
    store: StateStore, sink: Sink, ledger: SinkLedger, name: PipelineName, generation: int
) -> None:
    """Bring changes that were begun to their end, as the pipeline's owner."""
    for change in ledger.open_changes():
        _finish(store, sink, ledger, (name, generation), change)


def _finish(
    store: StateStore,
    sink: Sink,
    ledger: SinkLedger,
    owner: tuple[PipelineName, int],
    change: SchemaChange,
) -> None:
    name, generation = owner
    with closing(sink.open_tables()) as tables:
        tables.change(change)
    table, phase = change.table, TablePhase.CONSISTENT
    if change.rereads:
        _give_up(store, name, table)
        phase = TablePhase.SNAPSHOT
    store.change_plan(name, generation, added=[change.after])
    store.mark_table(name, generation, table, phase)
    stream = ledger.end_change(change)
    store.store_hand_off(name, generation, stream)
    store.tell(name, _told(change), level="warning" if change.rereads else "info")
    log.info("table changed: table=%s rereads=%s", table, change.rereads)
    ask_for_unread(store, name, generation, stream, by="stream")


def _give_up(store: StateStore, name: PipelineName, table: TableId) -> None:
    """Cancel what was asked of a table before it was changed."""
    for request in store.requests(name, only_open=True):
        if table in request.scope.tables:
            store.cancel_request(name, request.request_id)


def _told(change: SchemaChange) -> str:
    text = f"{change.table} was changed at the source, and at the sink: {change.statement}"
    if change.rereads:
        text += f". Its rows are read again: {change.difference.why}"
    return text
