"""Verify: source and sink compared, both ways."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, looked_at, table_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps.verifying import verify as verify_step
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import verify_form, verify_lines


def verify(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Compare source and sink, both ways."""
    tables = (table_of(options.table),) if options.table else None
    with looked_at(options, lookup, screen) as run:
        report = verify_step(run, tables=tables, settle_s=options.settle_s)
    screen.result(verify_form(run.name, report), verify_lines(report))
    return report.equal
