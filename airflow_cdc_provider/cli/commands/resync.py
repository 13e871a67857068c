"""Resync: rows that are there, or should be, are read again while their tables flow on."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, confirm, opened
from airflow_cdc_provider.cli.commands.waiting import wait_until_done
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.requests import RequestStatus, Scope
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import range_requests as steps
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.request_text import (
    Form,
    estimate_form,
    estimate_lines,
    request_form,
    request_line,
)


def resync(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `resync`: request rows to be read again, while their tables flow on."""
    with opened(options, lookup, screen) as run:
        scope = steps.resync_scope(
            run,
            options.table or (),
            from_key=options.from_key,
            to_key=options.to_key,
            where=options.where,
        )
        _ask(options, run, scope, screen)
    return True


def backfill(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `backfill`: request rows of a column's interval to be read again."""
    with opened(options, lookup, screen) as run:
        wanted = {"--table": options.table, "--column": options.column}
        lacking = [option for option, value in wanted.items() if not value]
        if lacking:
            raise RefusedError(
                f"a backfill needs {', '.join(lacking)}",
                risk=NOTHING_CHANGED,
                remedy="name the table and the column; --from, --to or both say which values",
            )
        scope = backfill_scope(
            run, options.table, options.column, start=options.start, end=options.end
        )
        _ask(options, run, scope, screen)
    return True


def _ask(options: Options, run: Run, scope: Scope, screen: Screen) -> None:
    """Estimate a request, ask for confirmation, store the request, and wait if wanted."""
    found = estimate(run, scope)
    for line in estimate_lines(found):
        screen.say(line)
    form: Form = {"pipeline": str(run.name), "estimate": estimate_form(found)}
    if options.dry_run:
        screen.result({**form, "request": None}, ["nothing was asked"])
        return
    confirm(options, screen, _question(options, run, scope))
    asked = steps.ask_resync(run, scope, request_id=options.id, estimated=found)
    told = steps.who_carries_out(run, asked)
    if options.wait and asked.status is not RequestStatus.WAITING:
        told = "waiting for it"
    screen.say(f"request {asked.request_id}: {told}")
    if options.wait:
        asked = wait_until_done(run, asked, screen)
    screen.result({**form, "request": request_form(asked)}, [request_line(asked)])


def _question(options: Options, run: Run, scope: Scope) -> str:
    """Return the question that confirms a resync."""
    what = str(scope) if options.table else f"all {len(scope.tables)} tables of {run.name}"
    return f"Read {what} again, while the stream goes on?"
