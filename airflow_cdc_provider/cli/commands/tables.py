"""Add and remove: single tables of a pipeline, asked of whoever owns it."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import (
    Options,
    confirm,
    opened,
    say_done,
    status_of,
    table_of,
)
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps import table_requests
from airflow_cdc_provider.pipeline.steps.table_membership import shards_beside_others, targets_of
from airflow_cdc_provider.views.display import Screen


def add(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `add`: add tables to the stream that the file picks now."""
    with opened(options, lookup, screen) as run:
        told = table_requests.add(
            run,
            tables_of(options),
            wait_s=options.wait_s,
            on_tick=lambda: screen.progress(lambda: status_of(run)),
        )
        return say_done(run.name, screen, told)


def remove(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `remove`: remove tables from the stream that the file no longer picks."""
    with opened(options, lookup, screen) as run:
        tables = tables_of(options)
        if not tables:
            raise RefusedError(
                "no table is named",
                where="--table",
                risk=NOTHING_CHANGED,
                remedy="write --table database.table, once for each",
            )
        dropped = options.drop_target
        if dropped:
            for target, rows in targets_of(run, tables).items():
                held = "which is not there" if rows is None else f"with its {rows:,} rows"
                screen.say(f"to be dropped at the sink: {target}, {held}")
            for plan in shards_beside_others(run, tables):
                screen.say(
                    f"to be deleted at the sink: the rows of {plan.schema.table} in "
                    f"{plan.sink_table}; those of other tables stay"
                )
            confirm(options, screen, "Drop this at the sink, for good?")
        told = table_requests.remove(
            run,
            tables,
            drop_targets=dropped,
            wait_s=options.wait_s,
            on_tick=lambda: screen.progress(lambda: status_of(run)),
        )
        return say_done(run.name, screen, told)


def tables_of(options: Options) -> tuple[TableId, ...]:
    """Return the tables that `--table` options name."""
    return tuple(map(table_of, options.table or ()))
