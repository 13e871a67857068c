"""What a person does about tables that the stream does not follow, by what their sink can do."""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.engine.sink.port import SinkAbilities


def to_begin_again(
    tables: Collection[TableId], abilities: SinkAbilities, *, by_hand: str = ""
) -> str:
    """Return how tables begin again; `by_hand` is what is done to the sink's tables before."""
    first = f"{by_hand}; then " if by_hand and abilities.mended_by_hand else ""
    if not abilities.joins:
        return f"{first}`reset` the pipeline: the next run reads all tables again"
    named = " ".join(table_option(table) for table in tables)
    return f"{first}`reset` it with {named}: only that is read again"
