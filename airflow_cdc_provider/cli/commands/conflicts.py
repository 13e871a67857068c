"""Conflicts: rows that both nodes of an edge had changed, from the ledger at the sink."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from airflow_cdc_provider.cli.commands.opening import Options, looked_at
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.views.conflict_lines import (
    conflict_form,
    conflict_lines,
    table_forms,
    table_lines,
)
from airflow_cdc_provider.views.display import Screen


def conflicts(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `conflicts`: list a pipeline's conflicts."""
    since_us = _since_us(options.since)
    if options.most < 1:
        raise RefusedError(
            f"{options.most} conflicts are none",
            where="--most",
            risk=NOTHING_CHANGED,
            remedy="write how many to list, 1 or more",
        )
    with looked_at(options, lookup, screen) as run:
        edge = run.model.edge
        if edge is None or not edge.is_guarded:
            raise RefusedError(
                f"{run.name} settles no conflicts",
                where="topology.conflicts",
                risk=NOTHING_CHANGED,
                remedy="name the file of an edge whose topology has conflicts",
            )
        with closing(open_ledger(run)) as ledger:
            count = ledger.conflict_count()
            found = ledger.conflicts(since_us=since_us, most=options.most)
            tables = ledger.conflicts_of_tables(since_us=since_us)
    form = conflict_form(run.name, count, found, values=options.values)
    lines = conflict_lines(count, found, values=options.values)
    screen.result({**form, "tables": table_forms(tables)}, [*lines, *table_lines(tables)])
    return True


def _since_us(text: str | None) -> int:
    """Return the time that `--since` gives, in microseconds; UTC unless it says otherwise."""
    if text is None:
        return 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RefusedError(
            f"{text!r} is no time",
            where="--since",
            risk=NOTHING_CHANGED,
            remedy="write a date, or date and time, such as 2026-11-26T14:00",
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1_000_000)
