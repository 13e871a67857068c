"""Waiting for a request, and doing it here where nobody is at work."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import status_of
from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.carrying_out import carry_out
from airflow_cdc_provider.pipeline.steps.range_requests import wait_for
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.request_text import standing_text


def wait_until_done(run: Run, asked: Request, screen: Screen) -> Request:
    """Return the request once it is done, or raise its error; carry it out without an owner."""
    last = ""

    def tick(request: Request) -> None:
        nonlocal last
        line = f"{request.request_id}: {standing_text(request)}"
        if line != last:
            screen.say(line)
        last = line

    def work() -> None:
        carry_out(run, on_tick=lambda: screen.progress(lambda: status_of(run)))

    return wait_for(run, asked.request_id, work, on_tick=tick)
