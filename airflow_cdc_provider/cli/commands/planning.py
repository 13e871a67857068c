"""Plan: what `run` would do, without changing anything."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, looked_at
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import plan_form, plan_lines


def plan(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `plan`: show what `run` would do."""
    with looked_at(options, lookup, screen) as run:
        found = preview(run)
        form = plan_form(found, run.model)
    screen.result(form, plan_lines(form))
    found.report.require_fit()
    return True
