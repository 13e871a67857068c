"""Pause, resume, restart: what the owners of pipelines are asked, through the state store alone."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.each import for_each
from airflow_cdc_provider.cli.commands.opening import Options, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import pausing
from airflow_cdc_provider.views.display import Screen


def pause(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Ask the owners to stop."""

    def ask(run: Run) -> str:
        return pausing.pause(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(status_of(run))
        )

    return for_each(options, lookup, screen, ask)


def resume(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Allow pipelines to run again."""
    return for_each(options, lookup, screen, pausing.resume)


def restart(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Have the owners begin again from the ledger."""

    def ask(run: Run) -> str:
        return pausing.restart(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(status_of(run))
        )

    return for_each(options, lookup, screen, ask)
