"""The commands: each opens the pipeline, calls its step and shows what came of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.connections import DsnOf, MasterOf, spark_master
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, give_back, open_run, open_to_look
from airflow_cdc_provider.pipeline.steps import control
from airflow_cdc_provider.pipeline.steps.checking import check as check_step
from airflow_cdc_provider.pipeline.steps.converging import (
    Watcher,
    run_continuously,
    run_until_caught_up,
)
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.pipeline.steps.verifying import verify as verify_step
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.reports import (
    check_lines,
    plan_form,
    plan_lines,
    run_form,
    run_lines,
    status_lines,
    verify_form,
    verify_lines,
)
from airflow_cdc_provider.views.status import PipelineStatus
from airflow_cdc_provider.views.status import status as status_step

_WATCH_EVERY_S = 2.0
Options = argparse.Namespace


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where connections are looked up: in the environment, or in Airflow."""

    dsn_of: DsnOf
    master_of: MasterOf


@contextmanager
def _open(options: Options, lookup: Lookup, screen: Screen) -> Iterator[Run]:
    """Open the pipeline for a command that may take it over, and give it back at the end."""
    with open_run(load_pipeline(options.file), lookup.dsn_of) as run:
        _say_state(run, screen)
        try:
            yield run
        finally:
            give_back(run)


def _look(options: Options, lookup: Lookup, screen: Screen) -> Run:
    run = open_to_look(load_pipeline(options.file), lookup.dsn_of)
    _say_state(run, screen)
    return run


def _say_state(run: Run, screen: Screen) -> None:
    if run.servers.default_state is not None:
        screen.say(f"state: {run.servers.default_state} (the file names no state)")


def _status(run: Run) -> PipelineStatus:
    return status_step(run.store, run.name, now_us=run.store.now_us())


def check(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Look at the file, the source and the sink."""
    with _look(options, lookup, screen) as run:
        report = check_step(run)
    screen.result(report.to_json(), check_lines(report))
    report.require_fit()
    return True


def plan(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Show what `run` would do."""
    with _look(options, lookup, screen) as run:
        found = preview(run)
        form = plan_form(found, run.model)
    screen.result(form, plan_lines(form))
    found.report.require_fit()
    return True


def run(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Do what is still to do."""
    started = time.monotonic()
    with _open(options, lookup, screen) as opened:
        spark = SparkOptions.of(
            opened.model,
            master=options.master or spark_master(opened.loaded, lookup.master_of),
            log_folder=Path(options.log_folder) if options.log_folder else None,
        )
        watcher = Watcher(
            screen.step,
            lambda: screen.progress(_status(opened)),
            lambda text: screen.say(f"warning: {text}"),
        )
        bounded = options.until == "caught-up" or opened.model.stream.mode == "bounded"
        step = run_until_caught_up if bounded else run_continuously
        done = step(opened, spark, watcher)
        status = _status(opened)
    form = run_form(done, status, time.monotonic() - started)
    screen.result(form, run_lines(form))
    return True


def status(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Show what is remembered of the pipeline."""
    with _look(options, lookup, screen) as run:
        while options.watch:
            # opened anew, because a store that was not there may be by now
            with open_to_look(run.loaded, lookup.dsn_of) as now:
                screen.progress(_status(now))
            time.sleep(_WATCH_EVERY_S)
        found = _status(run)
    screen.result(found.to_json(), status_lines(found))
    return True


def verify(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Compare source and sink, both ways."""
    tables = (_table(options.table),) if options.table else None
    with _look(options, lookup, screen) as run:
        report = verify_step(run, tables=tables, settle_s=options.settle_s)
    screen.result(verify_form(run.name, report), verify_lines(report))
    return report.equal


def _table(text: str) -> TableId:
    try:
        return TableId.parse(text)
    except ValueError as error:
        raise RefusedError(str(error), where="--table", remedy="write database.table") from None


def pause(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Ask the pipeline's owner to stop."""
    with _open(options, lookup, screen) as run:
        text = control.pause(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(_status(run))
        )
        return _done(run, screen, text)


def resume(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Allow the pipeline to run again."""
    with _open(options, lookup, screen) as run:
        return _done(run, screen, control.resume(run))


def restart(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Plan from scratch."""
    with _open(options, lookup, screen) as run:
        _confirm(options, screen, f"Read all tables of {run.name} again?")
        return _done(run, screen, control.restart(run))


def drop(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Forget the pipeline."""
    with _open(options, lookup, screen) as run:
        _confirm(options, screen, f"Forget state and ledger of {run.name}?")
        return _done(run, screen, control.drop(run))


def _confirm(options: Options, screen: Screen, question: str) -> None:
    if options.yes or screen.ask(question):
        return
    raise RefusedError(
        "this was not confirmed",
        risk="none: nothing was changed",
        remedy="give --yes, or answer yes on a terminal",
    )


def _done(run: Run, screen: Screen, text: str) -> bool:
    form: dict[str, Any] = {"pipeline": str(run.name), "done": text}
    screen.result(form, [text])
    return True
