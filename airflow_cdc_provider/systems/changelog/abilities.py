"""What a change log can do as a sink."""

from __future__ import annotations

from airflow_cdc_provider.engine.sink.port import SinkAbilities

ABILITIES = SinkAbilities(
    transactional=True,
    upserts=False,
    needs_exact_filter=True,
    takes_native_chunks=False,
    verifiable=False,
    joins=True,
    changes_tables=True,
    isolates_tables=True,
    takes_tables_without_key=True,
    facts=("file", "pos", "row", "server_id", "thread"),
)
