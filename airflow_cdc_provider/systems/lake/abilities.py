"""What a lake's tables of changes can do as a sink, and those of current rows."""

from __future__ import annotations

from dataclasses import replace

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
    takes_tables_without_key=True,
    split_bytes=24 * 1024 * 1024,
    lays_out_files=True,
    shares_tables=True,
)
"""Of tables whose rows are changes."""
MIRRORED = replace(ABILITIES, takes_tables_without_key=False, marks_rows=True, split_bytes=0)
"""Of tables that hold the current rows, which are found by their keys."""
