"""Add and remove: single tables of a pipeline that streams."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, opened, say_done, table_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.changing_tables import add_tables, remove_tables
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
        targets = ", ".join(map(str, remove_tables(run, tables)))
        names = ", ".join(map(str, tables))
        return say_done(
            run.name, screen, f"{names} is not copied any more. The rows in {targets} stay"
        )


def tables_of(options: Options) -> tuple[TableId, ...]:
    """Return the tables that `--table` names."""
    return tuple(map(table_of, options.table or ()))
