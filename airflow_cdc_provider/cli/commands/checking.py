"""Check: what the servers say, without changing anything."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, looked_at
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps.checking import check as check_step
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import check_lines


def check(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `check`: check file, source and sink, and show the findings."""
    with looked_at(options, lookup, screen) as run:
        report = check_step(run)
    screen.result(report.to_json(), check_lines(report))
    report.require_fit()
    return True
