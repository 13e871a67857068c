"""Restart and drop: what cannot be undone, and so is asked for."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, opened, say_done
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.pipeline.steps import control
from airflow_cdc_provider.views.display import Screen


def restart(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Plan from scratch."""
    with opened(options, lookup, screen) as run:
        _confirm(options, screen, f"Read all tables of {run.name} again?")
        return say_done(run.name, screen, control.restart(run))


def drop(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Forget the pipeline."""
    with opened(options, lookup, screen) as run:
        _confirm(options, screen, f"Forget state and ledger of {run.name}?")
        return say_done(run.name, screen, control.drop(run))


def _confirm(options: Options, screen: Screen, question: str) -> None:
    if options.yes or screen.ask(question):
        return
    raise RefusedError(
        "this was not confirmed",
        risk=NOTHING_CHANGED,
        remedy="give --yes, or answer yes on a terminal",
    )
