"""Add and remove: single tables of a pipeline that streams."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import (
    Options,
    confirm,
    opened,
    say_done,
    table_of,
)
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.changing_tables import (
    add_tables,
    remove_tables,
    targets_of,
)
from airflow_cdc_provider.views.display import Screen


def add(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Let the stream follow tables that the file picks now."""
    with opened(options, lookup, screen) as run:
        added = add_tables(run, tables_of(options))
        names = ", ".join(map(str, added))
        return say_done(
            run.name,
            screen,
            f"the stream follows {names} from now on, and the next run reads the rows there are. "
            "The other tables are not read again",
        )


def remove(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Let the stream give up tables that the file does not pick any more."""
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
            confirm(options, screen, "Drop this at the sink, for good?")
        targets = ", ".join(map(str, remove_tables(run, tables, drop_targets=dropped)))
        names = ", ".join(map(str, tables))
        if not targets:
            done = f"{names} was removed before, and nothing was left to do"
            return say_done(run.name, screen, f"{done}; what is at the sink was not looked at")
        fate = f"{targets} is dropped" if dropped else f"The rows in {targets} stay"
        return say_done(run.name, screen, f"{names} is not copied any more. {fate}")


def tables_of(options: Options) -> tuple[TableId, ...]:
    """Return the tables that `--table` names."""
    return tuple(map(table_of, options.table or ()))
