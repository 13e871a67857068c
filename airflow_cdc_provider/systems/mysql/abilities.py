"""What MySQL and MariaDB can do as a sink."""

from __future__ import annotations

from airflow_cdc_provider.engine.sink.port import SinkAbilities

ABILITIES = SinkAbilities(
    transactional=True,
    upserts=True,
    needs_exact_filter=False,
    takes_native_chunks=True,
    verifiable=True,
    joins=True,
    replaces_rows=True,
    changes_tables=True,
    isolates_tables=True,
    takes_tables_without_key=True,
    has_column_types=True,
    has_defaults=True,
    marks_rows=True,
    shares_tables=True,
    mended_by_hand=True,
)
