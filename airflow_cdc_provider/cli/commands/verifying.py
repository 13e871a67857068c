"""Verify: source and sink compared, both ways, and what differs read again if that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_cdc_provider.cli.commands.opening import (
    Options,
    confirm,
    looked_at,
    opened,
    status_of,
    table_of,
)
from airflow_cdc_provider.cli.commands.waiting import wait_until_done
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.range_requests import resync_scope, who_carries_out
from airflow_cdc_provider.pipeline.steps.repairing import Repair, ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up
from airflow_cdc_provider.pipeline.steps.verify_budget import Budget
from airflow_cdc_provider.pipeline.steps.verifying import verify as verify_step
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import Mending, repair_line, verify_form, verify_lines
from airflow_cdc_provider.views.request_text import request_form, request_line


def verify(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `verify`: compare source and sink, and repair if wanted."""
    if options.repair:
        with opened(options, lookup, screen) as run:
            return _repaired(options, run, screen)
    if options.yes or options.wait:
        raise RefusedError(
            "--yes and --wait are about a repair, and none is asked for",
            risk=NOTHING_CHANGED,
            remedy="add --repair, or leave them out",
        )
    tables = tuple(map(table_of, dict.fromkeys(options.table or ()))) or None
    with looked_at(options, lookup, screen) as run:
        report = verify_step(
            run,
            tables=tables,
            settle_s=options.settle_s,
            values=options.values,
            budget=_budget(options),
        )
    screen.result(verify_form(run.name, report), verify_lines(report, _mending(run)))
    return report.equal


def _mending(run: Run) -> Mending:
    """Return what makes a table of the pipeline equal again."""
    if not sink_of(run).abilities.replaces_rows:
        return Mending.RESET
    edge = run.model.edge
    return Mending.RESYNC if edge is None or edge.reads_rows_again else Mending.BY_HAND


def _repaired(options: Options, run: Run, screen: Screen) -> bool:
    """Compare, request the repairs, and compare again once these are done."""
    tables = resync_scope(run, options.table or ()).tables
    report = verify_step(
        run,
        tables=tables,
        settle_s=options.settle_s,
        catch_up=(lambda: _catch_up(run, screen)) if options.wait else None,
        refuse_late=True,
        values=options.values,
        budget=_budget(options),
    )
    found = repairs(run, report)
    if not found:
        return _result(run, screen, report)
    for line in (*verify_lines(report), *map(repair_line, found)):
        screen.say(line)
    confirm(options, screen, f"Read {_named(found)} again, while the stream goes on?")
    asked = ask_repairs(run, found)
    screen.say("waiting for it" if options.wait else who_carries_out(run))
    if not options.wait:
        return _result(run, screen, report, asked)
    asked = tuple(wait_until_done(run, each, screen) for each in asked)
    repaired = [repair.verdict.table for repair in found]
    after = verify_step(run, tables=repaired, settle_s=options.settle_s)
    left = [each for each in report.tables if not each.equal and each.table not in repaired]
    after = replace(after, tables=(*after.tables, *left), by_reset=report.by_reset)
    return _result(run, screen, after, asked)


def _budget(options: Options) -> Budget:
    """Return how much to compare, by the options."""
    return Budget(options.changed, options.sample, options.seed)


def _catch_up(run: Run, screen: Screen) -> None:
    """Catch up with the log before differing rows count."""
    screen.say("rows differ and no stream is at work: catching up before they count")
    catch_up(run, on_tick=lambda: screen.progress(lambda: status_of(run)))


def _named(found: Sequence[Repair]) -> str:
    """Describe the rows of repairs."""
    return ", ".join(str(each.scope) for each in found)


def _result(run: Run, screen: Screen, report: VerifyReport, asked: Sequence[Request] = ()) -> bool:
    """Show a comparison and its repairs; return whether all is equal."""
    form = {**verify_form(run.name, report), "requests": [request_form(each) for each in asked]}
    screen.result(form, [*verify_lines(report), *map(request_line, asked)])
    return report.equal
