"""Reset and drop: what cannot be undone, and so is asked for."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, confirm, opened, say_done
from airflow_cdc_provider.cli.commands.tables import tables_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps import control
from airflow_cdc_provider.pipeline.steps.changing_tables import reset_tables
from airflow_cdc_provider.views.display import Screen


def reset(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Plan from scratch, or begin single tables again."""
    tables = tables_of(options)
    with opened(options, lookup, screen) as run:
        if tables:
            names = ", ".join(map(str, tables))
            confirm(options, screen, f"Read {names} of {run.name} again, as defined now?")
            reset_tables(run, tables)
            text = f"{names} begins again with the next run; the other tables are not read again"
            return say_done(run.name, screen, text)
        confirm(options, screen, f"Read all tables of {run.name} again?")
        return say_done(run.name, screen, control.reset(run))


def drop(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Forget the pipeline."""
    with opened(options, lookup, screen) as run:
        confirm(options, screen, f"Forget state and ledger of {run.name}?")
        return say_done(run.name, screen, control.drop(run))
