"""Bringing changes of definitions to their end: also those that an owner before began."""

from __future__ import annotations

import logging
from contextlib import closing

from airflow_cdc_provider.core.errors import CdcError, RetryableError, only_of
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.sink.port import Sink
from airflow_cdc_provider.engine.stream.dropped_tables import finish_removal

log = logging.getLogger(__name__)


def finish_changes(
    store: StateStore, sink: Sink, ledger: Ledger, name: PipelineName, generation: int
) -> None:
    """Finish schema changes that were begun, as the pipeline's owner."""
    stream: StreamSplit | None = None
    for change in ledger.open_changes():
        stream = _finish(store, sink, ledger, (name, generation), change)
    if stream is not None:
        ask_for_unread(store, name, generation, stream, by="stream")


def finish_what_can_be(
    store: StateStore, sink: Sink, ledger: Ledger, name: PipelineName, generation: int
) -> None:
    """Finish schema changes before a stream begins; leave errors of one table to the stream."""
    try:
        finish_changes(store, sink, ledger, name, generation)
    except CdcError as error:
        if not error.tables or isinstance(error, RetryableError):
            raise
        log.warning("a change is left to the stream: cause=%s", error)


def _finish(
    store: StateStore,
    sink: Sink,
    ledger: Ledger,
    owner: tuple[PipelineName, int],
    change: SchemaChange,
) -> StreamSplit:
    """Apply one schema change to the sink, the plan and the ledger; return the stream then."""
    name, generation = owner
    table, phase = change.table, TablePhase.CONSISTENT
    if change.leaves:
        _give_up(store, name, table, kinds=frozenset(RequestKind))
        return finish_removal(store, sink, ledger, generation, change)
    with closing(sink.open_tables()) as tables, only_of(table):
        tables.change(change)
    if change.rereads:
        # these would call rows read that were read before; others go on with the new definition
        _give_up(store, name, table, kinds=frozenset({RequestKind.ADD}))
        phase = TablePhase.SNAPSHOT
        store.change_plan(name, generation, added=[change.after])
    else:
        store.change_plan(name, generation, changed=[change.after])
    store.mark_table(name, generation, table, phase)
    stream = ledger.end_change(change)
    store.store_hand_off(name, generation, stream)
    store.tell(name, _told(change), level="warning" if change.rereads else "info")
    log.info("table changed: table=%s rereads=%s", table, change.rereads)
    return stream


def _give_up(
    store: StateStore, name: PipelineName, table: TableId, *, kinds: frozenset[RequestKind]
) -> None:
    """Cancel the open requests of a table that were made before it changed."""
    for request in store.requests(name, only_open=True):
        if request.kind in kinds and table in request.scope.tables:
            store.cancel_request(name, request.request_id)


def _told(change: SchemaChange) -> str:
    """Return the event text of a schema change."""
    at_sink = "" if change.leaves_sink_alone else ", and at the sink"
    text = f"{change.table} was changed at the source{at_sink}"
    if change.statement:  # else nothing but the log's columns told of it
        text += f": {change.statement}"
    if change.after.schema.ignored:
        text += f". Left out at the sink: {', '.join(sorted(change.after.schema.ignored))}"
    if change.rereads:
        text += f". Its rows are read again: {change.difference.why}"
        if flag := change.after.shape.deleted_flag:
            text += (
                f". Rows marked in {flag} stay, and lose values that their new types do not have"
            )
    return text
