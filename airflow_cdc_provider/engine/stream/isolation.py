"""Having the stream leave a table alone, for an error that only it has."""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stopped_tables import stops_alone
from airflow_cdc_provider.engine.ledger.ledger import Ledger


def stopped_by(ledger: Ledger, error: CdcError) -> tuple[TableId, ...]:
    """Return the stream's tables that an error is about; none if no other table would flow."""
    stream = ledger.stream()
    flowing = () if stream is None else tuple(each.table for each in stream.tables)
    return stops_alone(error, flowing)


def stopped_text(tables: Collection[TableId], error: CdcError) -> str:
    """Return the message that tables were stopped, and why."""
    return f"{', '.join(map(str, tables))}: stopped, and the other tables flow on; {error}"
