"""Telling of tables that the file picks, as soon as the log says that they came at the source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_picks import came
from airflow_cdc_provider.engine.job import Job


def announce_new_tables(job: Job, tables: Sequence[TableId]) -> None:
    """Record an event for each new source table that the file picks and the plan lacks."""
    planned = {plan.schema.table for plan in job.plans()}
    with suppress(CdcError):  # they are looked for now and then, too
        for table in dict.fromkeys(tables):
            if table in job.spec.picks and table not in planned:
                job.store.tell(job.spec.pipeline, came(table))
