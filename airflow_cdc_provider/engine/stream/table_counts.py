"""What the stream has changed in each of its tables, as the sink's ledger has it."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.row_counts import NO_ROWS, TableCounts
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger


def count_tables(ledger: Ledger, stream: StreamSplit) -> Mapping[TableId, TableCounts]:
    """Return the counts of changes of the stream's tables, including those without any."""
    changed, unchanged = ledger.table_changes(), TableCounts(NO_ROWS, 0)
    return {
        progress.table: TableCounts(count.rows, count.changed_us)
        if (count := changed.get(progress.table)) is not None
        else unchanged
        for progress in stream.tables
    }
