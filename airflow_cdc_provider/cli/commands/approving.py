"""Approve: a request that waits for somebody's word may begin."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, opened
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps import range_requests as steps
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.request_text import request_form, request_line


def approve(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `approve`: let a request begin that waits for approval."""
    with opened(options, lookup, screen) as run:
        found = steps.approve(run, options.id)
        screen.say(f"request {found.request_id}: {steps.who_carries_out(run, found)}")
        screen.result(
            {"pipeline": str(run.name), "request": request_form(found)}, [request_line(found)]
        )
    return True
