"""The settings of a job's readers, made here alone."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc_provider.columns.source_port import LogReading, SplitReading
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.core.table_schema import TableSchema

STREAM = 0
"""The number of the stream's own reader of the log."""


def log_reading(
    spec: JobSpec, schemas: Mapping[TableId, TableSchema], *, reader: int = STREAM
) -> LogReading:
    """Return the settings of a reader of the log; on an edge it leaves out by origin."""
    edge = spec.edge
    return LogReading(
        schemas,
        reader,
        spec.max_batch_changes,
        spec.source_options,
        origins=None if edge is None else edge.origins(),
        opposite=edge.opposite().name_in_ledger if edge is not None and edge.is_guarded else "",
    )


def split_reading(
    spec: JobSpec, schemas: Mapping[TableId, TableSchema], *, reader: int, backfill: bool
) -> SplitReading:
    """Return the settings of one of the readers of splits, which are numbered from 0."""
    return SplitReading(
        schemas, STREAM + 1 + reader, backfill, spec.max_split_bytes, spec.source_options
    )
