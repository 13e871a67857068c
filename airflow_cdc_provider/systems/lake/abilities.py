"""What a lake's tables of changes can do as a sink."""

from __future__ import annotations

from airflow_cdc_provider.engine.sink.port import SinkAbilities

ABILITIES = SinkAbilities(
    transactional=True,
    upserts=False,
    needs_exact_filter=False,
    takes_native_chunks=False,
    verifiable=True,
    joins=True,
    replaces_rows=True,
    knows_all_orders=False,
    changes_tables=True,
    isolates_tables=True,
    keeps_columns=True,
)
