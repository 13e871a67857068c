"""Log: what stands in the source's log around a position."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, looked_at
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.pipeline.steps.looking_at_log import log_view
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.log_lines import log_lines


def log(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `log`: show events of the source's log."""
    if options.events < 1:
        raise RefusedError(
            f"{options.events} events are none",
            "--events",
            NOTHING_STARTED,
            "write how many to show, 1 or more",
        )
    if options.at is not None and not options.at.strip():
        raise RefusedError(
            "an empty text is no place of a log",
            "--at",
            NOTHING_STARTED,
            "write FILE:OFFSET, such as binlog.000009:154, or a GTID; or leave --at out",
        )
    with looked_at(options, lookup, screen) as run:
        view = log_view(run, at=options.at or "", count=options.events, values=options.values)
    screen.result(view.to_json(), log_lines(view))
    return True
