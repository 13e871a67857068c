"""Pause and resume: what the pipeline's owner is asked, through the state store alone."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, opened, say_done, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.steps import pausing
from airflow_cdc_provider.views.display import Screen


def pause(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Ask the pipeline's owner to stop."""
    with opened(options, lookup, screen) as run:
        text = pausing.pause(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(status_of(run))
        )
        return say_done(run.name, screen, text)


def resume(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Allow the pipeline to run again."""
    with opened(options, lookup, screen) as run:
        return say_done(run.name, screen, pausing.resume(run))
