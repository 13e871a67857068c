"""Having the stream leave a table alone, for an error that only it has."""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc_provider.core.errors import CdcError, SinkTableChangedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.stopped_tables import stops_alone
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.engine.ledger.ledger import Ledger


def stopped_by(ledger: Ledger, error: CdcError, *, or_all: bool = False) -> tuple[TableId, ...]:
    """Return the stream's tables that an error is about; none if no other table would flow.

    With `or_all` all may stand still, as where a node of a topology is ahead of the log: a table
    whose definition was changed at both comes back by the log.
    """
    stream = ledger.stream()
    flowing = () if stream is None else tuple(each.table for each in stream.tables)
    return stops_alone(error, flowing, or_all=or_all)


def stopped_text(tables: Collection[TableId], error: CdcError) -> str:
    """Return the message that tables were stopped, and why."""
    return f"{', '.join(map(str, tables))}: stopped, and the other tables flow on; {error}"


def mark_drifted(store: StateStore, name: PipelineName, generation: int, error: CdcError) -> None:
    """Mark tables as failed that are gone or changed at the sink, by what an error says.

    The stream marks them as consistent again when it flows.
    """
    if isinstance(error, SinkTableChangedError):
        for table in store.tables(name):
            if str(table.table) in error.tables:
                failed = TablePhase.FAILED
                store.mark_table(name, generation, table.table, failed, StoredError.of(error))
