"""Requests and cancel: what was asked of a pipeline, from the state store alone."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, looked_at, opened
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.request_text import Form, in_order, request_form, request_line


def requests(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `requests`: list a pipeline's requests."""
    with looked_at(options, lookup, screen) as run:
        found = in_order(run.store.requests(run.name))
    form: Form = {"pipeline": str(run.name), "requests": [request_form(each) for each in found]}
    screen.result(form, [request_line(each) for each in found] or ["nothing was asked"])
    return True


def cancel(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `cancel`: cancel a request."""
    with opened(options, lookup, screen) as run:
        found = run.store.cancel_request(run.name, options.id)
        screen.result(
            {"pipeline": str(run.name), "request": request_form(found)}, [request_line(found)]
        )
    return True
