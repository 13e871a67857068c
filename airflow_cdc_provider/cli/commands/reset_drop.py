"""Reset and drop: what cannot be undone, and so is asked for."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.each_pipeline import for_each
from airflow_cdc_provider.cli.commands.opening import Options, status_of
from airflow_cdc_provider.cli.commands.tables import tables_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import reset_drop
from airflow_cdc_provider.views.display import Screen

_SURE = "What was read of {} is forgotten and read again, which may take long. Are you sure?"


def reset(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `reset`: read all tables, or single ones, again."""
    tables = tables_of(options)
    if not tables:
        questions = ("Read all tables of {} again?", _SURE)
        return for_each(options, lookup, screen, reset_drop.reset, questions)
    names = ", ".join(map(str, tables))

    def begin(run: Run) -> str:
        return reset_drop.begin_again(
            run,
            tables,
            wait_s=options.wait_s,
            on_tick=lambda: screen.progress(lambda: status_of(run)),
        )

    questions = (f"Read {names} of {{}} again, as defined now?", _SURE)
    return for_each(options, lookup, screen, begin, questions)


def drop(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `drop`: delete pipelines' state and ledger rows."""
    return for_each(options, lookup, screen, reset_drop.drop, ("Forget state and ledger of {}?",))
