"""Run: everything that is still to do."""

from __future__ import annotations

import time
from pathlib import Path

from airflow_cdc_provider.alerts.of_run import notifying
from airflow_cdc_provider.cli.commands.opening import Options, opened, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.connections import spark_master
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.converging import (
    Watcher,
    run_continuously,
    run_until_caught_up,
)
from airflow_cdc_provider.pipeline.steps.done_in_run import BeforeRun
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.seeding import seed
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import run_form, run_lines


def _seed(run: Run, opposite: str, lookup: Lookup, screen: Screen) -> None:
    """Begin a way back with the rows that the opposite edge has copied."""
    loaded = load_pipeline(opposite)
    with open_run(loaded, lookup.dsn_of, in_airflow=lookup.in_airflow) as there:
        screen.say(seed(run, there, on_wait=screen.say))


def run(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `run`: run every step that is still to do."""
    started = time.monotonic()
    with opened(options, lookup, screen) as run:
        spark = SparkOptions.of(
            run.model,
            master=options.master or spark_master(run.loaded, lookup.master_of),
            log_folder=Path(options.log_folder) if options.log_folder else None,
        )
        watcher = Watcher(
            screen.step,
            lambda: screen.progress(lambda: status_of(run)),
            lambda text: screen.say(f"warning: {text}"),
            screen.say,
        )
        if options.seeded_from:
            _seed(run, options.seeded_from, lookup, screen)
        bounded = options.until == "caught-up" or not run.model.stream.is_continuous
        step = run_until_caught_up if bounded else run_continuously
        before = BeforeRun.of(run)
        with notifying(run):
            done = step(run, spark, watcher)
        status = status_of(run)
    form = run_form(done, status, time.monotonic() - started, before.since(run))
    screen.result(form, run_lines(form))
    return True
